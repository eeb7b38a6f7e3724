-- How events are laid out, and what autovacuum has to do.

-- Whoever has little to lock beside a row finds it in four tables; their fillfactors and indexes have their reasons at
-- their definitions. The reasons of what they do not say:
--
-- conversations, device_cursors, read_positions (fillfactor 70) and devices, routes (80): updated in place again and
-- again, and no index holds a column that does it, so that the new version goes to the page of the old one (HOT) and the
-- next visitor of the page clears the old one away. Autovacuum finds nothing left to do but its visit; the default, after
-- a fifth of the rows, stays.
--
-- events (fillfactor 100): appended. Only a recall updates a row, and makes it smaller. Autovacuum by default waits for
-- inserts of a fifth of the table, which for ten million events is half a month of them, all read again at once, and
-- until then none of their pages is marked as visible to all: counts of recalled messages read the rows beside the index,
-- and the freezing of old rows piles up. A fixed number of inserts makes each round small, of what memory still holds.
-- What retention removes waits for the default: a round for it reads all indexes of the table, however little went.
ALTER TABLE events SET (autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 200000);

-- idem_tombstones: a queue. Rows go at the old end of idem_tombstones_expires and stay in its pages as dead entries, which
-- each search for what is due walks over until they are vacuumed; so that is not left to a fifth of a table that holds
-- the keys of a week.
ALTER TABLE idem_tombstones SET (autovacuum_vacuum_scale_factor = 0.02);

-- Asked for with "server migrate -partitions n": events as n hash partitions by conversation, each with all indexes. It
-- pays when a table's indexes have outgrown memory or when a vacuum of the whole takes too long, and costs planning (once
-- a connection) and locks: each statement of the log locks all partitions, more than the sixteen relations for which
-- PostgreSQL has a short way. Partitions of one table and the conversation first in each key are also what distributing it
-- needs. It is chosen when the database is made: rows are not moved here.
DO $$
DECLARE
    n integer := coalesce(nullif(current_setting('imbench.partitions', true), ''), '0');
    options text := (SELECT array_to_string(reloptions, ', ') FROM pg_class WHERE oid = 'events'::regclass);
    indexes text[] := (SELECT array_agg(pg_get_indexdef(indexrelid)) FROM pg_index
                       WHERE indrelid = 'events'::regclass AND NOT indisprimary);
    one text;
BEGIN
    IF n < 2 OR EXISTS (SELECT 1 FROM events) THEN
        RETURN; -- Migrate refuses if that is not what it was asked for
    END IF;
    ALTER TABLE events RENAME TO events_whole;
    CREATE TABLE events (LIKE events_whole INCLUDING ALL EXCLUDING INDEXES) PARTITION BY HASH (conv_id);
    DROP TABLE events_whole;
    FOR i IN 0 .. n - 1 LOOP
        EXECUTE format('CREATE TABLE %I PARTITION OF events FOR VALUES WITH (MODULUS %s, REMAINDER %s) WITH (%s)',
                       'events_' || i, n, i, options);
    END LOOP;
    ALTER TABLE events ADD CONSTRAINT events_pkey PRIMARY KEY (conv_id, seq);
    FOREACH one IN ARRAY indexes LOOP
        EXECUTE one;
    END LOOP;
END $$;

-- im_summarize has the BRIN index on events(created_at), or that of each partition, take in the newest pages. That needs
-- a lock which autovacuum holds while it works on the table; whoever has it summarizes too, so this waits a moment only,
-- and goes on with the next.
CREATE FUNCTION im_summarize() RETURNS void LANGUAGE plpgsql SET lock_timeout = '5ms' AS $$
DECLARE
    i regclass;
BEGIN
    FOR i IN SELECT coalesce(p.inhrelid, c.oid) FROM pg_class c LEFT JOIN pg_inherits p ON p.inhparent = c.oid
             WHERE c.oid = 'events_created'::regclass
    LOOP
        BEGIN
            PERFORM brin_summarize_new_values(i);
        EXCEPTION WHEN lock_not_available THEN
        END;
    END LOOP;
END $$;

-- How events are laid out, and what autovacuum has to do.

-- The reasons for indexes and fillfactors stand at their definitions; these are those for autovacuum.
--
-- conversations (whose rows bring the room for it, see 0012), device_cursors, read_positions (fillfactor 70) and devices,
-- routes (80) are updated in place again and again, and no index holds a column that does it: the new version goes to the
-- page of the old one (HOT), and a later visitor of the page clears the old one away. Autovacuum finds little left to do.
-- Its default, after a fifth of the rows, stays.
--
-- events (fillfactor 100) is appended to; only a recall updates a row. By default a round of autovacuum waits for inserts
-- of a fifth of the table: with ten million events two million, read again when memory holds them no more, and until
-- then unvisited. The pages that are not known to be visible to all cost whoever counts recalled messages a row's page
-- beside each index entry (nine of them: 12 pages, after a round 3). A round for inserts alone passes over no index and
-- reads the new pages only (200 000 events: 0.2 s of CPU), so many small ones cost no more than few large ones. What
-- retention removes waits for the default: a round for that reads all indexes of the table, however little went.
ALTER TABLE events SET (autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 200000);

-- idem_tombstones is a queue. Its oldest keys go, and stay as dead entries at the beginning of idem_tombstones_expires:
-- each look for what is due walks over them until a round of autovacuum (20 000 keys: 68 pages, 200 000: 560). A fifth of
-- a week's keys, which the default waits for, may be millions.
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

-- Fewer bytes of WAL for a message. Measured as in 0006, in batches of five over 10 000 conversations, bytes a message:
--
--                                     before   after
-- the event                              391     340   no message_id, its key as a UUID, no padding (see 0001)
-- its request key                         88      80   a digest of 12 bytes
-- its primary key                         80      80
-- page splits and the rest                42      40
-- the conversation's lock                 54      54
-- the conversation's new version          87      90
-- its page made free of old versions      60       9   one round in eleven updates
-- in all                                 801     694
--
-- Tried and left: two batches of a gateway under way at once (64 senders: 0.6 of the rate and 1.7 times the CPU of one, since
-- a batch costs about 0.6 ms of CPU beside 43 us a message). Not tried: advisory locks in the place of the row's, which would save the lock's 54 bytes. A row
-- that anybody else has locked, by hand too, must not hold up a batch, and only the row's own lock shows that.

-- With fillfactor 70 a page that holds one old version is cleared by its next visitor: PostgreSQL does that as soon as less
-- than the fillfactor's share is free, and writes 58 bytes for it, so nearly every send did. From 90 on it waits until a
-- tenth is free. Then the room for new versions has to be there in another way: a new row brings it, and its first send
-- drops it (room = NULL). (Rows from before have none; their pages are three tenths free.) It stands beside the columns that
-- a send changes, where its loss adds next to nothing to the WAL; at the row's end it added 18 bytes to the mean above.
ALTER TABLE conversations ADD COLUMN IF NOT EXISTS room text;
ALTER TABLE conversations ALTER COLUMN room SET DEFAULT '...............................................................';
ALTER TABLE conversations SET (fillfactor = 90);

-- The digest of a request's key, in the index in the place of user and key. It is only a place to look, as before: whoever
-- finds a row there compares the key itself. 96 bits: two of 300 000 keys of a conversation share one with a probability of
-- less than 10^-18, and the later is then refused; who wants to hit another's key has to try 2^96. With ids of eight to ten
-- characters an index entry has 32 bytes, with the 16 bytes of before 40.
CREATE FUNCTION im_request_digest(p_user text, p_cmid text) RETURNS bytea LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
SELECT substring(sha256(decode(replace(p_user || '/' || p_cmid, '\', '\\'), 'escape')) FROM 1 FOR 12)
$$;

-- PROTOCOL.md advises UUIDs for keys. A message's row holds such a key as its 16 bytes, in client_msg_uuid; any other,
-- that of a recall and those from before stand in client_msg_id. Whoever reads a key takes
-- coalesce(client_msg_id, client_msg_uuid::text), which is what the client sent: no other text is taken for a UUID. (Not
-- STRICT, so that it is expanded where it stands.)
CREATE FUNCTION im_uuid(p_cmid text) RETURNS uuid LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
SELECT CASE WHEN p_cmid ~ '^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$' THEN p_cmid::uuid END
$$;

ALTER TABLE events ADD COLUMN client_msg_uuid uuid;

DROP INDEX events_request;
CREATE UNIQUE INDEX events_request ON events
    (conv_id, im_request_digest(sender_user, coalesce(client_msg_id, client_msg_uuid::text)))
WHERE coalesce(client_msg_id, client_msg_uuid::text) IS NOT NULL;

-- The functions as before, with all this. A message's row has no message_id any more: the store makes the id of seq and
-- key (messageID). own_seq, which is 0 or more, is not looked up where it cannot matter. The two EXISTS end in OFFSET 0, so that
-- they are look-ups for good: a plan made while the tables were small might read them whole into a hash table.
CREATE OR REPLACE FUNCTION im_send_batch(p_conv text[], p_user text[], p_dev text[], p_cmid text[], p_hash bytea[], p_mid uuid[],
                              p_body text[], p_wait boolean)
RETURNS TABLE (o_ord bigint, o_seq bigint, o_msg_no bigint, o_mid uuid, o_dup boolean, o_epoch integer, o_at timestamptz,
               o_code text)
LANGUAGE plpgsql AS $$
DECLARE
    held text[];
    now_ timestamptz;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'im_send_batch needs READ COMMITTED' USING ERRCODE = '25001';
    END IF;

    -- First statement: only locks, in key order. Nothing read here is used later: next_seq and msg_count come from the
    -- second statement, whose newer snapshot sees every commit of whoever held the locks before. (One data-modifying
    -- CTE for both would keep the old snapshot after the wait, and miss a replay or a leave.)
    IF p_wait THEN
        SELECT coalesce(array_agg(l.conv_id), '{}') INTO held
        FROM (SELECT c.conv_id FROM conversations c WHERE c.conv_id = ANY (p_conv)
              ORDER BY c.conv_id FOR NO KEY UPDATE) l;
    ELSE
        SELECT coalesce(array_agg(l.conv_id), '{}') INTO held
        FROM (SELECT c.conv_id FROM conversations c WHERE c.conv_id = ANY (p_conv)
              ORDER BY c.conv_id FOR NO KEY UPDATE SKIP LOCKED) l;
    END IF;
    -- Under the locks, so that within a conversation times rise with seq.
    now_ := clock_timestamp();

    RETURN QUERY
    WITH req AS MATERIALIZED (
        SELECT r.*, c.next_seq AS nx, c.msg_count AS mc, c.epoch AS ep, r.conv = ANY (held) AS mine,
               e.seq AS eseq, e.msg_no AS emno, e.message_id AS emid, e.hash AS ehash, e.created_at AS eat,
               EXISTS (SELECT 1 FROM idem_tombstones t
                       WHERE t.conv_id = r.conv AND t.sender_user = r.usr AND t.client_msg_id = r.cmid OFFSET 0) AS tomb,
               EXISTS (SELECT 1 FROM membership_periods m
                       WHERE m.conv_id = r.conv AND m.user_id = r.usr AND m.to_seq IS NULL OFFSET 0) AS mem,
               first_value(r.ord) OVER k AS lead, first_value(r.hash) OVER k AS lhash
        FROM (SELECT u.*, im_request_digest(u.usr, u.cmid) AS key, im_uuid(u.cmid) AS bits
              FROM unnest(p_conv, p_user, p_dev, p_cmid, p_hash, p_mid, p_body)
                   WITH ORDINALITY AS u (conv, usr, dev, cmid, hash, mid, body, ord) OFFSET 0) r
        LEFT JOIN LATERAL (SELECT x.next_seq, x.msg_count, x.epoch FROM conversations x
                           WHERE x.conv_id = r.conv OFFSET 0) c ON true
        LEFT JOIN LATERAL (SELECT x.seq, x.msg_no, x.message_id, x.created_at,
                                  coalesce(x.request_hash, CASE WHEN x.body = r.body THEN r.hash END) AS hash
                           FROM events x
                           WHERE x.conv_id = r.conv AND im_request_digest(x.sender_user, coalesce(x.client_msg_id, x.client_msg_uuid::text)) = r.key
                             AND x.sender_user = r.usr AND coalesce(x.client_msg_id, x.client_msg_uuid::text) = r.cmid
                           OFFSET 0) e ON true
        WINDOW k AS (PARTITION BY r.conv, r.usr, r.cmid ORDER BY r.ord)
    ), fresh AS MATERIALIZED (
        SELECT q.*, q.nx - 1 + row_number() OVER w AS nseq, q.mc + row_number() OVER w AS nmno
        FROM req q
        WHERE q.mine AND q.eseq IS NULL AND NOT q.tomb AND q.mem AND q.lead = q.ord
        WINDOW w AS (PARTITION BY q.conv ORDER BY q.ord)
    ), ins AS (
        INSERT INTO events (conv_id, seq, kind, message_id, sender_user, sender_device, client_msg_id,
                            client_msg_uuid, body, msg_no, created_at)
        SELECT f.conv, f.nseq, 'msg', f.mid, f.usr, f.dev, CASE WHEN f.bits IS NULL THEN f.cmid END,
               f.bits, f.body, f.nmno, now_
        FROM fresh f ORDER BY f.conv, f.nseq
    ), upd AS (
        UPDATE conversations c SET next_seq = h.s + 1, msg_count = h.m, room = NULL
        FROM (SELECT f.conv, max(f.nseq) AS s, max(f.nmno) AS m FROM fresh f GROUP BY f.conv) h
        WHERE c.conv_id = h.conv
    ), own AS (
        -- That the sender has read up to here, if it is not near enough to what is noted already.
        INSERT INTO read_positions AS p (conv_id, user_id, epoch, read_seq, own_seq)
        SELECT o.conv, o.usr, o.ep, 0, o.last
        FROM (SELECT f.conv, f.usr, f.ep, max(f.nseq) AS last FROM fresh f GROUP BY f.conv, f.usr, f.ep) o
        WHERE o.last > 64 AND o.last > 64 + coalesce((SELECT x.own_seq FROM read_positions x
                                      WHERE x.conv_id = o.conv AND x.user_id = o.usr), 0)
        ORDER BY o.conv, o.usr
        ON CONFLICT (conv_id, user_id) DO UPDATE SET own_seq = EXCLUDED.own_seq
    )
    SELECT q.ord, coalesce(q.eseq, f.nseq), coalesce(q.emno, f.nmno), coalesce(q.emid, f.mid),
           (q.eseq IS NOT NULL OR q.lead <> q.ord), q.ep, coalesce(q.eat, now_),
           CASE WHEN q.nx IS NULL THEN 'NOT_MEMBER'           -- no such conversation: says no more than that
                WHEN NOT q.mine THEN 'BUSY'                   -- before any other answer: unlocked reads decide nothing
                WHEN q.eseq IS NOT NULL THEN
                    CASE WHEN q.ehash IS DISTINCT FROM q.hash THEN 'IDEMPOTENCY_MISMATCH' END
                WHEN q.tomb THEN 'EXPIRED'
                WHEN NOT q.mem THEN 'NOT_MEMBER'
                WHEN q.lead <> q.ord AND q.lhash IS DISTINCT FROM q.hash THEN 'IDEMPOTENCY_MISMATCH' END
    FROM req q LEFT JOIN fresh f ON f.ord = q.lead;
END $$;

CREATE OR REPLACE FUNCTION im_send_one(p_conv text, p_user text, p_dev text, p_cmid text, p_hash bytea, p_mid uuid, p_body text, p_wait boolean,
    OUT o_ord bigint, OUT o_seq bigint, OUT o_msg_no bigint, OUT o_mid uuid, OUT o_dup boolean, OUT o_epoch integer,
    OUT o_at timestamptz, OUT o_code text)
LANGUAGE plpgsql AS $$
DECLARE
    head bigint;
    messages bigint;
    own bigint;
    tomb boolean;
    mem boolean;
    had bytea;
    key_ bytea := im_request_digest(p_user, p_cmid); -- a value to the look-up, not an expression: see 0006
    bits uuid := im_uuid(p_cmid);
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'im_send_one needs READ COMMITTED' USING ERRCODE = '25001';
    END IF;
    o_ord := 1;
    o_dup := false;
    o_at := clock_timestamp();
    -- The counters may be taken from the statement that locks: a lock that had to follow an update returns the newest row.
    -- All else is read by later statements, whose newer snapshots see every commit of whoever held the lock before.
    IF p_wait THEN
        SELECT c.next_seq, c.msg_count + 1, c.epoch INTO head, messages, o_epoch FROM conversations c
        WHERE c.conv_id = p_conv FOR NO KEY UPDATE;
    ELSE
        SELECT c.next_seq, c.msg_count + 1, c.epoch INTO head, messages, o_epoch FROM conversations c
        WHERE c.conv_id = p_conv FOR NO KEY UPDATE SKIP LOCKED;
    END IF;
    IF NOT FOUND THEN
        o_code := CASE WHEN EXISTS (SELECT 1 FROM conversations c WHERE c.conv_id = p_conv) THEN 'BUSY' ELSE 'NOT_MEMBER' END;
        RETURN;
    END IF;
    SELECT x.seq, x.msg_no, x.message_id, x.created_at, coalesce(x.request_hash, CASE WHEN x.body = p_body THEN p_hash END)
    INTO o_seq, o_msg_no, o_mid, o_at, had FROM events x
    WHERE x.conv_id = p_conv AND im_request_digest(x.sender_user, coalesce(x.client_msg_id, x.client_msg_uuid::text)) = key_
      AND x.sender_user = p_user AND coalesce(x.client_msg_id, x.client_msg_uuid::text) = p_cmid;
    o_dup := FOUND;
    IF o_dup THEN
        IF had IS DISTINCT FROM p_hash THEN o_code := 'IDEMPOTENCY_MISMATCH'; END IF;
        RETURN;
    END IF;
    SELECT EXISTS (SELECT 1 FROM idem_tombstones t
                   WHERE t.conv_id = p_conv AND t.sender_user = p_user AND t.client_msg_id = p_cmid),
           EXISTS (SELECT 1 FROM membership_periods m WHERE m.conv_id = p_conv AND m.user_id = p_user AND m.to_seq IS NULL),
           CASE WHEN head > 64 THEN (SELECT x.own_seq FROM read_positions x WHERE x.conv_id = p_conv AND x.user_id = p_user) END
    INTO tomb, mem, own;
    o_at := clock_timestamp(); -- under the lock, so that within a conversation times rise with seq
    IF tomb OR NOT mem THEN
        o_code := CASE WHEN tomb THEN 'EXPIRED' ELSE 'NOT_MEMBER' END;
        RETURN;
    END IF;
    o_seq := head; o_msg_no := messages; o_mid := p_mid;
    INSERT INTO events (conv_id, seq, kind, message_id, sender_user, sender_device, client_msg_id, client_msg_uuid, body, msg_no,
                        created_at)
    VALUES (p_conv, head, 'msg', p_mid, p_user, p_dev, CASE WHEN bits IS NULL THEN p_cmid END, bits, p_body, messages,
            o_at);
    UPDATE conversations SET room = NULL, next_seq = head + 1, msg_count = messages WHERE conv_id = p_conv;
    IF head > 64 + coalesce(own, 0) THEN
        INSERT INTO read_positions AS p (conv_id, user_id, epoch, read_seq, own_seq)
        VALUES (p_conv, p_user, o_epoch, 0, head)
        ON CONFLICT (conv_id, user_id) DO UPDATE SET own_seq = EXCLUDED.own_seq;
    END IF;
END $$;

CREATE OR REPLACE FUNCTION im_recall(p_conv text, p_user text, p_dev text, p_cmid text, p_hash bytea, p_target bigint,
                          OUT o_seq bigint, OUT o_msg_no bigint, OUT o_dup boolean, OUT o_epoch integer,
                          OUT o_at timestamptz, OUT o_code text)
LANGUAGE plpgsql AS $$
DECLARE
    c conversations%ROWTYPE;
    t events%ROWTYPE;
    e events%ROWTYPE;
    hash bytea;
    key bytea := im_request_digest(p_user, p_cmid);
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'im_recall needs READ COMMITTED' USING ERRCODE = '25001';
    END IF;
    o_dup := false;
    SELECT * INTO c FROM conversations WHERE conv_id = p_conv FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        o_code := 'NOT_MEMBER';
        RETURN;
    END IF;
    o_epoch := c.epoch;

    -- A request that was done before is answered first, as for messages: also to one who has left since.
    SELECT * INTO e FROM events WHERE conv_id = p_conv AND im_request_digest(sender_user, coalesce(client_msg_id, client_msg_uuid::text)) = key
        AND sender_user = p_user AND coalesce(client_msg_id, client_msg_uuid::text) = p_cmid;
    IF FOUND THEN
        o_seq := e.seq; o_msg_no := e.msg_no; o_dup := true; o_at := e.created_at;
        o_code := CASE WHEN e.request_hash IS DISTINCT FROM p_hash THEN 'IDEMPOTENCY_MISMATCH' END;
        RETURN;
    END IF;
    SELECT * INTO t FROM events WHERE conv_id = p_conv AND seq = p_target;
    o_code := CASE
        WHEN EXISTS (SELECT 1 FROM idem_tombstones
                     WHERE conv_id = p_conv AND sender_user = p_user AND client_msg_id = p_cmid) THEN 'EXPIRED'
        WHEN NOT EXISTS (SELECT 1 FROM membership_periods
                         WHERE conv_id = p_conv AND user_id = p_user AND to_seq IS NULL) THEN 'NOT_MEMBER'
        WHEN p_target >= c.next_seq THEN 'CURSOR_AHEAD'
        -- Between two of the caller's periods: not theirs to see, nor to learn anything of.
        WHEN NOT EXISTS (SELECT 1 FROM membership_periods
                         WHERE conv_id = p_conv AND user_id = p_user AND from_seq <= p_target
                           AND (to_seq IS NULL OR to_seq >= p_target)) THEN 'NOT_MEMBER'
        WHEN p_target < c.min_seq THEN 'EXPIRED'
        WHEN t.kind <> 'msg' THEN 'BAD_REQUEST'
        WHEN t.sender_user <> p_user THEN 'NOT_SENDER'
    END;
    IF o_code IS NOT NULL THEN
        RETURN;
    END IF;

    -- Before the window: a recall stays done when its time is over.
    SELECT * INTO e FROM events WHERE conv_id = p_conv AND target_seq = p_target;
    IF FOUND THEN
        o_seq := e.seq; o_msg_no := e.msg_no; o_dup := true; o_at := e.created_at;
        RETURN;
    END IF;
    o_at := clock_timestamp();
    IF o_at > t.created_at + c.recall_window_ms * interval '1 millisecond' THEN
        o_code := 'RECALL_WINDOW';
        RETURN;
    END IF;

    o_seq := c.next_seq;
    o_msg_no := c.msg_count;
    INSERT INTO events (conv_id, seq, kind, sender_user, sender_device, client_msg_id, request_hash, target_seq, msg_no,
                        created_at)
    VALUES (p_conv, o_seq, 'recall', p_user, p_dev, p_cmid, p_hash, p_target, o_msg_no, o_at);
    -- 'msg', a zero byte and the body: what the store hashes for a message.
    hash := coalesce(t.request_hash, sha256('\x6d736700' || convert_to(t.body, 'UTF8')));
    UPDATE events SET body = NULL, request_hash = hash WHERE conv_id = p_conv AND seq = p_target;
    UPDATE conversations SET next_seq = o_seq + 1 WHERE conv_id = p_conv;
END $$;

CREATE OR REPLACE FUNCTION im_retain(p_limit bigint, p_convs integer, p_keep interval,
                          OUT o_looked integer, OUT o_raised integer, OUT o_events bigint)
LANGUAGE plpgsql AS $$
DECLARE
    c record;
    now_ timestamptz := clock_timestamp(); -- in a variable: a volatile function is no bound for an index
    age interval;
    cut bigint;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'im_retain needs READ COMMITTED' USING ERRCODE = '25001';
    END IF;
    o_looked := 0; o_raised := 0; o_events := 0;
    FOR c IN SELECT conv_id, min_seq, retention_ms FROM conversations WHERE retain_at <= now_
             ORDER BY retain_at LIMIT p_convs FOR NO KEY UPDATE SKIP LOCKED
    LOOP
        age := c.retention_ms * interval '1 millisecond';
        SELECT coalesce(min(seq) FILTER (WHERE created_at > now_ - age), max(seq) + 1, c.min_seq) INTO cut
        FROM (SELECT seq, created_at FROM events WHERE conv_id = c.conv_id AND seq >= c.min_seq
              ORDER BY seq LIMIT p_limit - o_events) e;
        IF cut > c.min_seq THEN
            WITH gone AS (
                DELETE FROM events WHERE conv_id = c.conv_id AND seq >= c.min_seq AND seq < cut
                RETURNING sender_user, coalesce(client_msg_id, client_msg_uuid::text) AS client_msg_id
            )
            INSERT INTO idem_tombstones (conv_id, sender_user, client_msg_id, expires_at)
            SELECT c.conv_id, sender_user, client_msg_id, now_ + p_keep FROM gone WHERE client_msg_id IS NOT NULL;
            o_raised := o_raised + 1;
            o_events := o_events + cut - c.min_seq;
        END IF;
        UPDATE conversations
        SET min_seq = cut,
            retain_at = age + coalesce((SELECT created_at FROM events WHERE conv_id = c.conv_id AND seq >= cut
                                        ORDER BY seq LIMIT 1), now_)
        WHERE conv_id = c.conv_id;
        o_looked := o_looked + 1;
        EXIT WHEN o_events >= p_limit;
    END LOOP;
END $$;

DROP FUNCTION im_request_key(text, text);

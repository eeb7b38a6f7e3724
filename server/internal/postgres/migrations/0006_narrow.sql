-- Fewer bytes of WAL for a message and an acknowledgement. Measured for bodies of 200 B and cmids of 36, in batches of
-- five over the conversations of the baseline (BenchmarkWAL takes such bytes apart):
--
--                                     before   after
-- the event                              423     391   no request_hash
-- its request key, with page splits      170     119   a digest of 16 bytes in the place of user and cmid
-- its primary key, with page splits      160     160
-- the conversation's lock                 54      54
-- the conversation's new version          87      87
-- its page made free of old versions      58      58
-- the commit                               7       7
--
-- and for a cursor: 207 before, 135 after (54 for a lock that an update does not need, 8 for updated_at, which nobody
-- read, and 10 for its place in the row).

-- im_request_key finds a request's key in the index. It is only a place to look: whoever finds a row there compares the
-- key itself. All that it calls is immutable, so that it is expanded where it stands and costs about a microsecond.
CREATE FUNCTION im_request_key(p_user text, p_cmid text) RETURNS uuid LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
SELECT encode(substring(sha256(decode(replace(p_user || '/' || p_cmid, '\', '\\'), 'escape')) FROM 1 FOR 16), 'hex')::uuid
$$;

DROP INDEX events_request;
CREATE UNIQUE INDEX events_request ON events (conv_id, im_request_key(sender_user, client_msg_id))
WHERE client_msg_id IS NOT NULL;

ALTER TABLE device_cursors DROP COLUMN updated_at;
ALTER TABLE read_positions DROP COLUMN updated_at;

-- im_send_batch as before, but that a message's row has no request_hash: the request is there. (Rows from before have
-- one, and a recalled message gets one when its body goes.) The key is computed in a subquery with OFFSET 0, so that it
-- is a column to the look-up: with the expression in its place a plan made while the table was empty would take the
-- primary key and read the whole conversation.
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
                       WHERE t.conv_id = r.conv AND t.sender_user = r.usr AND t.client_msg_id = r.cmid) AS tomb,
               EXISTS (SELECT 1 FROM membership_periods m
                       WHERE m.conv_id = r.conv AND m.user_id = r.usr AND m.to_seq IS NULL) AS mem,
               first_value(r.ord) OVER k AS lead, first_value(r.hash) OVER k AS lhash
        FROM (SELECT u.*, im_request_key(u.usr, u.cmid) AS key
              FROM unnest(p_conv, p_user, p_dev, p_cmid, p_hash, p_mid, p_body)
                   WITH ORDINALITY AS u (conv, usr, dev, cmid, hash, mid, body, ord) OFFSET 0) r
        LEFT JOIN LATERAL (SELECT x.next_seq, x.msg_count, x.epoch FROM conversations x
                           WHERE x.conv_id = r.conv OFFSET 0) c ON true
        LEFT JOIN LATERAL (SELECT x.seq, x.msg_no, x.message_id, x.created_at,
                                  coalesce(x.request_hash, CASE WHEN x.body = r.body THEN r.hash END) AS hash
                           FROM events x
                           WHERE x.conv_id = r.conv AND im_request_key(x.sender_user, x.client_msg_id) = r.key
                             AND x.sender_user = r.usr AND x.client_msg_id = r.cmid
                           OFFSET 0) e ON true
        WINDOW k AS (PARTITION BY r.conv, r.usr, r.cmid ORDER BY r.ord)
    ), fresh AS MATERIALIZED (
        SELECT q.*, q.nx - 1 + row_number() OVER w AS nseq, q.mc + row_number() OVER w AS nmno
        FROM req q
        WHERE q.mine AND q.eseq IS NULL AND NOT q.tomb AND q.mem AND q.lead = q.ord
        WINDOW w AS (PARTITION BY q.conv ORDER BY q.ord)
    ), ins AS (
        INSERT INTO events (conv_id, seq, kind, message_id, sender_user, sender_device, client_msg_id, body,
                            msg_no, created_at)
        SELECT f.conv, f.nseq, 'msg', f.mid, f.usr, f.dev, f.cmid, f.body, f.nmno, now_
        FROM fresh f ORDER BY f.conv, f.nseq
    ), upd AS (
        UPDATE conversations c SET next_seq = h.s + 1, msg_count = h.m
        FROM (SELECT f.conv, max(f.nseq) AS s, max(f.nmno) AS m FROM fresh f GROUP BY f.conv) h
        WHERE c.conv_id = h.conv
    ), own AS (
        -- That the sender has read up to here, if it is not near enough to what is noted already.
        INSERT INTO read_positions AS p (conv_id, user_id, epoch, read_seq, own_seq)
        SELECT o.conv, o.usr, o.ep, 0, o.last
        FROM (SELECT f.conv, f.usr, f.ep, max(f.nseq) AS last FROM fresh f GROUP BY f.conv, f.usr, f.ep) o
        WHERE o.last > 64 + coalesce((SELECT x.own_seq FROM read_positions x
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

-- im_recall as before, and it leaves the hash of the message's request in the place of its body.
CREATE OR REPLACE FUNCTION im_recall(p_conv text, p_user text, p_dev text, p_cmid text, p_hash bytea, p_target bigint,
                          OUT o_seq bigint, OUT o_msg_no bigint, OUT o_dup boolean, OUT o_epoch integer,
                          OUT o_at timestamptz, OUT o_code text)
LANGUAGE plpgsql AS $$
DECLARE
    c conversations%ROWTYPE;
    t events%ROWTYPE;
    e events%ROWTYPE;
    hash bytea;
    key uuid := im_request_key(p_user, p_cmid);
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
    SELECT * INTO e FROM events WHERE conv_id = p_conv AND im_request_key(sender_user, client_msg_id) = key
        AND sender_user = p_user AND client_msg_id = p_cmid;
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

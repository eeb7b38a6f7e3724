-- im_send_batch appends messages to any number of conversations in one transaction. Call it as a statement of its own
-- in READ COMMITTED (autocommit): under REPEATABLE READ the checks would read the snapshot from before the lock.
--
-- p_wait = false: the shared batch. Conversations whose row is locked elsewhere answer BUSY and nothing of theirs is
--                 written; the caller moves those requests to its contended lane.
-- p_wait = true:  the contended lane. Waits, at most lock_timeout (then 55P03 fails the call and nothing is written).
--                 Pass one conversation: a call that waits for the second while it holds the first spreads the stall.
--
-- The arrays have one length. Equal keys in one call need no merging: the first in order decides, the others are dup
-- (or mismatch). Result: a row for each request, in any order, o_ord is its 1-based place. o_code NULL = committed with
-- this transaction (or dup); with any other code o_seq, o_mid, o_at and o_dup say nothing.
--
-- Names are unqualified on purpose: they resolve by the connection's search_path, as all other statements do.
CREATE FUNCTION im_send_batch(p_conv text[], p_user text[], p_dev text[], p_cmid text[], p_hash bytea[], p_mid uuid[],
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
               e.seq AS eseq, e.msg_no AS emno, e.message_id AS emid, e.request_hash AS ehash, e.created_at AS eat,
               EXISTS (SELECT 1 FROM idem_tombstones t
                       WHERE t.conv_id = r.conv AND t.sender_user = r.usr AND t.client_msg_id = r.cmid) AS tomb,
               EXISTS (SELECT 1 FROM membership_periods m
                       WHERE m.conv_id = r.conv AND m.user_id = r.usr AND m.to_seq IS NULL) AS mem,
               first_value(r.ord) OVER k AS lead, first_value(r.hash) OVER k AS lhash
        FROM unnest(p_conv, p_user, p_dev, p_cmid, p_hash, p_mid, p_body)
             WITH ORDINALITY AS r (conv, usr, dev, cmid, hash, mid, body, ord)
        LEFT JOIN LATERAL (SELECT x.next_seq, x.msg_count, x.epoch FROM conversations x
                           WHERE x.conv_id = r.conv OFFSET 0) c ON true
        LEFT JOIN LATERAL (SELECT x.seq, x.msg_no, x.message_id, x.request_hash, x.created_at FROM events x
                           WHERE x.conv_id = r.conv AND x.sender_user = r.usr AND x.client_msg_id = r.cmid
                           OFFSET 0) e ON true
        WINDOW k AS (PARTITION BY r.conv, r.usr, r.cmid ORDER BY r.ord)
    ), fresh AS MATERIALIZED (
        SELECT q.*, q.nx - 1 + row_number() OVER w AS nseq, q.mc + row_number() OVER w AS nmno
        FROM req q
        WHERE q.mine AND q.eseq IS NULL AND NOT q.tomb AND q.mem AND q.lead = q.ord
        WINDOW w AS (PARTITION BY q.conv ORDER BY q.ord)
    ), ins AS (
        INSERT INTO events (conv_id, seq, kind, message_id, sender_user, sender_device, client_msg_id, request_hash,
                            body, msg_no, created_at)
        SELECT f.conv, f.nseq, 'msg', f.mid, f.usr, f.dev, f.cmid, f.hash, f.body, f.nmno, now_
        FROM fresh f ORDER BY f.conv, f.nseq
    ), upd AS (
        UPDATE conversations c SET next_seq = h.s + 1, msg_count = h.m
        FROM (SELECT f.conv, max(f.nseq) AS s, max(f.nmno) AS m FROM fresh f GROUP BY f.conv) h
        WHERE c.conv_id = h.conv
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

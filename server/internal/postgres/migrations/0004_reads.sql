-- What users have read, and the functions that say so.
--
-- epoch is the one in which read_seq was reported: a report never moves a position back within an epoch, and replaces
-- one of an older epoch, which holds until then (a restore brought it back together with the log).
--
-- Having sent a message implies having read up to it, at once. own_seq notes that coarsely: it is 0 or the seq of a
-- message of this user's, and none of theirs is later than own_seq + 64. The last one is so found among at most 64 rows
-- of the log, and among none if the position is later than those. im_send_batch keeps this true; whoever fills a
-- database in another way has to run the INSERT below. The number 64 stands here, in im_send_batch, in im_reader
-- and in the query for receipts.
--
-- Why: lists are read rarely, messages sent all the time. Measured for bodies of 200 B, 40 % of them to groups of 30 and
-- the others to pairs, while nobody reports reads (BenchmarkOwn): a message that writes nothing of this costs 882 B of
-- WAL; with a row of read_positions for each message 172 B more, with an index on (conv_id, sender_user, seq) 132 B more
-- and the index, with this 33 B more and 0.14 rows. (Within 16 seqs: 72 B; within 256: 12 B, and four times as many rows
-- of the log to read.) With none of them, the last own message would have to be looked for in all that is unread.
ALTER TABLE read_positions
    ADD COLUMN epoch   integer NOT NULL DEFAULT 1,
    ADD COLUMN own_seq bigint  NOT NULL DEFAULT 0;

INSERT INTO read_positions AS p (conv_id, user_id, epoch, read_seq, own_seq)
SELECT e.conv_id, e.sender_user, c.epoch, 0, max(e.seq)
FROM events e JOIN conversations c USING (conv_id)
WHERE e.kind = 'msg' GROUP BY e.conv_id, e.sender_user, c.epoch HAVING max(e.seq) > 64
ON CONFLICT (conv_id, user_id) DO UPDATE SET own_seq = EXCLUDED.own_seq;

-- im_reader is a conversation as one of its present or past members sees it: no row for anybody else. head is the last
-- seq that the user may see, read_seq the position, reported the one that a report has to exceed (-1: any report of this
-- epoch replaces it). It is a single SELECT, so that the planner puts it in the place of each call.
--
-- unread is, over the user's periods, a subtraction of msg_no from just before the first event behind the position to
-- the period's end, less the recalled among them (as many index entries as there are). The event at lo + 1 is always
-- there: it lies in the period, and not below min_seq. OFFSET 0 keeps each look-up one of a key.
CREATE FUNCTION im_reader(p_conv text, p_user text)
RETURNS TABLE (kind text, delivery_mode text, min_seq bigint, epoch integer, head bigint, read_seq bigint,
               reported bigint, unread bigint)
LANGUAGE sql STABLE AS $$
SELECT c.kind, c.delivery_mode, c.min_seq, c.epoch, m.head, r.seq,
       CASE WHEN p.epoch < c.epoch THEN -1 ELSE r.seq END,
       (SELECT coalesce(sum(coalesce(z.msg_no, c.msg_count) - a.msg_no - w.recalled), 0)::bigint
        FROM membership_periods d
        CROSS JOIN LATERAL (SELECT GREATEST(r.seq, d.from_seq - 1, c.min_seq - 1) AS lo,
                                   coalesce(d.to_seq, c.next_seq - 1) AS hi) i
        CROSS JOIN LATERAL (SELECT x.msg_no - (x.kind = 'msg')::int AS msg_no FROM events x
                            WHERE x.conv_id = c.conv_id AND x.seq = i.lo + 1 OFFSET 0) a
        LEFT JOIN LATERAL (SELECT x.msg_no FROM events x
                           WHERE x.conv_id = c.conv_id AND x.seq = d.to_seq OFFSET 0) z ON true
        CROSS JOIN LATERAL (SELECT count(*) AS recalled FROM events x
                            WHERE x.conv_id = c.conv_id AND x.target_seq > i.lo AND x.target_seq <= i.hi) w
        WHERE d.conv_id = c.conv_id AND d.user_id = p_user AND i.hi > i.lo)
FROM conversations c
CROSS JOIN LATERAL (
    SELECT CASE WHEN bool_or(x.to_seq IS NULL) THEN c.next_seq - 1 ELSE max(x.to_seq) END AS head
    FROM membership_periods x WHERE x.conv_id = c.conv_id AND x.user_id = p_user) m
LEFT JOIN read_positions p ON p.conv_id = c.conv_id AND p.user_id = p_user
CROSS JOIN LATERAL (SELECT GREATEST(p.read_seq, p.own_seq, c.min_seq - 1) AS seq) k
CROSS JOIN LATERAL (
    SELECT LEAST(m.head, GREATEST(k.seq, max(x.seq))) AS seq
    FROM (SELECT y.seq, y.kind, y.sender_user FROM events y
          WHERE y.conv_id = c.conv_id AND y.seq > k.seq AND y.seq <= coalesce(p.own_seq, 0) + 64 OFFSET 0) x
    WHERE x.sender_user = p_user AND x.kind = 'msg') r
WHERE c.conv_id = p_conv AND m.head IS NOT NULL
$$;

-- im_send_batch as before, and it keeps read_positions.own_seq.
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

-- im_direct gives the direct conversation of two users, or makes it under the id p_conv: however many ask at once, the
-- pair's row lets one of them make it, and the others wait for its commit and then read it. Both users have to be there
-- and of one namespace, which the conversation takes over; their rows are held meanwhile, so that the removal of a
-- population either sees the conversation or has removed a user. Code as on the wire, NULL = done.
CREATE FUNCTION im_direct(p_user text, p_peer text, p_conv text, OUT o_conv text, OUT o_created boolean, OUT o_code text)
LANGUAGE plpgsql AS $$
DECLARE
    low  text COLLATE "C" := LEAST(p_user COLLATE "C", p_peer COLLATE "C");
    high text COLLATE "C" := GREATEST(p_user COLLATE "C", p_peer COLLATE "C");
    spaces text[];
    now_ timestamptz;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'im_direct needs READ COMMITTED' USING ERRCODE = '25001';
    END IF;
    o_created := false;
    SELECT conv_id INTO o_conv FROM direct_pairs WHERE user_low = low AND user_high = high;
    IF FOUND THEN
        RETURN;
    END IF;
    SELECT array_agg(coalesce(u.namespace, '')) INTO spaces
    FROM (SELECT namespace FROM users WHERE user_id IN (low, high) ORDER BY user_id FOR KEY SHARE) u;
    IF coalesce(cardinality(spaces), 0) <> 2 OR spaces[1] <> spaces[2] THEN
        o_code := 'NOT_MEMBER';
        RETURN;
    END IF;
    INSERT INTO direct_pairs (user_low, user_high, conv_id) VALUES (low, high, p_conv) ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        SELECT conv_id INTO STRICT o_conv FROM direct_pairs WHERE user_low = low AND user_high = high;
        RETURN;
    END IF;
    o_conv := p_conv;
    o_created := true;
    now_ := clock_timestamp();
    INSERT INTO conversations (conv_id, kind, delivery_mode, next_seq, namespace)
    VALUES (p_conv, 'direct', 'push', 3, nullif(spaces[1], ''));
    INSERT INTO membership_periods (conv_id, user_id, from_seq) VALUES (p_conv, p_user, 1), (p_conv, p_peer, 2);
    INSERT INTO user_conversations (user_id, conv_id) VALUES (p_user, p_conv), (p_peer, p_conv);
    INSERT INTO events (conv_id, seq, kind, sender_user, subject_user, msg_no, created_at)
    VALUES (p_conv, 1, 'join', p_user, p_user, 0, now_), (p_conv, 2, 'join', p_user, p_peer, 0, now_);
END $$;

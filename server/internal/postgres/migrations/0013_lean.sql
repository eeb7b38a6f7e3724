-- Less CPU for a message. The functions that send are as before, but for what they are given and how often they look:
--
--   - The digest of a request's key and the key as a UUID come from the store, which makes them in a hundredth of the time.
--     (A wrong digest could not write a second message: the index makes its own.)
--   - Requests of one batch with the same key are merged by the store, so each request here is its only one.
--   - The counters come from the statement that locks. A lock that had to follow an update returns the newest row, and
--     nobody else can change it afterwards. All else is read by the second statement, whose newer snapshot sees every
--     commit of whoever held the locks before.
--   - One window numbers the messages where two windows, a join and a second copy of the requests did.
DROP FUNCTION im_send_batch(text[], text[], text[], text[], bytea[], uuid[], text[], boolean);
DROP FUNCTION im_send_one(text, text, text, text, bytea, uuid, text, boolean);

CREATE FUNCTION im_send_batch(p_conv text[], p_user text[], p_dev text[], p_cmid text[], p_key bytea[], p_bits uuid[],
                              p_hash bytea[], p_body text[], p_wait boolean)
RETURNS TABLE (o_ord bigint, o_seq bigint, o_msg_no bigint, o_mid uuid, o_dup boolean, o_epoch integer, o_at timestamptz,
               o_code text)
LANGUAGE plpgsql AS $$
DECLARE
    held text[];
    heads bigint[];
    counts bigint[];
    epochs integer[];
    now_ timestamptz;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'im_send_batch needs READ COMMITTED' USING ERRCODE = '25001';
    END IF;

    -- The locks, in key order.
    IF p_wait THEN
        SELECT array_agg(l.conv_id), array_agg(l.next_seq), array_agg(l.msg_count), array_agg(l.epoch)
        INTO held, heads, counts, epochs
        FROM (SELECT c.conv_id, c.next_seq, c.msg_count, c.epoch FROM conversations c WHERE c.conv_id = ANY (p_conv)
              ORDER BY c.conv_id FOR NO KEY UPDATE) l;
    ELSE
        SELECT array_agg(l.conv_id), array_agg(l.next_seq), array_agg(l.msg_count), array_agg(l.epoch)
        INTO held, heads, counts, epochs
        FROM (SELECT c.conv_id, c.next_seq, c.msg_count, c.epoch FROM conversations c WHERE c.conv_id = ANY (p_conv)
              ORDER BY c.conv_id FOR NO KEY UPDATE SKIP LOCKED) l;
    END IF;
    -- Under the locks, so that within a conversation times rise with seq.
    now_ := clock_timestamp();

    RETURN QUERY
    WITH req AS MATERIALIZED (
        SELECT q.*, heads[q.at] - 1 + count(*) FILTER (WHERE q.fresh) OVER w AS nseq,
               counts[q.at] + count(*) FILTER (WHERE q.fresh) OVER w AS nmno
        FROM (SELECT a.*, a.at IS NOT NULL AND a.eseq IS NULL AND NOT a.tomb AND a.mem AS fresh
              FROM (SELECT r.*, e.seq AS eseq, e.msg_no AS emno, e.message_id AS emid, e.hash AS ehash, e.created_at AS eat,
                           EXISTS (SELECT 1 FROM idem_tombstones t
                                   WHERE t.conv_id = r.conv AND t.sender_user = r.usr AND t.client_msg_id = r.cmid OFFSET 0) AS tomb,
                           EXISTS (SELECT 1 FROM membership_periods m
                                   WHERE m.conv_id = r.conv AND m.user_id = r.usr AND m.to_seq IS NULL OFFSET 0) AS mem
                    FROM (SELECT u.*, array_position(held, u.conv) AS at
                          FROM unnest(p_conv, p_user, p_dev, p_cmid, p_key, p_bits, p_hash, p_body)
                               WITH ORDINALITY AS u (conv, usr, dev, cmid, key, bits, hash, body, ord) OFFSET 0) r
                    LEFT JOIN LATERAL (SELECT x.seq, x.msg_no, x.message_id, x.created_at,
                                              coalesce(x.request_hash, CASE WHEN x.body = r.body THEN r.hash END) AS hash
                                       FROM events x
                                       WHERE x.conv_id = r.conv AND im_request_digest(x.sender_user, coalesce(x.client_msg_id, x.client_msg_uuid::text)) = r.key
                                         AND x.sender_user = r.usr AND coalesce(x.client_msg_id, x.client_msg_uuid::text) = r.cmid
                                       OFFSET 0) e ON true
                    OFFSET 0) a
              OFFSET 0) q
        WINDOW w AS (PARTITION BY q.conv ORDER BY q.ord ROWS UNBOUNDED PRECEDING)
    ), ins AS (
        INSERT INTO events (conv_id, seq, kind, sender_user, sender_device, client_msg_id, client_msg_uuid, body, msg_no, created_at)
        SELECT q.conv, q.nseq, 'msg', q.usr, q.dev, CASE WHEN q.bits IS NULL THEN q.cmid END, q.bits, q.body, q.nmno, now_
        FROM req q WHERE q.fresh
    ), upd AS (
        UPDATE conversations c SET next_seq = h.s + 1, msg_count = h.m, room = NULL
        FROM (SELECT q.conv, max(q.nseq) AS s, max(q.nmno) AS m FROM req q WHERE q.fresh GROUP BY q.conv) h
        WHERE c.conv_id = h.conv
    ), own AS (
        -- That the sender has read up to here, if it is not near enough to what is noted already.
        INSERT INTO read_positions AS p (conv_id, user_id, epoch, read_seq, own_seq)
        SELECT o.conv, o.usr, o.ep, 0, o.last
        FROM (SELECT q.conv, q.usr, epochs[q.at] AS ep, max(q.nseq) AS last FROM req q WHERE q.fresh
              GROUP BY q.conv, q.usr, q.at) o
        WHERE o.last > 64 AND o.last > 64 + coalesce((SELECT x.own_seq FROM read_positions x
                                      WHERE x.conv_id = o.conv AND x.user_id = o.usr), 0)
        ORDER BY o.conv, o.usr
        ON CONFLICT (conv_id, user_id) DO UPDATE SET own_seq = EXCLUDED.own_seq
    )
    SELECT q.ord, CASE WHEN q.fresh THEN q.nseq ELSE q.eseq END, CASE WHEN q.fresh THEN q.nmno ELSE q.emno END, q.emid,
           q.eseq IS NOT NULL, epochs[q.at], coalesce(q.eat, now_),
           CASE WHEN q.fresh THEN NULL
                WHEN q.at IS NULL THEN                        -- before any other answer: unlocked reads decide nothing
                    CASE WHEN EXISTS (SELECT 1 FROM conversations x WHERE x.conv_id = q.conv) THEN 'BUSY'
                         ELSE 'NOT_MEMBER' END                -- no such conversation: says no more than that
                WHEN q.eseq IS NOT NULL THEN
                    CASE WHEN q.ehash IS DISTINCT FROM q.hash THEN 'IDEMPOTENCY_MISMATCH' END
                WHEN q.tomb THEN 'EXPIRED'
                WHEN NOT q.mem THEN 'NOT_MEMBER' END
    FROM req q;
END $$;

CREATE FUNCTION im_send_one(p_conv text, p_user text, p_dev text, p_cmid text, p_key bytea, p_bits uuid, p_hash bytea, p_body text,
    p_wait boolean, OUT o_ord bigint, OUT o_seq bigint, OUT o_msg_no bigint, OUT o_mid uuid, OUT o_dup boolean,
    OUT o_epoch integer, OUT o_at timestamptz, OUT o_code text)
LANGUAGE plpgsql AS $$
DECLARE
    head bigint;
    messages bigint;
    own bigint;
    tomb boolean;
    mem boolean;
    had bytea;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'im_send_one needs READ COMMITTED' USING ERRCODE = '25001';
    END IF;
    o_ord := 1;
    o_dup := false;
    o_at := clock_timestamp();
    -- As in im_send_batch: the counters from here, all else from later statements.
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
    WHERE x.conv_id = p_conv AND im_request_digest(x.sender_user, coalesce(x.client_msg_id, x.client_msg_uuid::text)) = p_key
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
    o_seq := head; o_msg_no := messages;
    INSERT INTO events (conv_id, seq, kind, sender_user, sender_device, client_msg_id, client_msg_uuid, body, msg_no, created_at)
    VALUES (p_conv, head, 'msg', p_user, p_dev, CASE WHEN p_bits IS NULL THEN p_cmid END, p_bits, p_body, messages, o_at);
    UPDATE conversations SET room = NULL, next_seq = head + 1, msg_count = messages WHERE conv_id = p_conv;
    IF head > 64 + coalesce(own, 0) THEN
        INSERT INTO read_positions AS p (conv_id, user_id, epoch, read_seq, own_seq)
        VALUES (p_conv, p_user, o_epoch, 0, head)
        ON CONFLICT (conv_id, user_id) DO UPDATE SET own_seq = EXCLUDED.own_seq;
    END IF;
END $$;

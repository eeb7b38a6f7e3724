-- im_send_one is im_send_batch for a batch of one, which is what a gateway with little to do commits: the same checks in the
-- same order and the same columns, in half of the CPU, because the executor starts four small plans in the place of a
-- large one (BenchmarkSendOne compares the two). From two messages on the batch is as cheap, from five on it is cheaper.
CREATE FUNCTION im_send_one(p_conv text, p_user text, p_dev text, p_cmid text, p_hash bytea, p_mid uuid, p_body text, p_wait boolean,
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
    key_ uuid := im_request_key(p_user, p_cmid); -- a value to the look-up, not an expression: see 0006
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
    WHERE x.conv_id = p_conv AND im_request_key(x.sender_user, x.client_msg_id) = key_
      AND x.sender_user = p_user AND x.client_msg_id = p_cmid;
    o_dup := FOUND;
    IF o_dup THEN
        IF had IS DISTINCT FROM p_hash THEN o_code := 'IDEMPOTENCY_MISMATCH'; END IF;
        RETURN;
    END IF;
    SELECT EXISTS (SELECT 1 FROM idem_tombstones t
                   WHERE t.conv_id = p_conv AND t.sender_user = p_user AND t.client_msg_id = p_cmid),
           EXISTS (SELECT 1 FROM membership_periods m WHERE m.conv_id = p_conv AND m.user_id = p_user AND m.to_seq IS NULL),
           (SELECT x.own_seq FROM read_positions x WHERE x.conv_id = p_conv AND x.user_id = p_user)
    INTO tomb, mem, own;
    o_at := clock_timestamp(); -- under the lock, so that within a conversation times rise with seq
    IF tomb OR NOT mem THEN
        o_code := CASE WHEN tomb THEN 'EXPIRED' ELSE 'NOT_MEMBER' END;
        RETURN;
    END IF;
    o_seq := head; o_msg_no := messages; o_mid := p_mid;
    INSERT INTO events (conv_id, seq, kind, message_id, sender_user, sender_device, client_msg_id, body, msg_no, created_at)
    VALUES (p_conv, head, 'msg', p_mid, p_user, p_dev, p_cmid, p_body, messages, o_at);
    UPDATE conversations SET next_seq = head + 1, msg_count = messages WHERE conv_id = p_conv;
    IF head > 64 + coalesce(own, 0) THEN
        INSERT INTO read_positions AS p (conv_id, user_id, epoch, read_seq, own_seq)
        VALUES (p_conv, p_user, o_epoch, 0, head)
        ON CONFLICT (conv_id, user_id) DO UPDATE SET own_seq = EXCLUDED.own_seq;
    END IF;
END $$;

-- im_membership appends a join or leave event under the conversation's row lock, in one round trip so that the lock is
-- held for no network time. The caller must be a member; direct conversations keep their two members. A user of another
-- namespace does not exist here, so that a population can be removed exactly. Codes as on the wire, NULL = done.
CREATE FUNCTION im_membership(p_conv text, p_caller text, p_user text, p_join boolean, p_limit integer,
                              OUT o_seq bigint, OUT o_code text)
LANGUAGE plpgsql AS $$
DECLARE
    c conversations%ROWTYPE;
    member boolean;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'im_membership needs READ COMMITTED' USING ERRCODE = '25001';
    END IF;
    SELECT * INTO c FROM conversations WHERE conv_id = p_conv FOR NO KEY UPDATE;
    IF NOT FOUND OR NOT EXISTS (SELECT 1 FROM membership_periods
                                WHERE conv_id = p_conv AND user_id = p_caller AND to_seq IS NULL) THEN
        o_code := 'NOT_MEMBER';
        RETURN;
    END IF;
    IF c.kind = 'direct' THEN
        o_code := 'BAD_REQUEST';
        RETURN;
    END IF;
    member := EXISTS (SELECT 1 FROM membership_periods WHERE conv_id = p_conv AND user_id = p_user AND to_seq IS NULL);
    o_code := CASE
        WHEN p_join AND member THEN 'ALREADY_MEMBER'
        WHEN NOT p_join AND NOT member THEN 'NOT_MEMBER'
        WHEN p_join AND NOT EXISTS (SELECT 1 FROM users WHERE user_id = p_user
                                    AND namespace IS NOT DISTINCT FROM c.namespace) THEN 'NOT_MEMBER'
        WHEN p_join AND p_limit <= (SELECT count(*) FROM membership_periods
                                    WHERE conv_id = p_conv AND to_seq IS NULL) THEN 'GROUP_FULL'
    END;
    IF o_code IS NOT NULL THEN
        RETURN;
    END IF;

    o_seq := c.next_seq;
    IF p_join THEN
        INSERT INTO membership_periods (conv_id, user_id, from_seq) VALUES (p_conv, p_user, o_seq);
        INSERT INTO user_conversations (user_id, conv_id) VALUES (p_user, p_conv) ON CONFLICT DO NOTHING;
    ELSE
        UPDATE membership_periods SET to_seq = o_seq WHERE conv_id = p_conv AND user_id = p_user AND to_seq IS NULL;
    END IF;
    INSERT INTO events (conv_id, seq, kind, sender_user, subject_user, msg_no, created_at)
    VALUES (p_conv, o_seq, CASE WHEN p_join THEN 'join' ELSE 'leave' END, p_caller, p_user, c.msg_count, clock_timestamp());
    UPDATE conversations SET next_seq = o_seq + 1 WHERE conv_id = p_conv;
END $$;

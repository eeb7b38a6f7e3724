-- Recall, retention, and what a restored or rebuilt log needs.

-- retain_at: retention has nothing to do for the conversation before this time. It is the time at which its oldest event
-- becomes due, or an earlier one; so a round of retention finds in the index what is due and looks at nothing else, however
-- many conversations there are. A send need not touch it (whatever is appended becomes due later than what is there, and
-- an empty log's retain_at is one retention_ms after it was emptied), so sends keep their HOT updates. Whoever sets
-- retention_ms sets retain_at with it.
ALTER TABLE conversations ADD COLUMN retain_at timestamptz;
UPDATE conversations SET retain_at = clock_timestamp() WHERE retention_ms IS NOT NULL;
ALTER TABLE conversations ADD CONSTRAINT conversations_retain CHECK ((retention_ms IS NULL) = (retain_at IS NULL));
CREATE INDEX conversations_retain_at ON conversations (retain_at) WHERE retain_at IS NOT NULL;

-- Tombstones are inserted in about the order in which they expire: this index grows at its right end.
CREATE INDEX idem_tombstones_expires ON idem_tombstones (expires_at);

-- Which gateway does a periodic job, and for how long no other one begins it.
CREATE TABLE turns (
    job    text PRIMARY KEY,
    holder text        NOT NULL,
    until  timestamptz NOT NULL
);

-- How far a run over all conversations has come that raises their epochs; a row only while there is such a run.
-- server_start is the start of the server on which it began: on a server restored since, the run begins anew, because
-- what had been raised before is not what has to be raised now.
CREATE TABLE epoch_run (
    one          boolean PRIMARY KEY DEFAULT true CHECK (one),
    server_start timestamptz NOT NULL,
    last_conv    text COLLATE "C" NOT NULL DEFAULT '',
    done         bigint NOT NULL DEFAULT 0
);

-- im_recall appends a recall event under the conversation's row lock and removes the recalled body, in one round trip so
-- that the lock is held for no network time. The body is removed from its row: no path can serve it any more, and a
-- message without a body is a recalled one. The message's request_hash stays, so that a resend of it remains a dup.
-- p_hash tells this recall from another request with the same key. With o_code NULL the recall is committed with this
-- transaction, or (o_dup) had been: by the same key, or by another one for the same message.
CREATE FUNCTION im_recall(p_conv text, p_user text, p_dev text, p_cmid text, p_hash bytea, p_target bigint,
                          OUT o_seq bigint, OUT o_msg_no bigint, OUT o_dup boolean, OUT o_epoch integer,
                          OUT o_at timestamptz, OUT o_code text)
LANGUAGE plpgsql AS $$
DECLARE
    c conversations%ROWTYPE;
    t events%ROWTYPE;
    e events%ROWTYPE;
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
    SELECT * INTO e FROM events WHERE conv_id = p_conv AND sender_user = p_user AND client_msg_id = p_cmid;
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
    UPDATE events SET body = NULL WHERE conv_id = p_conv AND seq = p_target;
    UPDATE conversations SET next_seq = o_seq + 1 WHERE conv_id = p_conv;
END $$;

-- im_retain removes events that are older than their conversation's retention_ms: at most p_limit, from at most p_convs
-- conversations, those first that have been due for longest. What it removes of a log is its beginning: from min_seq on,
-- up to the first event that is young enough (so it is right even if the clock went back between two events), and min_seq
-- follows; next_seq stays, also when nothing is left. Their request keys become tombstones for p_keep. Conversations
-- that are locked elsewhere are left for another call: it waits for nobody.
CREATE FUNCTION im_retain(p_limit bigint, p_convs integer, p_keep interval,
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
                RETURNING sender_user, client_msg_id
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

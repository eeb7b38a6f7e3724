-- The schema's tables. Ids are COLLATE "C": comparisons are byte comparisons, and the order is the one that Go's
-- strings have, so that both sides agree on "sorted by conversation".
--
-- There are no foreign keys. On the hot path (events, device_cursors, routes) each inserted row would take a KEY SHARE
-- lock on its conversation or device: one more lookup a row, and a multixact on a row that every send of the
-- conversation updates. What they would guarantee holds by construction: events and periods are written only under the
-- conversation's row lock, and removal takes that lock first. The other tables follow the same rule so that the schema
-- can be distributed by conversation as it stands.
--
-- Keys start with the conversation. The exceptions are users, devices, routes and gateways (no conversation),
-- direct_pairs (found by the two users) and user_conversations (the inbox, found by user).

CREATE TABLE populations (
    namespace   text COLLATE "C" PRIMARY KEY,
    owner       text        NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    lease_until timestamptz NOT NULL
);

CREATE TABLE users (
    user_id    text COLLATE "C" PRIMARY KEY,
    namespace  text COLLATE "C",
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX users_namespace ON users (namespace, user_id) WHERE namespace IS NOT NULL;

-- route_generation never goes back, not even when the route's row is deleted: an old release can therefore never hit a
-- newer route (G2).
CREATE TABLE devices (
    device_id        text COLLATE "C" PRIMARY KEY,
    user_id          text COLLATE "C" NOT NULL,
    install_epoch    integer NOT NULL DEFAULT 1,
    route_generation bigint  NOT NULL DEFAULT 0
) WITH (fillfactor = 80);
CREATE INDEX devices_user ON devices (user_id);

-- Every send updates its conversation's row; there has to be room for the new version beside the old (HOT), which
-- fillfactor leaves (since 0012 the rows bring it), and no column that a send changes is indexed.
CREATE TABLE conversations (
    conv_id          text COLLATE "C" PRIMARY KEY,
    kind             text    NOT NULL CHECK (kind IN ('direct', 'group')),
    delivery_mode    text    NOT NULL CHECK (delivery_mode IN ('push', 'pull')),
    next_seq         bigint  NOT NULL DEFAULT 1,
    msg_count        bigint  NOT NULL DEFAULT 0,
    room             text,
    min_seq          bigint  NOT NULL DEFAULT 1,
    epoch            integer NOT NULL DEFAULT 1,
    recall_window_ms bigint  NOT NULL DEFAULT 120000,
    retention_ms     bigint,
    namespace        text COLLATE "C",
    created_at       timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 70);
CREATE INDEX conversations_namespace ON conversations (namespace, conv_id) WHERE namespace IS NOT NULL;

-- Both ends belong to the interval: from_seq is the user's own join event, to_seq the own leave event (F3).
CREATE TABLE membership_periods (
    conv_id  text COLLATE "C" NOT NULL,
    user_id  text COLLATE "C" NOT NULL,
    from_seq bigint NOT NULL,
    to_seq   bigint CHECK (to_seq >= from_seq),
    PRIMARY KEY (conv_id, user_id, from_seq)
);
CREATE UNIQUE INDEX membership_open ON membership_periods (conv_id, user_id) WHERE to_seq IS NULL;

-- msg_no counts the conversation's messages up to and with this event, so that unread is a subtraction. request_hash
-- is the SHA-256 of the request, as 32 bytes: half of its hexadecimal text, in a row written for every message.
--
-- The columns are in the order that needs no padding: each of eight bytes begins at a multiple of eight, a long body at
-- one of four, short texts anywhere. With the conversation first a message was 12 to 14 bytes longer. (A log that was made
-- then keeps its order: no statement goes by it.)
CREATE TABLE events (
    seq           bigint NOT NULL,
    msg_no        bigint NOT NULL,
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    target_seq    bigint,
    message_id    uuid,
    body          text,
    conv_id       text COLLATE "C" NOT NULL,
    kind          text   NOT NULL,
    sender_user   text COLLATE "C",
    sender_device text COLLATE "C",
    client_msg_id text COLLATE "C",
    request_hash  bytea,
    subject_user  text COLLATE "C",
    PRIMARY KEY (conv_id, seq)
);
CREATE UNIQUE INDEX events_request ON events (conv_id, sender_user, client_msg_id) WHERE client_msg_id IS NOT NULL;
CREATE UNIQUE INDEX events_recall ON events (conv_id, target_seq) WHERE target_seq IS NOT NULL;
-- For the repair sweep: which conversations were written lately. A few bytes for each 32 pages, nothing per row.
CREATE INDEX events_created ON events USING brin (created_at) WITH (pages_per_range = 32, autosummarize = on);

-- The keys of messages that retention removed: a resend is EXPIRED, not a second message.
CREATE TABLE idem_tombstones (
    conv_id       text COLLATE "C" NOT NULL,
    sender_user   text COLLATE "C" NOT NULL,
    client_msg_id text COLLATE "C" NOT NULL,
    expires_at    timestamptz NOT NULL,
    PRIMARY KEY (conv_id, sender_user, client_msg_id)
);

CREATE TABLE device_cursors (
    conv_id       text COLLATE "C" NOT NULL,
    device_id     text COLLATE "C" NOT NULL,
    install_epoch integer NOT NULL,
    epoch         integer NOT NULL,
    delivered_seq bigint  NOT NULL CHECK (delivered_seq >= 0),
    updated_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (conv_id, device_id)
) WITH (fillfactor = 70);

CREATE TABLE read_positions (
    conv_id    text COLLATE "C" NOT NULL,
    user_id    text COLLATE "C" NOT NULL,
    read_seq   bigint NOT NULL CHECK (read_seq >= 0),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (conv_id, user_id)
) WITH (fillfactor = 70);

-- The inbox: written when someone joins, kept when they leave (they keep their interval, F3).
CREATE TABLE user_conversations (
    user_id text COLLATE "C" NOT NULL,
    conv_id text COLLATE "C" NOT NULL,
    PRIMARY KEY (user_id, conv_id)
);

CREATE TABLE direct_pairs (
    user_low  text COLLATE "C" NOT NULL,
    user_high text COLLATE "C" NOT NULL CHECK (user_low < user_high),
    conv_id   text COLLATE "C" NOT NULL,
    PRIMARY KEY (user_low, user_high)
);

CREATE TABLE gateways (
    gateway_id  text COLLATE "C" PRIMARY KEY,
    lease_until timestamptz NOT NULL
);

CREATE TABLE routes (
    device_id     text COLLATE "C" PRIMARY KEY,
    user_id       text COLLATE "C" NOT NULL,
    gateway_id    text COLLATE "C" NOT NULL,
    prev_gateway  text COLLATE "C" NOT NULL DEFAULT '',
    conn_id       bigint  NOT NULL,
    generation    bigint  NOT NULL,
    install_epoch integer NOT NULL
) WITH (fillfactor = 80);
CREATE INDEX routes_gateway ON routes (gateway_id);

package fill

// Whole tables are written and joined here: what the store's connections are set to for look-ups by key does not hold.
const settingsSQL = `
SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET enable_seqscan = on;
SET jit = off;
SET plan_cache_mode = auto;
SET synchronous_commit = off;
SET work_mem = '256MB';
SET maintenance_work_mem = '512MB'`

const usersSQL = `
INSERT INTO populations (namespace, owner, lease_until) VALUES ('f', 'filled', now() - interval '1 day');
INSERT INTO users (user_id, namespace)
SELECT 'f-u' || to_char(n, 'fm000000'), 'f' FROM generate_series(0, {Users} - 1) n UNION ALL SELECT 'f-many', 'f';
INSERT INTO devices (device_id, user_id)
SELECT user_id || '-d' || k, user_id FROM users, generate_series(1, 2) k WHERE k = 1 OR right(user_id, 1) IN ('0', '2', '4', '5', '7', '8');
ANALYZE users, devices`

// fill has a row for each conversation. Event r of its e events (the joins of its m members not counted) has seq m + r;
// those up to gone were removed by retention. Members say something in turn, but for the last two of a group, who leave
// (k of them say something): events 200, 300 and 400 of a group are leave and return of the last but one, and the leave
// of the last. Every 97th event recalls the one three before it; none of these numbers meet.
const conversationsSQL = `
CREATE TEMP TABLE fill AS
SELECT 'f-hot' AS conv, 0 AS id, 'group' AS kind, {HotMembers} AS m, {HotEvents} AS e, 0 AS gone, 0.5::float8 AS phase,
       ARRAY(SELECT 'f-u' || to_char(k, 'fm000000') FROM generate_series(0, {HotMembers} - 1) k ORDER BY k) AS members
UNION ALL
SELECT 'f-g' || to_char(n, 'fm000000'), 1000000 + n, 'group', {GroupMembers}, {GroupEvents}, CASE WHEN n % 20 = 0 THEN {GroupEvents} / 3 ELSE 0 END,
       n * 7919::bigint % 1000 / 1000::float8,
       ARRAY(SELECT CASE WHEN k = 0 AND n < {ManyGroups} THEN 'f-many'
                         ELSE 'f-u' || to_char((n * {GroupMembers} + k) % {Users}, 'fm000000') END
             FROM generate_series(0, {GroupMembers} - 1) k ORDER BY k)
FROM generate_series(0, {Groups} - 1) n
UNION ALL
SELECT 'f-p' || to_char(n, 'fm000000'), 2000000 + n, 'direct', 2, {PairEvents}, 0, n * 7919::bigint % 1000 / 1000::float8,
       ARRAY[CASE WHEN n < {ManyPairs} THEN 'f-many' ELSE 'f-u' || to_char((n + 1 + n / {Users} * 7) % {Users}, 'fm000000') END,
             'f-u' || to_char(n % {Users}, 'fm000000')]
FROM generate_series(0, {Pairs} - 1) n;
ALTER TABLE fill ADD COLUMN k integer, ADD COLUMN start timestamptz;
UPDATE fill SET k = CASE WHEN kind = 'group' THEN m - 2 ELSE m END, start = now() - interval '{Days} days';
ANALYZE fill;
CREATE TEMP TABLE bodies AS
SELECT n, body, sha256('\x6d736700' || convert_to(body, 'UTF8')) AS hash
FROM generate_series(0, 259) n CROSS JOIN LATERAL (SELECT rpad('A message of ' || n + 20 || ' characters ', n + 20, '.') AS body) b;
ANALYZE bodies;
INSERT INTO conversations (conv_id, kind, delivery_mode, next_seq, msg_count, min_seq, retention_ms, retain_at, namespace, room)
SELECT conv, kind, CASE WHEN conv = 'f-hot' THEN 'pull' ELSE 'push' END, m + e + 1,
       e - e / 97 - CASE WHEN kind = 'group' THEN 3 ELSE 0 END, CASE WHEN gone > 0 THEN m + gone + 1 ELSE 1 END,
       CASE WHEN gone > 0 THEN {Days} * 2 / 3 * 86400000::bigint END,
       CASE WHEN gone > 0 THEN start + (gone + phase) / e * interval '{Days} days' + interval '1 day' * ({Days} * 2 / 3) END, 'f', NULL
FROM fill ORDER BY conv;
INSERT INTO direct_pairs (user_low, user_high, conv_id)
SELECT LEAST(members[1] COLLATE "C", members[2] COLLATE "C"), GREATEST(members[1] COLLATE "C", members[2] COLLATE "C"), conv
FROM fill WHERE kind = 'direct'`

const membersSQL = `
INSERT INTO membership_periods (conv_id, user_id, from_seq, to_seq)
SELECT conv, u, n, CASE WHEN n > k THEN m + 200 * (n - k) END FROM fill, unnest(members) WITH ORDINALITY AS u (u, n)
UNION ALL SELECT conv, members[m - 1], m + 300, NULL FROM fill WHERE kind = 'group' ORDER BY 1;
INSERT INTO user_conversations (user_id, conv_id) SELECT DISTINCT user_id, conv_id FROM membership_periods ORDER BY 1, 2;
ANALYZE membership_periods`

const joinsSQL = `
INSERT INTO events (conv_id, seq, kind, sender_user, subject_user, msg_no, created_at)
SELECT conv, n, 'join', members[1], u, 0, start FROM fill, unnest(members) WITH ORDINALITY AS u (u, n) WHERE gone = 0 ORDER BY 1, 2`

// Rows are as the store writes them: none has a message_id, a message's key is a UUID and held as one, that of a recall is
// text. The hashes are those of postgres.requestHash, which a recalled message has in the place of its body. Only what the
// order needs is sorted, the rest is put to it: wide rows take six times as long.
const eventsSQL = `
INSERT INTO events (conv_id, seq, kind, sender_user, sender_device, client_msg_id, client_msg_uuid, request_hash, body,
                    subject_user, target_seq, msg_no, created_at)
SELECT conv, m + r, x.kind, sender, CASE WHEN x.kind IN ('msg', 'recall') THEN sender || '-d1' END,
       CASE WHEN x.kind = 'recall' THEN key END, CASE WHEN x.kind = 'msg' THEN im_uuid(key) END,
       CASE WHEN x.kind = 'recall' THEN sha256('\x726563616c6c00' || convert_to((m + r - 3)::text, 'UTF8'))
            WHEN x.kind = 'msg' AND x.recalled THEN b.hash END,
       CASE WHEN x.kind = 'msg' AND NOT x.recalled THEN b.body END,
       CASE WHEN x.kind IN ('join', 'leave') THEN members[CASE WHEN r = 400 THEN m ELSE m - 1 END] END,
       CASE WHEN x.kind = 'recall' THEN m + r - 3 END,
       r - r / 97 - CASE WHEN k < m THEN (r >= 200)::int + (r >= 300)::int + (r >= 400)::int ELSE 0 END, at
FROM (SELECT id, r, r * 31 % 260 AS body, start + (r - 1 + phase) / e * interval '{Days} days' AS at
      FROM fill, generate_series(GREATEST(gone, e * {Slice} / {Slices}) + 1, e * ({Slice} + 1) / {Slices}) r ORDER BY at OFFSET 0) t
JOIN fill f USING (id) JOIN bodies b ON b.n = t.body
CROSS JOIN LATERAL (SELECT CASE WHEN k < m AND r IN (200, 400) THEN 'leave' WHEN k < m AND r = 300 THEN 'join'
                                WHEN r % 97 = 0 THEN 'recall' ELSE 'msg' END AS kind,
                           (r + 3) % 97 = 0 AND r + 3 <= e AS recalled,
                           members[1 + CASE WHEN r % 97 = 0 THEN r - 3 ELSE r END / 3 % k] AS sender,
                           '00000000-0000-4000-8000-' || to_char(r, 'fm000000000000') AS key OFFSET 0) x`

// Most devices are a few events behind, some fifty, and one of a hundred has never acknowledged. Who has left is behind
// their own leave. h is the same at every filling.
const cursorsSQL = `
INSERT INTO device_cursors (conv_id, device_id, install_epoch, epoch, delivered_seq)
SELECT conv_id, device_id, 1, 1, GREATEST(0, head - CASE WHEN h < 3 THEN 50 ELSE h % 5 END)
FROM (SELECT p.conv_id, d.device_id, coalesce(p.to_seq, f.m + f.e) AS head, abs(hashtext(p.conv_id || d.device_id) % 100) AS h
      FROM membership_periods p JOIN fill f ON f.conv = p.conv_id JOIN devices d ON d.user_id = p.user_id
      WHERE p.from_seq > f.m OR p.from_seq <= f.k OR p.from_seq = f.m) x -- one period a user: the latest
WHERE h > 0 ORDER BY conv_id, device_id`

// own_seq as migrations/0004_reads.sql wants it: the seq of the user's last message, or 0 if that is at most 64.
const positionsSQL = `
INSERT INTO read_positions (conv_id, user_id, epoch, read_seq, own_seq)
SELECT conv_id, user_id, 1, CASE WHEN h < 80 THEN GREATEST(0, head - h / 2) ELSE 0 END, own
FROM (SELECT p.conv_id, p.user_id, coalesce(p.to_seq, f.m + f.e) AS head, CASE WHEN e.last > 64 THEN e.last ELSE 0 END AS own,
             abs(hashtext(p.user_id || p.conv_id) % 100) AS h
      FROM membership_periods p JOIN fill f ON f.conv = p.conv_id
      LEFT JOIN (SELECT conv_id, sender_user, max(seq) AS last FROM events WHERE kind = 'msg' GROUP BY conv_id, sender_user) e
           ON e.conv_id = p.conv_id AND e.sender_user = p.user_id
      WHERE p.from_seq > f.m OR p.from_seq <= f.k OR p.from_seq = f.m) x
WHERE h < 80 OR own > 0 ORDER BY conv_id, user_id`

// A key goes a week after its event, which went after two thirds of the time.
const tombstonesSQL = `
INSERT INTO idem_tombstones (conv_id, sender_user, client_msg_id, expires_at)
SELECT f.conv, f.members[1 + CASE WHEN r % 97 = 0 THEN r - 3 ELSE r END / 3 % f.k],
       '00000000-0000-4000-8000-' || to_char(r, 'fm000000000000'),
       f.start + (r - 1 + f.phase) / f.e * interval '{Days} days' + interval '1 day' * ({Days} * 2 / 3 + 7)
FROM fill f, generate_series(f.e * ({Days} / 3 - 7) / {Days} + 1, f.gone) r
WHERE r NOT IN (200, 300, 400) ORDER BY 4`

const routesSQL = `
INSERT INTO gateways (gateway_id, lease_until) VALUES ('f-gw', now() - interval '1 day');
INSERT INTO routes (device_id, user_id, gateway_id, conn_id, generation, install_epoch)
SELECT d.device_id, d.user_id, 'f-gw', row_number() OVER (), 1, 1 FROM devices d
WHERE right(d.user_id, 1) IN ('0', '4');
UPDATE devices SET route_generation = 1 WHERE device_id IN (SELECT device_id FROM routes)`

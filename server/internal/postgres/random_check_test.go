package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"imbench/server/internal/im"
)

// Emptied row by row: TRUNCATE makes new files for twenty tables and indexes, which takes longer than a history.
const emptySQL = `DELETE FROM users; DELETE FROM devices; DELETE FROM conversations; DELETE FROM membership_periods;
	DELETE FROM events; DELETE FROM idem_tombstones; DELETE FROM device_cursors; DELETE FROM read_positions;
	DELETE FROM user_conversations; DELETE FROM direct_pairs; DELETE FROM gateways; DELETE FROM routes; DELETE FROM epoch_run`

const setTimesSQL = `UPDATE conversations SET recall_window_ms = $2, retention_ms = NULLIF($3::bigint, 0),
	retain_at = CASE WHEN $3::bigint > 0 THEN clock_timestamp() END WHERE conv_id = $1`

// retained says where each log begins and which keys have a tombstone.
func (w *world) retained() (begins map[string]int64, tombs []string, err error) {
	rows, err := w.store.pool.Query(w.ctx, `SELECT conv_id, min_seq FROM conversations`)
	if err != nil {
		return nil, nil, err
	}
	begins = map[string]int64{}
	var id string
	var seq int64
	if _, err = pgx.ForEachRow(rows, []any{&id, &seq}, func() error { begins[id] = seq; return nil }); err != nil {
		return nil, nil, err
	}
	rows, err = w.store.pool.Query(w.ctx, `SELECT conv_id || ' ' || sender_user || ' ' || client_msg_id FROM idem_tombstones`)
	if err != nil {
		return nil, nil, err
	}
	tombs, err = pgx.CollectRows(rows, pgx.RowTo[string])
	return begins, tombs, err
}

// The rows that oracle.Store.Dump writes as lines; a line is made by its format.
const dumpSQL = `
SELECT 'conv %s %s %s min %s head %s epoch %s',
       ARRAY[conv_id, kind, delivery_mode, min_seq::text, (next_seq - 1)::text, epoch::text] FROM conversations
UNION ALL
SELECT 'event %s %s %s from %q %q key %q body %q about %q target %s no %s',
       ARRAY[conv_id, seq::text, kind, coalesce(sender_user, ''), coalesce(sender_device, ''), coalesce(client_msg_id, client_msg_uuid::text, ''),
             coalesce(body, ''), coalesce(subject_user, ''), coalesce(target_seq, 0)::text, msg_no::text] FROM events
UNION ALL
SELECT 'member %s %s %s-%s', ARRAY[conv_id, user_id, from_seq::text, coalesce(to_seq, 0)::text] FROM membership_periods
UNION ALL
SELECT 'cursor %s %s install %s epoch %s at %s',
       ARRAY[conv_id, device_id, install_epoch::text, epoch::text, delivered_seq::text] FROM device_cursors
UNION ALL
SELECT 'tombstone %s %s %s', ARRAY[conv_id, sender_user, client_msg_id] FROM idem_tombstones
UNION ALL
SELECT 'device %s install %s generation %s', ARRAY[device_id, install_epoch::text, route_generation::text] FROM devices
UNION ALL
SELECT 'route %s %s generation %s', ARRAY[device_id, gateway_id, generation::text] FROM routes`

// Each part looks for what must not be, whatever the model says; a row is a violation.
const violationsSQL = `
SELECT 'P1: the log has a gap', c.conv_id, format('%s events of %s to %s', n.n, c.min_seq, c.next_seq - 1)
FROM conversations c
CROSS JOIN LATERAL (SELECT count(*) AS n, count(*) FILTER (WHERE e.seq < c.min_seq OR e.seq >= c.next_seq) AS out
                    FROM events e WHERE e.conv_id = c.conv_id) n
WHERE n.n <> c.next_seq - c.min_seq OR n.out > 0
UNION ALL
SELECT 'P2, D2: a key has several rows', conv_id, format('%s %s', sender_user, client_msg_id)
FROM (SELECT conv_id, sender_user, coalesce(client_msg_id, client_msg_uuid::text) AS client_msg_id FROM events
      WHERE coalesce(client_msg_id, client_msg_uuid::text) IS NOT NULL
      UNION ALL SELECT conv_id, sender_user, client_msg_id FROM idem_tombstones) k
GROUP BY conv_id, sender_user, client_msg_id HAVING count(*) > 1
UNION ALL
SELECT 'P3: membership intervals overlap', p.conv_id, format('%s %s and %s', p.user_id, p.from_seq, q.from_seq)
FROM membership_periods p JOIN membership_periods q USING (conv_id, user_id)
WHERE p.from_seq < q.from_seq AND (p.to_seq IS NULL OR p.to_seq >= q.from_seq)
UNION ALL
SELECT 'P4: an interval has no such event', p.conv_id, format('%s %s at %s', p.user_id, x.kind, x.seq)
FROM membership_periods p JOIN conversations c USING (conv_id)
CROSS JOIN LATERAL (VALUES (p.from_seq, 'join'), (p.to_seq, 'leave')) AS x (seq, kind)
WHERE x.seq >= c.min_seq AND NOT EXISTS (
    SELECT 1 FROM events e WHERE e.conv_id = p.conv_id AND e.seq = x.seq AND e.kind = x.kind AND e.subject_user = p.user_id)
UNION ALL
SELECT 'P4: a membership event has no interval', e.conv_id, format('%s at %s', e.kind, e.seq)
FROM events e WHERE e.kind IN ('join', 'leave') AND NOT EXISTS (
    SELECT 1 FROM membership_periods p WHERE p.conv_id = e.conv_id AND p.user_id = e.subject_user
    AND e.seq = CASE WHEN e.kind = 'join' THEN p.from_seq ELSE p.to_seq END)
UNION ALL
SELECT 'P5: next_seq is not the last seq and one', c.conv_id, format('next %s, last %s', c.next_seq, m.seq)
FROM conversations c
CROSS JOIN LATERAL (SELECT max(e.seq) AS seq FROM events e WHERE e.conv_id = c.conv_id) m
WHERE c.next_seq <> coalesce(m.seq + 1, c.min_seq)
UNION ALL
SELECT 'D4: a cursor lies past the head', d.conv_id, format('%s at %s, install %s', d.device_id, d.delivered_seq, d.install_epoch)
FROM device_cursors d JOIN devices v USING (device_id) LEFT JOIN conversations c USING (conv_id)
CROSS JOIN LATERAL (
    SELECT CASE WHEN bool_or(p.to_seq IS NULL) THEN c.next_seq - 1 ELSE max(p.to_seq) END AS head
    FROM membership_periods p WHERE p.conv_id = d.conv_id AND p.user_id = v.user_id) m
WHERE d.delivered_seq > m.head OR m.head IS NULL OR d.install_epoch > v.install_epoch OR d.epoch > c.epoch
UNION ALL
SELECT 'M2: a read position lies past the head', r.conv_id, format('%s at %s', r.user_id, r.read_seq)
FROM read_positions r JOIN conversations c USING (conv_id) WHERE r.read_seq >= c.next_seq OR r.epoch > c.epoch
UNION ALL
SELECT 'M3: messages are miscounted', e.conv_id, format('msg_no %s at %s, %s before', e.msg_no, e.seq, e.before)
FROM (SELECT conv_id, seq, kind, msg_no, lag(msg_no, 1, CASE WHEN seq = 1 THEN 0 ELSE msg_no - (kind = 'msg')::int END)
             OVER (PARTITION BY conv_id ORDER BY seq) AS before FROM events) e
WHERE e.msg_no <> e.before + (e.kind = 'msg')::int
UNION ALL
SELECT 'M3: the count of messages is another than the last event''s', c.conv_id, format('%s and %s', c.msg_count, e.msg_no)
FROM conversations c JOIN events e ON e.conv_id = c.conv_id AND e.seq = c.next_seq - 1 WHERE e.msg_no <> c.msg_count
UNION ALL
SELECT 'O1: times go back', e.conv_id, format('at %s', e.seq)
FROM (SELECT conv_id, seq, created_at, lag(created_at, 1, created_at) OVER (PARTITION BY conv_id ORDER BY seq) AS before FROM events) e
WHERE e.created_at < e.before
UNION ALL
SELECT 'L1: a recall of what is no message of its sender', r.conv_id, format('%s at %s', r.target_seq, r.seq)
FROM events r JOIN events t ON t.conv_id = r.conv_id AND t.seq = r.target_seq
WHERE r.kind = 'recall' AND (t.kind <> 'msg' OR t.sender_user <> r.sender_user OR t.seq >= r.seq
      OR r.created_at > t.created_at + interval '70 minutes' OR t.body IS NOT NULL)
UNION ALL
SELECT 'L1: recalled twice', conv_id, format('%s', target_seq) FROM events WHERE kind = 'recall'
GROUP BY conv_id, target_seq HAVING count(*) > 1
UNION ALL
SELECT 'L1: a body is gone without a recall', m.conv_id, format('at %s', m.seq)
FROM events m WHERE m.kind = 'msg' AND m.body IS NULL
AND NOT EXISTS (SELECT 1 FROM events r WHERE r.conv_id = m.conv_id AND r.kind = 'recall' AND r.target_seq = m.seq)
UNION ALL
SELECT 'the inbox does not have the conversation', p.conv_id, p.user_id
FROM membership_periods p LEFT JOIN user_conversations u USING (conv_id, user_id) WHERE u.user_id IS NULL`

// mark is how far a cursor or read position has come, in the order in which the three count.
type mark struct {
	install, epoch int32
	seq            int64
}

func (m mark) before(o mark) bool {
	switch {
	case m.install != o.install:
		return m.install < o.install
	case m.epoch != o.epoch:
		return m.epoch < o.epoch
	}
	return m.seq < o.seq
}

const marksSQL = `
SELECT 'D4, M1: cursor of ' || device_id || ' in ' || conv_id, install_epoch, epoch, delivered_seq FROM device_cursors
UNION ALL
SELECT 'M2: position of ' || user_id || ' in ' || conv_id, 0, epoch, read_seq FROM read_positions`

// violations asks the tables for what must not be.
func (r *rig) violations(ctx context.Context) error {
	rows, err := r.look.Query(ctx, violationsSQL)
	if err != nil {
		return err
	}
	return noRows(rows)
}

func noRows(rows pgx.Rows) error {
	bad, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (string, error) {
		var what, conv, detail string
		err := row.Scan(&what, &conv, &detail)
		return fmt.Sprintf("%s in %s: %s", what, conv, detail), err
	})
	if err == nil && len(bad) > 0 {
		err = fmt.Errorf("violations:\n     %s", strings.Join(bad, "\n     "))
	}
	return err
}

// check asks the tables for violations, that no cursor or position went back, and that they hold what the model holds.
func (w *world) check() error {
	var b pgx.Batch // one round trip
	b.Queue(violationsSQL).Query(noRows)
	b.Queue(marksSQL).Query(func(rows pgx.Rows) error {
		var what string
		var m mark
		_, err := pgx.ForEachRow(rows, []any{&what, &m.install, &m.epoch, &m.seq}, func() error {
			if m.before(w.marks[what]) {
				return fmt.Errorf("%s went back from %+v to %+v", what, w.marks[what], m)
			}
			w.marks[what] = m
			return nil
		})
		return err
	})
	var got []string
	b.Queue(dumpSQL).Query(func(rows pgx.Rows) error {
		var format string
		var fields []string
		_, err := pgx.ForEachRow(rows, []any{&format, &fields}, func() error {
			args := make([]any, len(fields))
			for i, f := range fields {
				args[i] = f
			}
			got = append(got, fmt.Sprintf(format, args...))
			return nil
		})
		return err
	})
	if err := w.store.look.SendBatch(w.ctx, &b).Close(); err != nil {
		return err
	}
	slices.Sort(got)
	if want := w.model.Dump(); !slices.Equal(got, want) {
		return fmt.Errorf("the state differs:\n     %s", strings.Join(diff(got, want), "\n     "))
	}
	// Positions and unread are not stored but derived: what the list shows of them to one user.
	p := im.Principal{User: w.focus.user, Device: w.focus.device}
	list, _, err := w.store.Convs(w.ctx, p, "", 0)
	if err != nil {
		return err
	}
	want, _, _ := w.model.Convs(w.ctx, p, "", 0)
	return differ(list, want, slices.Equal(list, want))
}

// diff names the lines that only one of two sorted lists has.
func diff(got, want []string) (out []string) {
	for _, l := range got {
		if _, found := slices.BinarySearch(want, l); !found {
			out = append(out, "store only: "+l)
		}
	}
	for _, l := range want {
		if _, found := slices.BinarySearch(got, l); !found {
			out = append(out, "model only: "+l)
		}
	}
	return out
}

package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"imbench/server/internal/im"
)

const routesSQL = `SELECT device_id, user_id, install_epoch FROM routes WHERE gateway_id = $1`

// The BRIN index finds the events of the window by their pages.
const recentSQL = `
SELECT conv_id, max(seq) FROM events
WHERE created_at >= now() - ($1::bigint + $2::bigint) * interval '1 microsecond'
  AND created_at < now() - $1::bigint * interval '1 microsecond'
GROUP BY conv_id`

// A period that has ended counts up to its end, whoever has no cursor row has delivered 0, and a cursor of another
// installation or epoch is none. OFFSET 0 keeps the planner from turning the look-ups by key into scans of whole tables.
const lagSQL = `
SELECT v.dev, v.conv, coalesce(d.delivered_seq, 0), CASE WHEN v.open THEN c.next_seq - 1 ELSE v.last END, c.delivery_mode
FROM (
    SELECT r.conv, h.dev, h.inst, max(LEAST(r.seq, m.to_seq)) AS due, bool_or(m.to_seq IS NULL) AS open, max(m.to_seq) AS last
    FROM unnest($1::text[], $2::bigint[]) AS r (conv, seq)
    CROSS JOIN LATERAL (SELECT user_id, to_seq FROM membership_periods p
                        WHERE p.conv_id = r.conv AND p.from_seq <= r.seq OFFSET 0) m
    JOIN unnest($3::text[], $4::text[], $5::int[]) AS h (dev, usr, inst) ON h.usr = m.user_id
    GROUP BY r.conv, h.dev, h.inst) v
CROSS JOIN LATERAL (SELECT next_seq, delivery_mode, epoch FROM conversations x WHERE x.conv_id = v.conv OFFSET 0) c
LEFT JOIN LATERAL (SELECT delivered_seq FROM device_cursors x WHERE x.conv_id = v.conv AND x.device_id = v.dev
                   AND x.install_epoch = v.inst AND x.epoch = c.epoch OFFSET 0) d ON true
WHERE coalesce(d.delivered_seq, 0) < v.due
LIMIT $6`

// RecentLag finds routed devices that are behind events of [now-olderThan-window, now-olderThan); see im.Store. Which
// rows are kept when there are more than limit is not stated: the next call finds the others while they are in its
// window, and from then on a device that is behind is mended by its own next gap or sync.
//
// The question is inverted: not "what may each device lack" (3 ms a device), but "what was written lately, and who of
// this gateway has not got it". It takes two steps. As one statement the planner believes that the window is empty (its
// statistics are always older than the window) and that the routes are few, and joins them row by row: seconds instead
// of milliseconds. The second step gets both lists as arrays, whose lengths the planner sees, because the statement is
// planned for them (QueryExecModeExec: never from a cached generic plan).
func (s *Store) RecentLag(ctx context.Context, gateway string, olderThan, window time.Duration, limit int) ([]im.Lag, error) {
	var dev, user, conv []string
	var inst []int32
	var seq []int64
	b := &pgx.Batch{}
	b.Queue(routesSQL, gateway).Query(func(rows pgx.Rows) error {
		var d, u string
		var i int32
		_, err := pgx.ForEachRow(rows, []any{&d, &u, &i}, func() error {
			dev, user, inst = append(dev, d), append(user, u), append(inst, i)
			return nil
		})
		return err
	})
	b.Queue(recentSQL, olderThan.Microseconds(), window.Microseconds()).Query(func(rows pgx.Rows) error {
		var c string
		var n int64
		_, err := pgx.ForEachRow(rows, []any{&c, &n}, func() error {
			conv, seq = append(conv, c), append(seq, n)
			return nil
		})
		return err
	})
	if err := s.pool.SendBatch(ctx, b).Close(); err != nil {
		return nil, interpret(err)
	}
	if len(dev) == 0 || len(conv) == 0 {
		return nil, nil
	}
	rows, err := s.pool.Query(ctx, lagSQL, pgx.QueryExecModeExec, conv, seq, dev, user, inst, limit)
	if err != nil {
		return nil, interpret(err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (l im.Lag, err error) {
		err = row.Scan(&l.Device, &l.Conv, &l.Delivered, &l.Head, &l.Mode)
		return l, err
	})
	return list, interpret(err)
}

package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"imbench/server/internal/im"
)

const routesSQL = `SELECT device_id, user_id, install_epoch FROM routes WHERE gateway_id = $1`

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

// Lagging finds routed devices that are behind the given heads; see im.Store. Which rows are kept when there are more
// than limit is not stated.
//
// The question is inverted: not "what may each device lack" (3 ms a device), but "who of this gateway has not got this".
// Routes come first, and then both lists go in as arrays, whose lengths the planner sees, because the statement is
// planned for them and not from a cached generic plan. As one statement the planner believes that
// the routes are few, and joins them row by row: seconds instead of milliseconds.
func (s *Store) Lagging(ctx context.Context, gateway string, heads []im.Head, limit int) ([]im.Lag, error) {
	conv, seq := make([]string, len(heads)), make([]int64, len(heads))
	for i, h := range heads {
		conv[i], seq[i] = h.Conv, h.To
	}
	if len(conv) == 0 {
		return nil, nil
	}
	rows, err := s.inner.Query(ctx, routesSQL, gateway)
	if err != nil {
		return nil, interpret(err)
	}
	var dev, user []string
	var inst []int32
	var d, u string
	var i int32
	_, err = pgx.ForEachRow(rows, []any{&d, &u, &i}, func() error {
		dev, user, inst = append(dev, d), append(user, u), append(inst, i)
		return nil
	})
	if err != nil || len(dev) == 0 {
		return nil, interpret(err)
	}
	var list []im.Lag
	err = pgx.BeginFunc(ctx, s.inner, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SET LOCAL plan_cache_mode = force_custom_plan`); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, lagSQL, conv, seq, dev, user, inst, limit)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (l im.Lag, err error) {
			err = row.Scan(&l.Device, &l.Conv, &l.Delivered, &l.Head, &l.Mode)
			return l, err
		})
		return err
	})
	return list, interpret(err)
}

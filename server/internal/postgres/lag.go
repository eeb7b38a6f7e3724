package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"imbench/server/internal/im"
)

// Inverted: not "what may each device lack" (3 ms a device), but "what was written lately, and who of this gateway has
// not got it". The BRIN index finds the events of the window, the gateway's routes are one hash table. A period that
// has ended counts up to its end, whoever has no cursor row has delivered 0, and a cursor of another installation or
// epoch is none.
const lagSQL = `
WITH recent AS MATERIALIZED (
    SELECT conv_id, max(seq) AS seq FROM events
    WHERE created_at >= now() - ($2::bigint + $3::bigint) * interval '1 microsecond'
      AND created_at < now() - $2::bigint * interval '1 microsecond'
    GROUP BY conv_id
), here AS MATERIALIZED (
    SELECT device_id, user_id, install_epoch FROM routes WHERE gateway_id = $1
), reader AS (
    SELECT m.conv_id, m.user_id, max(LEAST(r.seq, m.to_seq)) AS due, bool_or(m.to_seq IS NULL) AS open, max(m.to_seq) AS last
    FROM recent r JOIN membership_periods m ON m.conv_id = r.conv_id AND m.from_seq <= r.seq
    WHERE m.user_id IN (SELECT user_id FROM here)
    GROUP BY m.conv_id, m.user_id
)
SELECT h.device_id, c.conv_id, coalesce(d.delivered_seq, 0), CASE WHEN v.open THEN c.next_seq - 1 ELSE v.last END, c.delivery_mode
FROM reader v
JOIN here h ON h.user_id = v.user_id
JOIN conversations c ON c.conv_id = v.conv_id
LEFT JOIN device_cursors d ON d.conv_id = v.conv_id AND d.device_id = h.device_id
    AND d.install_epoch = h.install_epoch AND d.epoch = c.epoch
WHERE coalesce(d.delivered_seq, 0) < v.due
LIMIT $4`

// RecentLag finds routed devices that are behind events of [now-olderThan-window, now-olderThan); see im.Store. Which
// rows are kept when there are more than limit is not stated: the next call finds the others while they are in its
// window, and from then on a device that is behind is mended by its own next gap or sync.
func (s *Store) RecentLag(ctx context.Context, gateway string, olderThan, window time.Duration, limit int) ([]im.Lag, error) {
	rows, err := s.pool.Query(ctx, lagSQL, gateway, olderThan.Microseconds(), window.Microseconds(), limit)
	if err != nil {
		return nil, interpret(err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (l im.Lag, err error) {
		err = row.Scan(&l.Device, &l.Conv, &l.Delivered, &l.Head, &l.Mode)
		return l, err
	})
	return list, interpret(err)
}

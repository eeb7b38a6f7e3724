package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"imbench/server/internal/im"
)

const deviceSQL = `
SELECT v.user_id, v.install_epoch, v.route_generation, r.device_id IS NOT NULL, coalesce(r.gateway_id, ''), coalesce(r.prev_gateway, ''),
       coalesce(r.conn_id, 0), coalesce(r.generation, 0), coalesce(r.install_epoch, 0), coalesce(r.claimed_at, clock_timestamp()),
       g.gateway_id IS NOT NULL, coalesce(extract(epoch FROM g.lease_until - clock_timestamp()), 0)::float8
FROM devices v LEFT JOIN routes r ON r.device_id = v.device_id LEFT JOIN gateways g ON g.gateway_id = r.gateway_id
WHERE v.device_id = $1`

// The lag of each conversation is made of three rows found by key; what a list shows besides, unread above all, is read
// for the page only. $3 bounds the conversations looked at; more says that there are others behind them.
const deviceConvsSQL = `
WITH mine AS (
    SELECT u.conv_id FROM user_conversations u WHERE u.user_id = $1 AND u.conv_id > $4 ORDER BY u.conv_id LIMIT $3
), placed AS MATERIALIZED (
    SELECT x.conv_id, d.delivered_seq, d.install_epoch, d.epoch,
           GREATEST(0, m.head - GREATEST(c.min_seq - 1, CASE WHEN d.install_epoch = v.install_epoch AND d.epoch = c.epoch
                                                             THEN d.delivered_seq ELSE 0 END)) AS lag
    FROM mine x
    JOIN devices v ON v.device_id = $2
    CROSS JOIN LATERAL (SELECT y.min_seq, y.epoch, y.next_seq FROM conversations y WHERE y.conv_id = x.conv_id OFFSET 0) c
    CROSS JOIN LATERAL (SELECT CASE WHEN bool_or(p.to_seq IS NULL) THEN c.next_seq - 1 ELSE max(p.to_seq) END AS head
                        FROM membership_periods p WHERE p.conv_id = x.conv_id AND p.user_id = $1) m
    LEFT JOIN LATERAL (SELECT y.delivered_seq, y.install_epoch, y.epoch FROM device_cursors y
                       WHERE y.conv_id = x.conv_id AND y.device_id = $2 OFFSET 0) d ON true
), page AS (
    SELECT * FROM placed ORDER BY CASE WHEN $6 THEN 0 ELSE lag END DESC, conv_id LIMIT $5
)
SELECT p.conv_id, s.kind, s.delivery_mode, s.head, s.min_seq, s.epoch,
       CASE WHEN p.install_epoch = v.install_epoch AND p.epoch = s.epoch THEN p.delivered_seq ELSE 0 END, s.read_seq, s.unread,
       coalesce(p.delivered_seq, -1), coalesce(p.install_epoch, 0), coalesce(p.epoch, 0), p.lag,
       t.looked, t.behind, t.lag, t.more
FROM page p
JOIN devices v ON v.device_id = $2
CROSS JOIN LATERAL im_reader(p.conv_id, $1) s
CROSS JOIN (SELECT count(*) AS looked, count(*) FILTER (WHERE lag > 0) AS behind, coalesce(sum(lag), 0)::bigint AS lag,
                   EXISTS (SELECT 1 FROM user_conversations u WHERE u.user_id = $1 AND u.conv_id > max(placed.conv_id)) AS more
            FROM placed) t
ORDER BY CASE WHEN $6 THEN 0 ELSE p.lag END DESC, p.conv_id`

// DeviceState tells of one device; see im.Devices.
func (s *Store) DeviceState(ctx context.Context, q im.DeviceQuery) (im.DeviceState, error) {
	limit := or(q.Limit, 50)
	if limit < 1 || limit > im.MaxDevicePage || q.After != "" && !q.ByID || !storable(q.Device, q.After) {
		return im.DeviceState{}, im.ErrBadRequest
	}
	st := im.DeviceState{Device: q.Device}
	err := pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if err := deviceRoute(ctx, tx, &st); err != nil {
			return err
		}
		return deviceConvs(ctx, tx, q, limit, &st)
	})
	if errors.Is(err, im.ErrUnknownDevice) {
		return im.DeviceState{}, err
	}
	return st, interpret(err)
}

func deviceRoute(ctx context.Context, tx pgx.Tx, st *im.DeviceState) error {
	var r im.DeviceRoute
	var routed bool
	var left float64
	err := tx.QueryRow(ctx, deviceSQL, st.Device).Scan(&st.User, &st.Install, &st.Generation, &routed, &r.Gateway, &r.PrevGateway,
		&r.Conn, &r.Generation, &r.Install, &r.Since, &r.Leased, &left)
	if errors.Is(err, pgx.ErrNoRows) {
		return im.ErrUnknownDevice
	}
	if routed {
		r.LeaseLeft = time.Duration(left * float64(time.Second))
		st.Route = &r
	}
	return err
}

func deviceConvs(ctx context.Context, tx pgx.Tx, q im.DeviceQuery, limit int, st *im.DeviceState) error {
	look := im.MaxDeviceConvs
	if q.ByID {
		look = limit
	}
	rows, err := tx.Query(ctx, deviceConvsSQL, st.User, st.Device, look, q.After, limit, q.ByID)
	if err != nil {
		return err
	}
	var v im.DeviceConv
	targets := append(convTargets(&v.ConvState), &v.Cursor, &v.CursorInstall, &v.CursorEpoch, &v.Lag, &st.Looked, &st.Behind, &st.Lag, &st.More)
	if _, err = pgx.ForEachRow(rows, targets, func() error {
		st.Convs = append(st.Convs, v)
		return nil
	}); err != nil {
		return err
	}
	st.More = st.More || st.Looked > len(st.Convs)
	if q.ByID && st.More {
		st.NextAfter = st.Convs[len(st.Convs)-1].Conv
	}
	return nil
}

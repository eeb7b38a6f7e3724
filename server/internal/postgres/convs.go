package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"imbench/server/internal/im"
)

// MaxConvsPage bounds a page of Convs.
const MaxConvsPage = 500

// What the lists show of a conversation. Everything is found by key, so that a row costs the same in a list of any
// length and in a log of any length. An installation of 0 is the device's present one.
const (
	convColumns = `
SELECT u.conv_id, s.kind, s.delivery_mode, s.head, s.min_seq, s.epoch, coalesce(d.delivered_seq, 0), s.read_seq, s.unread`
	convPage = `
FROM (SELECT conv_id FROM user_conversations WHERE user_id = $1 AND conv_id > $4 ORDER BY conv_id LIMIT $5) u`
	convCursor = `
LEFT JOIN LATERAL (
    SELECT x.delivered_seq FROM device_cursors x
    WHERE x.conv_id = u.conv_id AND x.device_id = $2 AND x.epoch = s.epoch
      AND x.install_epoch = CASE WHEN $3 <> 0 THEN $3
                                 ELSE (SELECT v.install_epoch FROM devices v WHERE v.device_id = $2 AND v.user_id = $1) END
    OFFSET 0) d ON true`
	convTables = convPage + `
CROSS JOIN LATERAL im_reader(u.conv_id, $1) s` + convCursor
	convsSQL = convColumns + convTables + `
ORDER BY u.conv_id`
	// Its columns are those of convsSQL, so that both are read alike. For 20 conversations of the filled database it touches
	// 191 pages, and convsSQL 817.
	standingsSQL = `
SELECT u.conv_id, s.kind, s.delivery_mode, m.head, s.min_seq, s.epoch, coalesce(d.delivered_seq, 0), 0::bigint, 0::bigint` + convPage + `
CROSS JOIN LATERAL (SELECT x.kind, x.delivery_mode, x.next_seq, x.min_seq, x.epoch FROM conversations x
                    WHERE x.conv_id = u.conv_id OFFSET 0) s
CROSS JOIN LATERAL (SELECT CASE WHEN bool_or(x.to_seq IS NULL) THEN s.next_seq - 1 ELSE max(x.to_seq) END AS head
                    FROM membership_periods x WHERE x.conv_id = u.conv_id AND x.user_id = $1) m` + convCursor + `
WHERE m.head IS NOT NULL
ORDER BY u.conv_id`
)

func convTargets(c *im.ConvState) []any {
	return []any{&c.Conv, &c.Kind, &c.Mode, &c.Head, &c.MinSeq, &c.Epoch, &c.Delivered, &c.Read, &c.Unread}
}

// Convs pages the caller's conversations; see im.Store. Conversations that the user has left are listed too, with the
// own leave as head, so that a device that was away learns of it. limit is at most MaxConvsPage, 0 means 100. Errors:
// im.ErrBadRequest.
func (s *Store) Convs(ctx context.Context, p im.Principal, after string, limit int) ([]im.ConvState, bool, error) {
	return s.convs(ctx, convsSQL, p, after, limit)
}

// Standings is Convs without positions; see im.Store. Errors: im.ErrBadRequest.
func (s *Store) Standings(ctx context.Context, p im.Principal, after string, limit int) ([]im.ConvState, bool, error) {
	return s.convs(ctx, standingsSQL, p, after, limit)
}

func (s *Store) convs(ctx context.Context, sql string, p im.Principal, after string, limit int) ([]im.ConvState, bool, error) {
	limit = or(limit, 100)
	if limit < 1 || limit > MaxConvsPage || !storable(after, p.User, p.Device) {
		return nil, false, im.ErrBadRequest
	}
	rows, err := s.pool.Query(ctx, sql, p.User, p.Device, p.Install, after, limit+1)
	if err != nil {
		return nil, false, interpret(err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c im.ConvState, err error) {
		err = row.Scan(convTargets(&c)...)
		return c, err
	})
	if err != nil {
		return nil, false, interpret(err)
	}
	if len(list) > limit {
		return list[:limit], true, nil
	}
	return list, false, nil
}

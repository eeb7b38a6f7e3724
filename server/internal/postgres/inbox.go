package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"imbench/server/internal/im"
)

// The last visible event is the one at the visible head, if retention has left it: the log has no gaps.
const inboxSQL = convColumns + `, coalesce(w.user_id, ''),
       ` + eventColumns + convTables + `
LEFT JOIN LATERAL (SELECT x.user_id FROM membership_periods x
                   WHERE s.kind = 'direct' AND x.conv_id = u.conv_id AND x.user_id <> $1 LIMIT 1) w ON true
LEFT JOIN LATERAL (SELECT * FROM events x
                   WHERE x.conv_id = u.conv_id AND x.seq = s.head AND x.seq >= s.min_seq OFFSET 0) e ON true
ORDER BY u.conv_id`

// Inbox pages the user's conversations with what a list of them shows; see im.Reads. As with Convs, those that the user
// has left are listed too.
func (s *Store) Inbox(ctx context.Context, p im.Principal, after string, limit int) ([]im.InboxEntry, bool, error) {
	limit = or(limit, 50)
	if limit < 1 || limit > im.MaxInboxPage || !storable(after, p.User, p.Device) {
		return nil, false, im.ErrBadRequest
	}
	rows, err := s.pool.Query(ctx, inboxSQL, p.User, p.Device, p.Install, after, limit+1)
	if err != nil {
		return nil, false, interpret(err)
	}
	var e nullEvent
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c im.InboxEntry, err error) {
		err = row.Scan(append(append(convTargets(&c.ConvState), &c.Peer), e.targets()...)...)
		if err == nil && e.seq != nil {
			ev := e.event(c.Conv, c.Epoch)
			c.Last = &ev
		}
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

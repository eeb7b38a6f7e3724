package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"imbench/server/internal/im"
)

// MaxConvsPage bounds a page of Convs.
const MaxConvsPage = 500

// read: what the user reported, or sent last (having sent means having read up to it). unread: messages after the later
// of that and the latest join, up to the head that the user may see; a subtraction of two msg_no. The last own message
// is found in the index of request keys, at the cost of one entry for each message that the caller sent here.
const convsSQL = `
SELECT c.conv_id, c.kind, c.delivery_mode, m.head, c.min_seq, c.epoch, coalesce(d.delivered_seq, 0), r.seq,
       GREATEST(0, CASE WHEN m.open THEN c.msg_count ELSE h.msg_no END - coalesce(b.msg_no, 0))
FROM (SELECT conv_id FROM user_conversations WHERE user_id = $1 AND conv_id > $4 ORDER BY conv_id LIMIT $5) u
JOIN conversations c ON c.conv_id = u.conv_id
CROSS JOIN LATERAL (
    SELECT bool_or(p.to_seq IS NULL) AS open, max(p.from_seq) AS since,
           CASE WHEN bool_or(p.to_seq IS NULL) THEN c.next_seq - 1 ELSE max(p.to_seq) END AS head
    FROM membership_periods p WHERE p.conv_id = c.conv_id AND p.user_id = $1) m
CROSS JOIN LATERAL (
    SELECT GREATEST(
        (SELECT p.read_seq FROM read_positions p WHERE p.conv_id = c.conv_id AND p.user_id = $1),
        (SELECT max(e.seq) FROM events e
         WHERE e.conv_id = c.conv_id AND e.sender_user = $1 AND e.client_msg_id IS NOT NULL), 0) AS seq) r
LEFT JOIN device_cursors d ON d.conv_id = c.conv_id AND d.device_id = $2 AND d.install_epoch = $3 AND d.epoch = c.epoch
LEFT JOIN events h ON h.conv_id = c.conv_id AND h.seq = m.head
LEFT JOIN events b ON b.conv_id = c.conv_id AND b.seq = GREATEST(r.seq, m.since)
WHERE m.head IS NOT NULL
ORDER BY c.conv_id`

// Convs pages the caller's conversations; see im.Store. Conversations that the user has left are listed too, with the
// own leave as head, so that a device that was away learns of it. limit is at most MaxConvsPage, 0 means 100. Errors:
// im.ErrBadRequest.
func (s *Store) Convs(ctx context.Context, p im.Principal, after string, limit int) ([]im.ConvState, bool, error) {
	limit = or(limit, 100)
	if limit < 1 || limit > MaxConvsPage || !storable(after, p.User, p.Device) {
		return nil, false, im.ErrBadRequest
	}
	rows, err := s.pool.Query(ctx, convsSQL, p.User, p.Device, p.Install, after, limit+1)
	if err != nil {
		return nil, false, interpret(err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c im.ConvState, err error) {
		err = row.Scan(&c.Conv, &c.Kind, &c.Mode, &c.Head, &c.MinSeq, &c.Epoch, &c.Delivered, &c.Read, &c.Unread)
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

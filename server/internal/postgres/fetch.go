package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"imbench/server/internal/im"
)

// One row if the caller is or was a member: what they may see of the conversation, and the event if they may see it.
const fetchSQL = `
SELECT m.head, m.visible, c.min_seq, c.epoch,
       ` + eventColumns + `
FROM conversations c
CROSS JOIN LATERAL (
    SELECT CASE WHEN bool_or(p.to_seq IS NULL) THEN c.next_seq - 1 ELSE max(p.to_seq) END AS head,
           bool_or($3::bigint >= p.from_seq AND (p.to_seq IS NULL OR $3 <= p.to_seq)) AS visible
    FROM membership_periods p WHERE p.conv_id = c.conv_id AND p.user_id = $2) m
LEFT JOIN events e ON e.conv_id = c.conv_id AND e.seq = $3 AND m.visible AND e.seq >= c.min_seq
WHERE c.conv_id = $1 AND m.head IS NOT NULL`

// Fetch reads one event; see im.Reads.
func (s *Store) Fetch(ctx context.Context, p im.Principal, conv string, seq int64) (im.Event, error) {
	if seq < 1 || !storable(conv, p.User) {
		return im.Event{}, im.ErrBadRequest
	}
	var head, minSeq int64
	var visible bool
	var epoch int32
	var e nullEvent
	err := s.pool.QueryRow(ctx, fetchSQL, conv, p.User, seq).Scan(append([]any{&head, &visible, &minSeq, &epoch}, e.targets()...)...)
	switch {
	case err == pgx.ErrNoRows:
		return im.Event{}, im.ErrNotMember
	case err != nil:
		return im.Event{}, interpret(err)
	case seq > head:
		return im.Event{}, im.ErrCursorAhead
	case !visible:
		return im.Event{}, im.ErrNotMember
	case e.seq == nil:
		return im.Event{}, im.ErrExpired
	}
	return e.event(conv, epoch), nil
}

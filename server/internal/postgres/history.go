package postgres

import (
	"context"
	"math"
	"slices"

	"imbench/server/internal/im"
)

// As syncSQL, from the other end.
const beforeSQL = `
SELECT m.head, c.min_seq, c.epoch,
       ` + eventColumns + `
FROM conversations c
CROSS JOIN LATERAL (
    SELECT CASE WHEN bool_or(p.to_seq IS NULL) THEN c.next_seq - 1 ELSE max(p.to_seq) END AS head
    FROM membership_periods p WHERE p.conv_id = c.conv_id AND p.user_id = $2) m
LEFT JOIN LATERAL (
    SELECT x.* FROM membership_periods p
    CROSS JOIN LATERAL (
        SELECT * FROM events y
        WHERE y.conv_id = c.conv_id
          AND y.seq >= GREATEST(c.min_seq, p.from_seq)
          AND y.seq <= LEAST($3::bigint - 1, COALESCE(p.to_seq, c.next_seq - 1))
        ORDER BY y.seq DESC LIMIT $4) x
    WHERE p.conv_id = c.conv_id AND p.user_id = $2
    ORDER BY x.seq DESC LIMIT $4) e ON true
WHERE c.conv_id = $1 AND m.head IS NOT NULL
ORDER BY e.seq DESC`

// Before reads a page of history backwards; see im.Reads.
func (s *Store) Before(ctx context.Context, p im.Principal, conv string, before int64, limit int) (im.Page, error) {
	limit = or(limit, im.DefaultSyncLimit)
	if limit < 1 || limit > im.MaxSyncLimit || before < 0 || !storable(conv, p.User) {
		return im.Page{}, im.ErrBadRequest
	}
	page, err := s.page(ctx, beforeSQL, conv, p.User, or(before, int64(math.MaxInt64)), limit+1)
	if err != nil {
		return im.Page{}, err
	}
	if len(page.Events) > limit {
		page.Events, page.HasMore = page.Events[:limit], true
	}
	slices.Reverse(page.Events)
	return page, nil
}

package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"imbench/server/internal/im"
)

// MaxPeriodMS bounds retention and recall window: a hundred years, in milliseconds.
const MaxPeriodMS = 100 * 366 * 24 * 3600 * 1000

// MaxThreshold bounds the thresholds of a conversation, in members.
const MaxThreshold = 1_000_000

// AsGateway as a threshold in a change: the conversation has none of its own, so that the gateway's holds.
const AsGateway = -1

// ConvChange says what to change of a conversation; nil leaves a field as it is.
type ConvChange struct {
	Mode           *im.Mode
	RetentionMS    *int64 // 0 = events are kept for ever
	RecallWindowMS *int64 // 0 = nothing can be recalled
	HintAbove      *int64 // members; 0 = never, AsGateway
	OpenOnlyAbove  *int64 // members; 0 = never, AsGateway
}

// ConvSettings are a conversation's settings as they stand.
type ConvSettings struct {
	Conv           string  `json:"conv"`
	Mode           im.Mode `json:"delivery_mode"`
	RetentionMS    int64   `json:"retention_ms"`
	RecallWindowMS int64   `json:"recall_window_ms"`
	HintAbove      *int64  `json:"hint_above"`      // nil = as the gateway says; 0 = never
	OpenOnlyAbove  *int64  `json:"open_only_above"` // the same
}

// A new retention makes the conversation due at once: its next round finds out when there is something to do.
const changeSQL = `
UPDATE conversations SET
    delivery_mode = coalesce($2, delivery_mode),
    recall_window_ms = coalesce($3, recall_window_ms),
    retention_ms = CASE WHEN $4::bigint IS NULL THEN retention_ms ELSE nullif($4, 0) END,
    retain_at = CASE WHEN $4 IS NULL THEN retain_at WHEN $4 > 0 THEN clock_timestamp() END,
    hint_above = CASE WHEN $5::integer IS NULL THEN hint_above ELSE nullif($5, -1) END,
    open_only_above = CASE WHEN $6::integer IS NULL THEN open_only_above ELSE nullif($6, -1) END
WHERE conv_id = $1
RETURNING delivery_mode, coalesce(retention_ms, 0), recall_window_ms, hint_above, open_only_above`

// ChangeConversation changes a conversation's settings and returns them as they then stand. Errors: im.ErrNotMember (no
// such conversation), im.ErrBadRequest (a value that no conversation may have), im.ErrBusy (lock timeout; nothing was
// changed), im.ErrUnavailable.
func (s *Store) ChangeConversation(ctx context.Context, conv string, c ConvChange) (ConvSettings, error) {
	now := ConvSettings{Conv: conv}
	if c.Mode != nil && *c.Mode != im.Push && *c.Mode != im.Pull || !validPeriod(c.RetentionMS) || !validPeriod(c.RecallWindowMS) ||
		!validThreshold(c.HintAbove) || !validThreshold(c.OpenOnlyAbove) {
		return now, im.ErrBadRequest
	}
	if !storable(conv) {
		return now, im.ErrNotMember
	}
	err := s.pool.QueryRow(ctx, changeSQL, conv, c.Mode, c.RecallWindowMS, c.RetentionMS, c.HintAbove, c.OpenOnlyAbove).
		Scan(&now.Mode, &now.RetentionMS, &now.RecallWindowMS, &now.HintAbove, &now.OpenOnlyAbove)
	if err == pgx.ErrNoRows {
		return now, im.ErrNotMember
	}
	return now, interpret(err)
}

func validPeriod(ms *int64) bool { return ms == nil || *ms >= 0 && *ms <= MaxPeriodMS }

func validThreshold(n *int64) bool { return n == nil || *n >= AsGateway && *n <= MaxThreshold }

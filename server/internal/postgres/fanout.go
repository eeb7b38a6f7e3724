package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"imbench/server/internal/im"
)

const eventsSQL = `
SELECT c.conv_id, c.epoch, ` + eventColumns + `
FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS r (conv, lo, hi)
JOIN conversations c ON c.conv_id = r.conv
CROSS JOIN LATERAL (SELECT * FROM events x WHERE x.conv_id = r.conv AND x.seq BETWEEN r.lo AND r.hi
                    ORDER BY x.seq LIMIT (r.hi - r.lo + 1)) e
ORDER BY c.conv_id, e.seq`

// Events reads committed events by range, whatever their visibility; see im.Store. Seqs that do not exist are left out.
// Errors: im.ErrTooLarge beyond im.MaxRangeEvents.
func (s *Store) Events(ctx context.Context, ranges []im.SeqRange) ([]im.Event, error) {
	conv, lo, hi := make([]string, len(ranges)), make([]int64, len(ranges)), make([]int64, len(ranges))
	total := int64(0)
	for i, r := range ranges {
		conv[i], lo[i], hi[i] = r.Conv, r.From, r.To
		if r.To >= r.From {
			if total += r.To - r.From + 1; total > im.MaxRangeEvents || total < 0 {
				return nil, im.ErrTooLarge
			}
		}
	}
	if total == 0 {
		return nil, nil
	}
	rows, err := s.inner.Query(ctx, eventsSQL, conv, lo, hi)
	if err != nil {
		return nil, interpret(err)
	}
	list := make([]im.Event, 0, total)
	var id string
	var epoch int32
	var e nullEvent
	_, err = pgx.ForEachRow(rows, append([]any{&id, &epoch}, e.targets()...), func() error {
		list = append(list, e.event(id, epoch))
		return nil
	})
	return list, interpret(err)
}

// The lists are aggregated: a conversation is one row, not one for each of its members. Of the thresholds 0 becomes
// im.Never, and NULL 0.
const convInfosSQL = `
SELECT c.conv_id, c.kind, c.delivery_mode, c.epoch, c.next_seq - 1, m.users, m.froms, m.tos,
       coalesce(nullif(c.hint_above, 0), c.hint_above - 1, 0), coalesce(nullif(c.open_only_above, 0), c.open_only_above - 1, 0)
FROM unnest($1::text[], $2::bigint[]) AS r (conv, seq)
JOIN conversations c ON c.conv_id = r.conv
CROSS JOIN LATERAL (
    SELECT coalesce(array_agg(p.user_id), '{}') AS users, coalesce(array_agg(p.from_seq), '{}') AS froms,
           coalesce(array_agg(coalesce(p.to_seq, 0)), '{}') AS tos
    FROM membership_periods p
    WHERE p.conv_id = r.conv AND (p.to_seq IS NULL OR p.to_seq >= r.seq)) m`

// ConvInfos reads what fan-out needs from the given seqs on; see im.Store. Conversations that do not exist are left
// out; the order is not stated.
func (s *Store) ConvInfos(ctx context.Context, from []im.SeqRange) ([]im.ConvInfo, error) {
	conv, seq := make([]string, len(from)), make([]int64, len(from))
	for i, r := range from {
		conv[i], seq[i] = r.Conv, r.From
	}
	rows, err := s.inner.Query(ctx, convInfosSQL, conv, seq)
	if err != nil {
		return nil, interpret(err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (im.ConvInfo, error) {
		var c im.ConvInfo
		var users []string
		var froms, tos []int64
		err := row.Scan(&c.Conv, &c.Kind, &c.Mode, &c.Epoch, &c.Head, &users, &froms, &tos, &c.HintAbove, &c.OpenOnlyAbove)
		c.Periods = make([]im.Period, len(users))
		for i, u := range users {
			c.Periods[i] = im.Period{User: u, From: froms[i], To: tos[i]}
		}
		return c, err
	})
	return list, interpret(err)
}

const headsSQL = `SELECT conv_id, next_seq - 1 FROM conversations WHERE conv_id = ANY ($1)`

// Heads reads current heads by key; see im.Store. Conversations that do not exist are left out.
func (s *Store) Heads(ctx context.Context, convs []string) (map[string]int64, error) {
	rows, err := s.inner.Query(ctx, headsSQL, convs)
	if err != nil {
		return nil, interpret(err)
	}
	heads := make(map[string]int64, len(convs))
	var conv string
	var head int64
	_, err = pgx.ForEachRow(rows, []any{&conv, &head}, func() error {
		heads[conv] = head
		return nil
	})
	return heads, interpret(err)
}

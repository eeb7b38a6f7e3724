package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"imbench/server/internal/im"
)

// retainConvs bounds the conversations that one transaction of retention holds locked, for some milliseconds: sends to
// them go through the contended lane meanwhile.
const retainConvs = 16

const retainSQL = `SELECT o_looked, o_raised, o_events FROM im_retain($1, $2, $3::bigint * interval '1 microsecond')`

// Retain does one bounded step of retention; see im.Upkeep. It removes at most limit events and looks at no more than
// limit conversations, in transactions of at most 16 conversations; More says that one of the bounds was reached. Several
// gateways may call it at once: each gets conversations that the others do not have. Where nothing is due it costs two
// probes of an index. With an error, what the report says was done before it. Errors: im.ErrBadRequest (limit < 1,
// keep < 0), im.ErrUnavailable.
func (s *Store) Retain(ctx context.Context, limit int, keep time.Duration) (im.RetentionReport, error) {
	var r im.RetentionReport
	if limit < 1 || keep < 0 {
		return r, im.ErrBadRequest
	}
	var err error
	if r.Tombstones, err = s.expireTombstones(ctx, limit); err != nil {
		return r, err
	}
	r.More = r.Tombstones == int64(limit)
	for left := int64(limit); left > 0; {
		var looked, events int64
		var raised int
		convs := min(left, retainConvs)
		err := s.pool.QueryRow(ctx, retainSQL, left, convs, keep.Microseconds()).Scan(&looked, &raised, &events)
		if err != nil {
			return r, interpret(err)
		}
		r.Conversations += raised
		r.Events += events
		if looked < convs && events < left {
			return r, nil
		}
		left -= max(looked, events)
	}
	r.More = true
	return r, nil
}

// Materialized: as a subquery in the DELETE it may be run again for each row of a table that is believed to be small, and
// since it skips what is deleted already, each run gives others: more than the limit would go.
const expireTombstonesSQL = `
WITH due AS MATERIALIZED (
    SELECT conv_id, sender_user, client_msg_id FROM idem_tombstones WHERE expires_at <= $1
    ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED
)
DELETE FROM idem_tombstones t USING due d
WHERE t.conv_id = d.conv_id AND t.sender_user = d.sender_user AND t.client_msg_id = d.client_msg_id`

func (s *Store) expireTombstones(ctx context.Context, limit int) (int64, error) {
	var n int64
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		// The time is a parameter because a volatile function is no bound for an index, and it is the database's.
		var now time.Time
		if err := tx.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&now); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, expireTombstonesSQL, now, limit)
		n = tag.RowsAffected()
		return err
	})
	return n, interpret(err)
}

const takeTurnSQL = `
INSERT INTO turns AS t (job, holder, until) VALUES ($1, $2, clock_timestamp() + $3::bigint * interval '1 microsecond')
ON CONFLICT (job) DO UPDATE SET holder = EXCLUDED.holder, until = EXCLUDED.until
WHERE t.holder = EXCLUDED.holder OR t.until < clock_timestamp()`

// TakeTurn says whether holder is the one that does a periodic job now, and keeps all others from it for d, by the
// database's clock. The holder prolongs its turn by taking it again; one that is gone loses it when d is over.
func (s *Store) TakeTurn(ctx context.Context, job, holder string, d time.Duration) (bool, error) {
	tag, err := s.pool.Exec(ctx, takeTurnSQL, job, holder, d.Microseconds())
	return tag.RowsAffected() == 1, interpret(err)
}

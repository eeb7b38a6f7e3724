package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

func (f fixture) Age(ctx context.Context, conv string, by time.Duration) error {
	return pgx.BeginFunc(ctx, f.pool, func(tx pgx.Tx) error {
		for _, sql := range []string{
			`UPDATE conversations SET retain_at = retain_at - $2::bigint * interval '1 microsecond' WHERE conv_id = $1`,
			`UPDATE events SET created_at = created_at - $2::bigint * interval '1 microsecond' WHERE conv_id = $1`,
			`UPDATE idem_tombstones SET expires_at = expires_at - $2::bigint * interval '1 microsecond' WHERE conv_id = $1`,
		} {
			if _, err := tx.Exec(ctx, sql, conv, by.Microseconds()); err != nil {
				return err
			}
		}
		return nil
	})
}

func (f fixture) SetRetention(ctx context.Context, conv string, age time.Duration) error {
	ms := age.Milliseconds()
	_, err := f.ChangeConversation(ctx, conv, ConvChange{RetentionMS: &ms})
	return err
}

package postgres

import (
	"context"
	"embed"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Migrate brings the schema (the first of the search path) up to date: each file of migrations/ in the order of its
// number, once, all in one transaction under an advisory lock. Any number of gateways may call it at once: the others
// wait and then find nothing to do. A database that knows more migrations than this binary is refused.
func Migrate(ctx context.Context, pool *pgxpool.Pool) error {
	files, err := fs.Glob(migrations, "migrations/*.sql") // sorted by name
	if err != nil {
		return err
	}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		// Whoever holds the lock may be creating tables; waiting for that is no reason to give up.
		if _, err := tx.Exec(ctx, `SET LOCAL lock_timeout = '60s'; SET LOCAL statement_timeout = '10min'`); err != nil {
			return err
		}
		// The lock is of this schema, so that databases with several schemas migrate them side by side.
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('imbench.' || current_schema(), 0))`); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `CREATE TABLE IF NOT EXISTS schema_migrations (
			version integer PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT clock_timestamp())`); err != nil {
			return err
		}
		var have int
		if err := tx.QueryRow(ctx, `SELECT coalesce(max(version), 0) FROM schema_migrations`).Scan(&have); err != nil {
			return err
		}
		if have > len(files) {
			return fmt.Errorf("the database has schema version %d, this binary knows %d: use a newer binary", have, len(files))
		}
		for i := have; i < len(files); i++ {
			sql, err := migrations.ReadFile(files[i])
			if err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, string(sql)); err != nil {
				return fmt.Errorf("%s: %w", files[i], err)
			}
			if _, err := tx.Exec(ctx, `INSERT INTO schema_migrations (version) VALUES ($1)`, i+1); err != nil {
				return err
			}
		}
		return nil
	})
	return interpret(err)
}

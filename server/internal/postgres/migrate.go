package postgres

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Migrate brings the schema (the first of the search path) up to date: each file of migrations/ in the order of its
// number, once, all in one transaction under an advisory lock. Any number of gateways may call it at once: the others
// wait and then find nothing to do. A database that knows more migrations than this binary is refused, and so is, for some
// migrations, one on which gateways run. Of the layout of events it takes what is there; a new database gets them in one
// table. A large log may take long: only ctx bounds that.
func Migrate(ctx context.Context, pool *pgxpool.Pool) error { return MigratePartitioned(ctx, pool, 0) }

// MaxPartitions bounds the hash partitions of events: every statement that is about the log locks them all.
const MaxPartitions = 256

// MigratePartitioned is Migrate, and has events in so many hash partitions by conversation: 1 is one table, and 0 what is
// there. It partitions a log that is new or empty at its migration; one that is laid out otherwise is refused, with no
// change made, and so are more than MaxPartitions.
func MigratePartitioned(ctx context.Context, pool *pgxpool.Pool, partitions int) error {
	if partitions < 0 || partitions > MaxPartitions {
		return fmt.Errorf("%d partitions: there may be from 0 to %d", partitions, MaxPartitions)
	}
	files, err := fs.Glob(migrations, "migrations/*.sql") // sorted by name
	if err != nil {
		return err
	}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		// An index of the whole log takes as long as the log is large, and whoever holds the lock may be making one: neither
		// is a reason to give up.
		if _, err := tx.Exec(ctx, `SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = 0`); err != nil {
			return err
		}
		// The lock is of this schema, so that databases with several schemas migrate them side by side.
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('imbench.' || current_schema(), 0))`); err != nil {
			return err
		}
		// A table that someone else holds is: all who come later wait behind this.
		if _, err := tx.Exec(ctx, `SET LOCAL lock_timeout = '60s'`); err != nil {
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
			return refused("the database has schema version %d, this binary knows %d: use a newer binary", have, len(files))
		}
		if _, err := tx.Exec(ctx, `SELECT set_config('imbench.partitions', $1, true)`, strconv.Itoa(partitions)); err != nil {
			return err
		}
		for i := have; i < len(files); i++ {
			sql, err := migrations.ReadFile(files[i])
			if err != nil {
				return err
			}
			if alone[i+1] {
				if err := refuseBeside(ctx, tx); err != nil {
					return err
				}
			}
			if _, err := tx.Exec(ctx, string(sql)); err != nil {
				return fmt.Errorf("%s: %w", files[i], err)
			}
			if _, err := tx.Exec(ctx, `INSERT INTO schema_migrations (version) VALUES ($1)`, i+1); err != nil {
				return err
			}
		}
		return checkPartitions(ctx, tx, partitions)
	})
	var no refusal
	if errors.As(err, &no) {
		return no
	}
	return interpret(err)
}

// refusal is why a database is not migrated, in a sentence. Nothing was changed then.
type refusal string

// Error is the sentence.
func (r refusal) Error() string { return string(r) }

func refused(format string, args ...any) refusal { return refusal(fmt.Sprintf(format, args...)) }

// alone are the migrations beside which no gateway may run, for those of the version before would go on wrongly. 12: a
// message's id and key are NULL to them, and devices would be told empty ones. 13: the functions they send with are gone.
var alone = map[int]bool{12: true, 13: true}

// refuseBeside refuses a database on which gateways run.
func refuseBeside(ctx context.Context, tx pgx.Tx) error {
	live, err := liveGateways(ctx, tx)
	if err == nil && len(live) > 0 {
		return refused("gateways of an older version run on this database, and would not understand what is written after it: %s. "+
			"Stop them first; one that was killed counts until its lease is over, which takes 15 s unless -lease says otherwise", strings.Join(live, ", "))
	}
	return err
}

// checkPartitions refuses a layout of events that is not the one asked for.
func checkPartitions(ctx context.Context, tx pgx.Tx, want int) error {
	var have int
	err := tx.QueryRow(ctx, `SELECT GREATEST(1, (SELECT count(*) FROM pg_inherits WHERE inhparent = 'events'::regclass))`).Scan(&have)
	if err == nil && want != 0 && want != have {
		return refused("the log of this database is in %d partitions (1 = not partitioned), not in %d: "+
			"partitions are chosen when a database is made; make a new one, or leave them as they are", have, want)
	}
	return err
}

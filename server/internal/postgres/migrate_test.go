package postgres

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"imbench/server/internal/im"
)

// migratedTo is a store whose schema has only the first migrations.
func migratedTo(t *testing.T, version int) fixture {
	t.Helper()
	f := fixture{openTest(t)}
	f.exec(t, `DO $$ BEGIN EXECUTE 'DROP SCHEMA ' || current_schema() || ' CASCADE; CREATE SCHEMA ' || current_schema(); END $$`)
	f.exec(t, `CREATE TABLE schema_migrations (version integer PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now())`)
	files, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	for i, file := range files[:version] {
		sql, err := migrations.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		f.exec(t, string(sql))
		f.exec(t, `INSERT INTO schema_migrations VALUES ($1)`, i+1)
	}
	return f
}

// TestMigrationBesideGateways: what gateways of the version before would go on wrongly with is refused beside them, in one
// sentence and with nothing changed.
func TestMigrationBesideGateways(t *testing.T) {
	t.Parallel()
	f, ctx := migratedTo(t, 11), t.Context()
	f.exec(t, `INSERT INTO gateways (gateway_id, lease_until, holder) VALUES ('g2', clock_timestamp() + interval '1 hour', 'x'),
		('g1', clock_timestamp() + interval '1 hour', 'y'), ('g0', clock_timestamp() - interval '1 second', 'z')`)
	err := Migrate(ctx, f.pool)
	if err == nil || !strings.HasPrefix(err.Error(), "gateways of an older version run on this database, and would not understand what is written after it: g1, g2. Stop them first") || errors.Is(err, im.ErrUnavailable) {
		t.Errorf("beside two gateways: %v", err)
	}
	version := func() string { return f.text(t, `SELECT max(version)::text FROM schema_migrations`) }
	if got := version(); got != "11" {
		t.Errorf("the schema has version %s", got)
	}
	f.exec(t, `UPDATE gateways SET lease_until = clock_timestamp()`)
	if err := Migrate(ctx, f.pool); err != nil {
		t.Errorf("when their leases have lapsed: %v", err)
	}
	// Gateways of this version hold up nothing.
	f.exec(t, `UPDATE gateways SET lease_until = clock_timestamp() + interval '1 hour'`)
	if err := Migrate(ctx, f.pool); err != nil {
		t.Errorf("with nothing to do: %v", err)
	}
}

// TestMigrationTakesItsTime: whatever limit the store's connections have, a migration has none, for a large log's index takes
// as long as it takes; but it gives up waiting for a table.
func TestMigrationTakesItsTime(t *testing.T) {
	t.Parallel()
	f := migratedTo(t, 0)
	f.exec(t, `CREATE TABLE limits (statement_timeout text, lock_timeout text)`)
	f.exec(t, `CREATE FUNCTION note_limits() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN INSERT INTO limits VALUES (current_setting('statement_timeout'), current_setting('lock_timeout')); RETURN NEW; END $$`)
	f.exec(t, `CREATE TRIGGER note_limits BEFORE INSERT ON schema_migrations FOR EACH ROW EXECUTE FUNCTION note_limits()`)
	if err := Migrate(t.Context(), f.pool); err != nil {
		t.Fatal(err)
	}
	files, _ := fs.Glob(migrations, "migrations/*.sql")
	want := fmt.Sprintf("statement 0, lock 1min, %d times", len(files))
	if got := f.text(t, `SELECT string_agg(format('statement %s, lock %s, %s times', statement_timeout, lock_timeout, n), '; ')
		FROM (SELECT statement_timeout, lock_timeout, count(*) AS n FROM limits GROUP BY 1, 2) l`); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

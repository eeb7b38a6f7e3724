package postgres

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"imbench/server/internal/im/storetest"
	"imbench/server/internal/pgembed"
)

// testURL is a PostgreSQL to test on: DATABASE_URL, or a private one for the time of the tests.
var testURL string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		if testURL = os.Getenv("DATABASE_URL"); testURL != "" {
			return m.Run()
		}
		pg, err := pgembed.Start(context.Background(), pgembed.Config{Log: os.Stderr})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer pg.Stop()
		testURL = pg.URL("postgres")
		return m.Run()
	}())
}

var schemas atomic.Int64

// testPartitions are the hash partitions of events in all tests; TEST_PARTITIONS=n go test runs them on n.
var testPartitions, _ = strconv.Atoi(os.Getenv("TEST_PARTITIONS"))

// openTest opens a Store on a new schema, which goes with the test.
func openTest(t testing.TB, change ...func(*Config)) *Store {
	t.Helper()
	return openPartitioned(t, testPartitions, change...)
}

// openPartitioned is openTest with events in so many partitions; 0 = one table.
func openPartitioned(t testing.TB, partitions int, change ...func(*Config)) *Store {
	t.Helper()
	ctx := context.Background()
	admin, err := pgx.Connect(ctx, testURL)
	if err != nil {
		t.Fatal(err)
	}
	schema := fmt.Sprintf("test_%d_%d", os.Getpid(), schemas.Add(1))
	if _, err := admin.Exec(ctx, "CREATE SCHEMA "+schema); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := admin.Exec(ctx, "DROP SCHEMA "+schema+" CASCADE"); err != nil {
			t.Error(err)
		}
		admin.Close(ctx)
	})
	u, err := url.Parse(testURL)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("search_path", schema)
	q.Set("synchronous_commit", "off") // nothing here tests what a crash leaves, and the disk is shared
	u.RawQuery = q.Encode()
	// Tests of locked rows wait as long as this; the others must never reach it, on a busy machine either.
	cfg := Config{URL: u.String(), LockTimeout: 2 * time.Second}
	for _, f := range change {
		f(&cfg)
	}
	s, err := Open(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	if err := MigratePartitioned(ctx, s.Pool(), partitions); err != nil {
		t.Fatal(err)
	}
	return s
}

// fixture is a Store as the conformance suite wants it.
type fixture struct{ *Store }

func (f fixture) Provision(ctx context.Context, users []storetest.User, convs []storetest.Conv) error {
	return pgx.BeginFunc(ctx, f.pool, func(tx pgx.Tx) error {
		b := builder{n: &PopulationCounts{}}
		for _, u := range users {
			b.users = append(b.users, []any{u.ID, nil})
			for _, d := range u.Devices {
				b.devices = append(b.devices, []any{d, u.ID})
			}
		}
		for _, c := range convs {
			b.conversation(&PopulationConv{ID: c.ID, Kind: c.Kind, Mode: string(c.Mode), Members: c.Members}, nil)
			for i, m := range c.Members {
				b.member(c.ID, m, int64(i+1), c.Members[0])
			}
		}
		if err := b.flush(ctx, tx); err != nil {
			return err
		}
		for _, c := range convs {
			if _, err := tx.Exec(ctx, `INSERT INTO device_cursors (conv_id, device_id, install_epoch, epoch, delivered_seq)
				SELECT $1, device_id, 1, 1, $2 FROM devices WHERE user_id = ANY ($3)`, c.ID, len(c.Members), c.Members); err != nil {
				return err
			}
		}
		return nil
	})
}

func (f fixture) Lock(ctx context.Context, conv string) (func(), error) {
	tx, err := f.pool.Begin(ctx)
	if err != nil {
		return nil, err
	}
	if _, err = tx.Exec(ctx, `SELECT 1 FROM conversations WHERE conv_id = $1 FOR UPDATE`, conv); err != nil {
		return nil, err
	}
	return func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }, nil
}

func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Fixture { return fixture{openTest(t)} })
}

package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"imbench/server/internal/fault"
	"imbench/server/internal/im"
	"imbench/server/internal/im/storetest"
)

var ana = im.Principal{User: "ana", Device: "ana-d", Install: 1}

// withChat is a store with one direct conversation "c" of ana and ben.
func withChat(t *testing.T, change ...func(*Config)) fixture {
	t.Helper()
	f := fixture{openTest(t, change...)}
	err := f.Provision(t.Context(), []storetest.User{{ID: "ana", Devices: []string{"ana-d"}}, {ID: "ben", Devices: []string{"ben-d"}}},
		[]storetest.Conv{{ID: "c", Kind: "direct", Mode: im.Push, Members: []string{"ana", "ben"}}})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (f fixture) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	if _, err := f.pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

func (f fixture) sendOne(t *testing.T, cmid string) im.SendResult {
	t.Helper()
	res, err := f.SendBatch(t.Context(), []im.SendReq{{From: ana, Conv: "c", CMID: cmid, Body: "x"}}, true)
	if err != nil {
		t.Fatal(err)
	}
	return res[0]
}

// Requests of one batch whose key was used before, for another body than the first one's, are asked once more: in one call,
// however many they are, and if that fails the others keep their answers.
func TestRepeatedKeysAreAskedOnceMore(t *testing.T) {
	t.Parallel()
	reqs := []im.SendReq{{From: ana, Conv: "c", CMID: "old", Body: "1"}, {From: ana, Conv: "c", CMID: "new", Body: "y"}}
	for _, body := range []string{"2", "3", "x", "2", "x", "1"} { // x is what was sent
		reqs = append(reqs, im.SendReq{From: ana, Conv: "c", CMID: "old", Body: body})
	}
	mismatch, unknown := im.ErrIdempotencyMismatch, im.ErrUnavailable
	for name, c := range map[string]struct {
		faults string
		want   []error
	}{
		"two calls":             {"send.before_insert=error:3", []error{mismatch, nil, mismatch, mismatch, nil, mismatch, nil, mismatch}}, // the first sends x
		"the second call fails": {"send.before_insert=error:2", []error{mismatch, nil, unknown, unknown, unknown, unknown, unknown, mismatch}},
	} {
		t.Run(name, func(t *testing.T) {
			faults, err := fault.Parse(c.faults, "")
			if err != nil {
				t.Fatal(err)
			}
			f := withChat(t, func(cfg *Config) { cfg.Faults = faults })
			f.sendOne(t, "old")
			res, err := f.SendBatch(t.Context(), reqs, false)
			if err != nil {
				t.Fatal(err)
			}
			for i, r := range res {
				if !errors.Is(r.Err, c.want[i]) {
					t.Errorf("request %d: %+v, want %v", i, r, c.want[i])
				}
				if i != 1 && r.Err == nil && (!r.Dup || r.Seq != 3) {
					t.Errorf("request %d: %+v, want what was sent before", i, r)
				}
			}
			if r := res[1]; r.Dup || r.Seq != 4 {
				t.Errorf("the new message: %+v", r)
			}
		})
	}
}

func TestMigrateAtOnceAndAgain(t *testing.T) {
	t.Parallel()
	s := openTest(t)
	if _, err := s.pool.Exec(t.Context(), `DO $$ BEGIN EXECUTE 'DROP SCHEMA ' || current_schema() || ' CASCADE; CREATE SCHEMA ' || current_schema(); END $$`); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := Migrate(context.Background(), s.pool); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	var n int
	files, _ := fs.Glob(migrations, "migrations/*.sql")
	if err := s.pool.QueryRow(t.Context(), `SELECT count(*) FROM schema_migrations`).Scan(&n); err != nil || n != len(files) {
		t.Errorf("%d migrations are recorded, %v", n, err)
	}
	if _, err := s.pool.Exec(t.Context(), `INSERT INTO schema_migrations (version) VALUES (99)`); err != nil {
		t.Fatal(err)
	}
	if err := Migrate(t.Context(), s.pool); err == nil || !strings.Contains(err.Error(), "newer binary") {
		t.Errorf("a newer schema: %v", err)
	}
}

func TestOpenErrors(t *testing.T) {
	t.Parallel()
	if _, err := Open(t.Context(), Config{URL: "postgres://127.0.0.1:1/none?connect_timeout=1"}); !errors.Is(err, im.ErrUnavailable) {
		t.Errorf("nobody listens: %v", err)
	}
	if _, err := Open(t.Context(), Config{URL: "postgres://%"}); err == nil || errors.Is(err, im.ErrUnavailable) {
		t.Errorf("a malformed URL: %v", err)
	}
}

func TestTombstoneExpiresAKey(t *testing.T) {
	t.Parallel()
	f := withChat(t)
	f.exec(t, `INSERT INTO idem_tombstones VALUES ('c', 'ana', 'old', now() + interval '1 day')`)
	if r := f.sendOne(t, "old"); r.Err != im.ErrExpired {
		t.Errorf("%+v", r)
	}
	if r := f.sendOne(t, "new"); r.Err != nil || r.Seq != 3 {
		t.Errorf("%+v", r)
	}
}

func TestNewEpochReplacesCursors(t *testing.T) {
	t.Parallel()
	f := withChat(t)
	for i := range 5 {
		f.sendOne(t, fmt.Sprint(i))
	}
	ack := func(seq int64, epoch int32) im.AckResult {
		t.Helper()
		res, err := f.AckBatch(t.Context(), []im.AckReq{{From: ana, Conv: "c", Seq: seq, Epoch: epoch}})
		if err != nil {
			t.Fatal(err)
		}
		return res[0]
	}
	if r := ack(7, 1); r.Err != nil || r.Delivered != 7 {
		t.Fatalf("%+v", r)
	}
	f.exec(t, `UPDATE conversations SET epoch = 2`)
	if r := ack(7, 1); r.Err != im.ErrEpochChanged {
		t.Errorf("the old epoch: %+v", r)
	}
	if _, err := f.Sync(t.Context(), im.SyncReq{From: ana, Conv: "c", After: 7, Epoch: 1}); err != im.ErrEpochChanged {
		t.Errorf("sync of the old epoch: %v", err)
	}
	if list, _, err := f.Convs(t.Context(), ana, "", 0); err != nil || list[0].Delivered != 0 || list[0].Epoch != 2 {
		t.Errorf("%+v, %v", list, err)
	}
	if r := ack(3, 2); r.Err != nil || r.Delivered != 3 {
		t.Errorf("the new epoch: %+v", r)
	}
	if r := f.sendOne(t, "later"); r.Epoch != 2 {
		t.Errorf("%+v", r)
	}
}

// TestRetentionMovesTheStart: events below min_seq are not served, and sync says where the log starts.
func TestRetentionMovesTheStart(t *testing.T) {
	t.Parallel()
	f := withChat(t)
	for i := range 5 {
		f.sendOne(t, fmt.Sprint(i))
	}
	f.exec(t, `UPDATE conversations SET min_seq = 5`)
	page, err := f.Sync(t.Context(), im.SyncReq{From: ana, Conv: "c"})
	if err != nil || page.MinSeq != 5 || len(page.Events) != 3 || page.Events[0].Seq != 5 {
		t.Errorf("%+v, %v", page, err)
	}
}

// Pages of a batch end where a reply would: whoever goes on from there gets all, whether he shares his pages or not.
func TestPagesOfABatchAreBounded(t *testing.T) {
	t.Parallel()
	f := withChat(t)
	f.exec(t, `INSERT INTO events (conv_id, seq, kind, sender_user, client_msg_id, body, msg_no)
		SELECT 'c', n, 'msg', 'ana', 'k' || n, repeat('x', 8192), n - 2 FROM generate_series(3, 120) n`)
	f.exec(t, `UPDATE conversations SET next_seq = 121`)
	f.exec(t, `INSERT INTO users VALUES ('late')`)
	f.exec(t, `INSERT INTO membership_periods VALUES ('c', 'late', 61)`)
	after, seen := map[string]int64{}, map[string]int{}
	for range 20 {
		reqs := []im.SyncReq{{From: ana, Conv: "c", After: after["ana"], Limit: 200}, {From: im.Principal{User: "late"}, Conv: "c", After: after["late"], Limit: 200}}
		res, err := f.SyncBatch(t.Context(), reqs)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range res {
			user := reqs[i].From.User
			bytes := 0
			for _, e := range r.Page.Events {
				bytes += len(e.Body)
			}
			if r.Err != nil || bytes >= maxPageBytes+8192 || r.Page.HasMore != (r.Page.NextAfter < 120) {
				t.Fatalf("%s after %d: %d bytes, more %v, next %d, %v", user, after[user], bytes, r.Page.HasMore, r.Page.NextAfter, r.Err)
			}
			after[user] = r.Page.NextAfter
			seen[user] += len(r.Page.Events)
		}
	}
	if seen["ana"] != 120 || seen["late"] != 60 {
		t.Errorf("events seen: %v", seen)
	}
}

// A page of a log is an index scan that reads no more than the page, whether the log or only the end of it is visible.
func TestSyncReadsNoMoreThanThePage(t *testing.T) {
	t.Parallel()
	f := withChat(t)
	f.exec(t, `INSERT INTO events (conv_id, seq, kind, sender_user, client_msg_id, body, msg_no)
		SELECT 'c', n, 'msg', 'ana', 'k' || n, 'x', n - 2 FROM generate_series(3, 20000) n`)
	f.exec(t, `UPDATE conversations SET next_seq = 20001`)
	f.exec(t, `INSERT INTO membership_periods VALUES ('c', 'late', 19000)`)
	f.exec(t, `ANALYZE events, membership_periods, conversations`)
	for user, after := range map[string]int64{"ana": 10000, "late": 0} {
		rows, err := f.pool.Query(t.Context(), "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF) "+syncSQL, "c", user, after, 101)
		if err != nil {
			t.Fatal(err)
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		plan := strings.Join(lines, "\n")
		if !strings.Contains(plan, "_pkey on events") || strings.Contains(plan, "Seq Scan on events") || strings.Contains(plan, "Rows Removed by Filter: 1") {
			t.Errorf("%s:\n%s", user, plan)
		}
	}
}

func TestSendRefusesASnapshotFromBeforeTheLock(t *testing.T) {
	t.Parallel()
	f := withChat(t)
	err := pgx.BeginTxFunc(t.Context(), f.send, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) error {
		reqs, out := []im.SendReq{{From: ana, Conv: "c", CMID: "k", Body: "x"}}, make([]im.SendResult, 1)
		args, _ := sends(reqs, out)
		return args.batch(false).run(t.Context(), tx, reqs, out)
	})
	var pe *pgconn.PgError
	if !errors.As(err, &pe) || pe.Code != "25001" {
		t.Errorf("%v", err)
	}
}

func TestDBStats(t *testing.T) {
	t.Parallel()
	f := withChat(t)
	st, err := f.DBStats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if st.Version == "" || st.Commits == 0 || st.WALBytes == 0 || st.Settings["fsync"] == "" || st.Settings["max_wal_size"] == "" {
		t.Errorf("%+v", st)
	}
	for _, table := range []string{"events", "device_cursors", "conversations", "routes"} {
		if _, ok := st.Tables[table]; !ok {
			t.Errorf("%s is missing", table)
		}
	}
}

func TestInterpret(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		code, constraint string
		want             error
	}{
		{"08006", "", im.ErrUnavailable}, {"57P01", "", im.ErrUnavailable}, {"57014", "", im.ErrUnavailable},
		{"53300", "", im.ErrUnavailable}, {"40P01", "", im.ErrUnavailable}, {"25P03", "", im.ErrUnavailable},
		{"55P03", "", im.ErrBusy}, {"22021", "", im.ErrBadRequest}, {"23505", "users_pkey", ErrPopulationExists},
		{"23505", "direct_pairs_pkey", im.ErrBadRequest},
	} {
		in := &pgconn.PgError{Code: c.code, ConstraintName: c.constraint}
		if err := interpret(in); !errors.Is(err, c.want) || !errors.Is(err, in) {
			t.Errorf("%s %s: %v, want %v", c.code, c.constraint, err, c.want)
		}
	}
	for _, code := range []string{"23505", "42P01", "25001"} {
		err := interpret(&pgconn.PgError{Code: code, ConstraintName: "events_pkey"})
		for _, no := range []error{im.ErrUnavailable, im.ErrBusy, im.ErrBadRequest, ErrPopulationExists} {
			if err == nil || errors.Is(err, no) {
				t.Errorf("%s is %v", code, err)
			}
		}
	}
	if err := interpret(context.Canceled); !errors.Is(err, im.ErrUnavailable) || !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

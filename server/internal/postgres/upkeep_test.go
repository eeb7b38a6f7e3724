package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"imbench/server/internal/im"
	"imbench/server/internal/im/storetest"
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

// manyConvs provisions n groups of one member, whose join is their only event.
func manyConvs(t *testing.T, n int) fixture {
	t.Helper()
	f := fixture{openTest(t)}
	var convs []storetest.Conv
	for i := range n {
		convs = append(convs, storetest.Conv{ID: fmt.Sprintf("g%05d", i), Kind: "group", Mode: im.Push, Members: []string{"ana"}})
	}
	if err := f.Provision(t.Context(), []storetest.User{{ID: "ana", Devices: []string{"ana-d"}}}, convs); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f fixture) text(t *testing.T, sql string, args ...any) (s string) {
	t.Helper()
	if err := f.pool.QueryRow(t.Context(), sql, args...).Scan(&s); err != nil {
		t.Fatal(err)
	}
	return s
}

const epochsSQL = `SELECT string_agg(epoch || ': ' || n, ', ' ORDER BY epoch) FROM (SELECT epoch, count(*) AS n FROM conversations GROUP BY epoch) e`

// An interrupted run goes on where it stopped; after a restart of the server, as a restore needs one, it begins anew.
func TestRaiseAllEpochsInterrupted(t *testing.T) {
	t.Parallel()
	f := manyConvs(t, 2*epochStep+epochStep/2)
	interrupted := func() {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		if n, err := f.RaiseAllEpochs(ctx, func(int64) { cancel() }); !errors.Is(err, im.ErrUnavailable) || n != epochStep {
			t.Fatalf("interrupted: %d, %v", n, err)
		}
	}
	interrupted()
	if got := f.text(t, epochsSQL); got != "1: 1500, 2: 1000" {
		t.Fatalf("conversations by epoch after the interruption: %s", got)
	}
	var told []int64
	n, err := f.RaiseAllEpochs(t.Context(), func(done int64) { told = append(told, done) })
	if err != nil || n != 2500 || fmt.Sprint(told) != "[2000 2500]" {
		t.Fatalf("gone on: %d, %v, %v", n, err, told)
	}
	if got := f.text(t, epochsSQL); got != "2: 2500" {
		t.Fatalf("conversations by epoch: %s", got)
	}
	interrupted()
	f.exec(t, `UPDATE epoch_run SET server_start = server_start - interval '1 day'`)
	if n, err = f.RaiseAllEpochs(t.Context(), nil); err != nil || n != 2500 {
		t.Fatalf("after a restart: %d, %v", n, err)
	}
	if got := f.text(t, epochsSQL); got != "3: 1500, 4: 1000" {
		t.Fatalf("conversations by epoch after a restart: %s", got)
	}
	if got := f.text(t, `SELECT count(*)::text FROM epoch_run`); got != "0" {
		t.Fatal("the run left its mark")
	}
}

// One step is bounded in events and in conversations that it looks at, also if there is nothing to remove in them.
func TestRetainIsBounded(t *testing.T) {
	t.Parallel()
	const convs = 3*retainConvs + 10
	f := manyConvs(t, convs)
	f.exec(t, `UPDATE conversations SET retention_ms = 3600000, retain_at = clock_timestamp()`)
	f.exec(t, `UPDATE events SET created_at = created_at - interval '2 hours' WHERE conv_id < $1`, fmt.Sprintf("g%05d", convs/2))
	left := func() string {
		return f.text(t, `SELECT count(*) FILTER (WHERE retain_at <= clock_timestamp()) || ' due, '
			|| (SELECT count(*) FROM events) || ' events' FROM conversations`)
	}
	const limit = 30
	events, steps := int64(0), 0
	for more := true; more; steps++ {
		r, err := f.Retain(t.Context(), limit, time.Hour)
		if err != nil || r.Events > limit || r.Conversations > limit {
			t.Fatalf("step %d: %+v, %v", steps, r, err)
		}
		events, more = events+r.Events, r.More
	}
	if want := fmt.Sprintf("0 due, %d events", convs-convs/2); events != convs/2 || left() != want {
		t.Errorf("%d events removed, %s, want %s", events, left(), want)
	}
	if steps < convs/limit {
		t.Errorf("%d conversations looked at in %d steps of %d", convs, steps, limit)
	}
}

// A round finds what is due in an index, whatever else there is.
func TestRetainPlans(t *testing.T) {
	t.Parallel()
	f := manyConvs(t, 2000)
	f.exec(t, `UPDATE conversations SET retention_ms = 3600000, retain_at = clock_timestamp() + interval '1 hour'`)
	f.exec(t, `INSERT INTO idem_tombstones SELECT conv_id, 'ana', 'k', clock_timestamp() + interval '1 hour' FROM conversations`)
	f.exec(t, `ANALYZE conversations, idem_tombstones`)
	for index, sql := range map[string]string{
		"conversations_retain_at": `SELECT conv_id FROM conversations WHERE retain_at <= $1 ORDER BY retain_at LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED`,
		"idem_tombstones_expires": expireTombstonesSQL,
	} {
		rows, err := f.pool.Query(t.Context(), `EXPLAIN (ANALYZE, COSTS off, TIMING off, SUMMARY off) `+sql, time.Now(), 100)
		if err != nil {
			t.Fatal(err)
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		plan := strings.Join(lines, "\n")
		if !strings.Contains(plan, "Index Scan using "+index) || strings.Contains(plan, "Filter") || strings.Contains(plan, "Seq Scan") {
			t.Errorf("not by %s alone:\n%s", index, plan)
		}
	}
}

func TestTakeTurn(t *testing.T) {
	t.Parallel()
	f := fixture{openTest(t)}
	take := func(job, holder string, d time.Duration) bool {
		t.Helper()
		mine, err := f.TakeTurn(t.Context(), job, holder, d)
		if err != nil {
			t.Fatal(err)
		}
		return mine
	}
	for i, c := range []struct {
		job, holder string
		d           time.Duration
		want        bool
	}{
		{"a", "g1", time.Hour, true}, {"a", "g2", time.Hour, false}, {"b", "g2", time.Hour, true},
		{"a", "g1", -time.Second, true}, // prolonged, to a time that is over
		{"a", "g2", time.Hour, true}, {"a", "g1", time.Hour, false},
	} {
		if got := take(c.job, c.holder, c.d); got != c.want {
			t.Errorf("%d: %+v: %v", i, c, got)
		}
	}
}

func TestChangeConversation(t *testing.T) {
	t.Parallel()
	f, ctx := withChat(t), t.Context()
	pull, odd := im.Pull, im.Mode("mail")
	num := func(n int64) *int64 { return &n }
	for i, c := range []struct {
		conv   string
		change ConvChange
		want   ConvSettings
		err    error
	}{
		{"c", ConvChange{}, ConvSettings{"c", im.Push, 0, 120_000, nil, nil}, nil},
		{"c", ConvChange{Mode: &pull}, ConvSettings{"c", im.Pull, 0, 120_000, nil, nil}, nil},
		{"c", ConvChange{RetentionMS: num(5000)}, ConvSettings{"c", im.Pull, 5000, 120_000, nil, nil}, nil},
		{"c", ConvChange{RecallWindowMS: num(0)}, ConvSettings{"c", im.Pull, 5000, 0, nil, nil}, nil},
		{"c", ConvChange{RetentionMS: num(0), RecallWindowMS: num(MaxPeriodMS)}, ConvSettings{"c", im.Pull, 0, MaxPeriodMS, nil, nil}, nil},
		{"c", ConvChange{RetentionMS: num(-1)}, ConvSettings{}, im.ErrBadRequest},
		{"c", ConvChange{RecallWindowMS: num(MaxPeriodMS + 1)}, ConvSettings{}, im.ErrBadRequest},
		{"c", ConvChange{Mode: &odd}, ConvSettings{}, im.ErrBadRequest},
		{"none", ConvChange{Mode: &pull}, ConvSettings{}, im.ErrNotMember},
		{"c\x00", ConvChange{Mode: &pull}, ConvSettings{}, im.ErrNotMember},
	} {
		got, err := f.ChangeConversation(ctx, c.conv, c.change)
		if !errors.Is(err, c.err) || err == nil && got != c.want {
			t.Errorf("%d: %+v, %v, want %+v, %v", i, got, err, c.want, c.err)
		}
	}
	// The longest window there is does not overflow, and none means none.
	f.sendOne(t, "k")
	if r := f.Recall(ctx, im.RecallReq{From: ana, Conv: "c", Seq: 3, CMID: "r"}); r.Err != nil {
		t.Error(r.Err)
	}
	f.sendOne(t, "k2")
	if _, err := f.ChangeConversation(ctx, "c", ConvChange{RecallWindowMS: num(0)}); err != nil {
		t.Fatal(err)
	}
	if r := f.Recall(ctx, im.RecallReq{From: ana, Conv: "c", Seq: 5, CMID: "r2"}); !errors.Is(r.Err, im.ErrRecallWindow) {
		t.Errorf("no window: %+v", r)
	}
}

// The thresholds of a conversation are its own until they are given up, and fan-out reads them.
func TestChangeThresholds(t *testing.T) {
	t.Parallel()
	f, ctx := withChat(t), t.Context()
	num := func(n int64) *int64 { return &n }
	for i, c := range []struct {
		change         ConvChange
		settings, read string // hint_above and open_only_above
		err            error
	}{
		{ConvChange{}, "null null", "0 0", nil},
		{ConvChange{HintAbove: num(30), OpenOnlyAbove: num(0)}, "30 0", "30 -1", nil},
		{ConvChange{HintAbove: num(0), OpenOnlyAbove: num(MaxThreshold)}, "0 1000000", "-1 1000000", nil},
		{ConvChange{RetentionMS: num(0)}, "0 1000000", "-1 1000000", nil},
		{ConvChange{HintAbove: num(AsGateway)}, "null 1000000", "0 1000000", nil},
		{ConvChange{OpenOnlyAbove: num(AsGateway)}, "null null", "0 0", nil},
		{ConvChange{HintAbove: num(AsGateway - 1)}, "", "0 0", im.ErrBadRequest},
		{ConvChange{OpenOnlyAbove: num(MaxThreshold + 1)}, "", "0 0", im.ErrBadRequest},
	} {
		now, err := f.ChangeConversation(ctx, "c", c.change)
		hint, _ := json.Marshal(now.HintAbove) // a number or null
		open, _ := json.Marshal(now.OpenOnlyAbove)
		if got := string(hint) + " " + string(open); !errors.Is(err, c.err) || err == nil && got != c.settings {
			t.Errorf("%d: %s, %v, want %s, %v", i, got, err, c.settings, c.err)
		}
		infos, err := f.ConvInfos(ctx, []im.SeqRange{{Conv: "c", From: 1}})
		if err != nil || len(infos) != 1 {
			t.Fatalf("%d: %+v, %v", i, infos, err)
		}
		if got := fmt.Sprint(infos[0].HintAbove, infos[0].OpenOnlyAbove); got != c.read {
			t.Errorf("%d: fan-out reads %s, want %s", i, got, c.read)
		}
	}
}

// What a population says of retention and recall holds, and the first round comes when something may be due.
func TestPopulationRetention(t *testing.T) {
	t.Parallel()
	f, window := fixture{openTest(t)}, int64(7000)
	conv := newConv("ns-c", "group", "push", []string{"ns-u"})
	conv.RetentionMS, conv.RecallWindowMS = 3_600_000, &window
	_, err := f.CreatePopulation(t.Context(), PopulationSpec{Namespace: "ns", Owner: "test", Lease: time.Hour, Next: items(io.EOF,
		PopulationUser{"ns-u", []string{"ns-d"}}, conv, newConv("ns-e", "group", "push", []string{"ns-u"}))})
	if err != nil {
		t.Fatal(err)
	}
	got := f.text(t, `SELECT string_agg(conv_id || ' ' || recall_window_ms || ' ' || coalesce(retention_ms, 0) || ' '
		|| coalesce(retain_at > clock_timestamp() + interval '50 minutes' AND retain_at < clock_timestamp() + interval '1 hour', false), ', '
		ORDER BY conv_id) FROM conversations`)
	if got != "ns-c 7000 3600000 true, ns-e 120000 0 false" {
		t.Error(got)
	}
}

// The thresholds of a population's conversations are what fan-out reads.
func TestPopulationThresholds(t *testing.T) {
	t.Parallel()
	f := fixture{openTest(t)}
	own, never, without := newConv("ns-c", "group", "push", []string{"ns-u"}), newConv("ns-d", "group", "push", []string{"ns-u"}), newConv("ns-e", "group", "push", []string{"ns-u"})
	own.HintAbove, own.OpenOnlyAbove = new(int64(20)), new(int64(MaxThreshold))
	never.HintAbove = new(int64(0))
	_, err := f.CreatePopulation(t.Context(), PopulationSpec{Namespace: "ns", Owner: "test", Lease: time.Hour, Next: items(io.EOF,
		PopulationUser{"ns-u", []string{"ns-d"}}, own, never, without)})
	if err != nil {
		t.Fatal(err)
	}
	for conv, want := range map[string]string{"ns-c": "20 1000000", "ns-d": "-1 0", "ns-e": "0 0"} {
		infos, err := f.ConvInfos(t.Context(), []im.SeqRange{{Conv: conv, From: 1}})
		if err != nil || len(infos) != 1 {
			t.Fatalf("%s: %+v, %v", conv, infos, err)
		}
		if got := fmt.Sprint(infos[0].HintAbove, infos[0].OpenOnlyAbove); got != want {
			t.Errorf("%s: fan-out reads %s, want %s", conv, got, want)
		}
	}
}

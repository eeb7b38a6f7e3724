package postgres

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"imbench/server/internal/im"
	"imbench/server/internal/postgres/fill"
)

var update = flag.Bool("update", false, "write the golden files anew")

// planned is a call on the hot path. Its plans are those in testdata/plans, and it touches no more pages than most,
// however large the database is.
type planned struct {
	name string
	most int
	call func(context.Context, *explained) error
}

func plannedCalls() []planned {
	var (
		user  = ordinary
		group = fill.Group(1)
		send  = func(wait bool, conv ...string) func(context.Context, *explained) error {
			return func(ctx context.Context, e *explained) error {
				var reqs []im.SendReq
				for i, c := range conv {
					reqs = append(reqs, im.SendReq{From: user, Conv: c, CMID: fmt.Sprint(wait, len(conv), i), Body: "x"})
				}
				res, err := e.SendBatch(ctx, reqs, wait)
				return first(err, res, func(r im.SendResult) error { return r.Err })
			}
		}
		ack = func(seq ...int64) func(context.Context, *explained) error {
			return func(ctx context.Context, e *explained) error {
				var reqs []im.AckReq
				for _, s := range seq {
					reqs = append(reqs, im.AckReq{From: user, Conv: group, Seq: s}, im.AckReq{From: user, Conv: fill.Hot, Seq: s})
				}
				_, err := e.AckBatch(ctx, reqs)
				return err
			}
		}
	)
	return []planned{
		{"send", 200, send(false, group, fill.Hot, "f-p000035", group, fill.Hot)},
		{"send-contended", 120, send(true, group, fill.Hot)},
		{"send-one", 80, send(false, group)},
		{"send-one-contended", 80, send(true, group)},
		{"ack", 90, ack(600)},
		{"ack-refused", 90, ack(1 << 40)},
		{"ack-told", 40, func(ctx context.Context, e *explained) error {
			_, err := e.AckBatch(ctx, []im.AckReq{{From: user, Conv: group, Seq: 1 << 39, Epoch: 1, Told: true}, {From: user, Conv: fill.Hot, Seq: 1 << 39, Epoch: 1, Told: true}})
			return err
		}},
		{"read", 200, func(ctx context.Context, e *explained) error {
			res, err := e.ReadBatch(ctx, []im.ReadReq{{From: user, Conv: group, Seq: 1 << 40}, {From: user, Conv: fill.Hot, Seq: 1 << 40}})
			return first(err, res, func(r im.ReadResult) error { return r.Err })
		}},
		{"sync", 140, func(ctx context.Context, e *explained) error {
			p, err := e.Sync(ctx, im.SyncReq{From: user, Conv: fill.Hot, After: 20_000, Limit: 100})
			return rows(err, len(p.Events), 100)
		}},
		{"sync-batch", 140, func(ctx context.Context, e *explained) error {
			late := im.Principal{User: fill.User(2*fill.GroupMembers - 2)} // who is answered alone
			res, err := e.SyncBatch(ctx, []im.SyncReq{{From: user, Conv: fill.Hot, After: 20_000, Limit: 100}, {From: user, Conv: group, After: 200, Limit: 3},
				{From: late, Conv: group, After: 200, Limit: 3}})
			return first(err, res, func(r im.SyncResult) error { return r.Err })
		}},
		{"sync-rejoined", 220, func(ctx context.Context, e *explained) error {
			p, err := e.Sync(ctx, im.SyncReq{From: im.Principal{User: fill.User(2*fill.GroupMembers - 2)}, Conv: group, After: 200, Limit: 100})
			return rows(err, len(p.Events), 100)
		}},
		{"before", 140, func(ctx context.Context, e *explained) error {
			p, err := e.Before(ctx, user, fill.Hot, 20_000, 100)
			return rows(err, len(p.Events), 100)
		}},
		{"fetch", 20, func(ctx context.Context, e *explained) error {
			_, err := e.Fetch(ctx, user, fill.Hot, 20_000)
			return err
		}},
		{"convs", 1500, func(ctx context.Context, e *explained) error {
			list, _, err := e.Convs(ctx, many, "", 20)
			return rows(err, len(list), 20)
		}},
		{"standings", 350, func(ctx context.Context, e *explained) error {
			list, _, err := e.Standings(ctx, many, "", 20)
			return rows(err, len(list), 20)
		}},
		{"inbox", 1500, func(ctx context.Context, e *explained) error {
			list, _, err := e.Inbox(ctx, many, "", 20)
			return rows(err, len(list), 20)
		}},
		{"device", 30_000, func(ctx context.Context, e *explained) error {
			st, err := e.DeviceState(ctx, im.DeviceQuery{Device: many.Device, Limit: 20})
			return rows(err, len(st.Convs), 20)
		}},
		{"device-page", 1500, func(ctx context.Context, e *explained) error {
			st, err := e.DeviceState(ctx, im.DeviceQuery{Device: many.Device, ByID: true, Limit: 20})
			return rows(err, len(st.Convs), 20)
		}},
		{"receipts", 900, func(ctx context.Context, e *explained) error {
			r, err := e.Receipts(ctx, user, group, 600)
			return rows(err, int(r.Users), fill.GroupMembers-2)
		}},
		{"events", 80, func(ctx context.Context, e *explained) error {
			list, err := e.Events(ctx, []im.SeqRange{{Conv: group, From: 600, To: 602}, {Conv: fill.Hot, From: 20_000, To: 20_001}})
			return rows(err, len(list), 5)
		}},
		{"members", 80, func(ctx context.Context, e *explained) error {
			list, err := e.ConvInfos(ctx, []im.SeqRange{{Conv: group, From: 600}, {Conv: "f-p000035", From: 10}})
			return rows(err, len(list), 2)
		}},
		{"heads", 20, func(ctx context.Context, e *explained) error {
			heads, err := e.Heads(ctx, []string{group, fill.Hot, "f-p000035"})
			return rows(err, len(heads), 3)
		}},
		{"written", 4000, func(ctx context.Context, e *explained) error {
			list, err := e.Written(ctx, 0, time.Minute) // what this test wrote
			return rows(err, len(list), 3)
		}},
		{"lagging", 4000, func(ctx context.Context, e *explained) error {
			_, err := e.Lagging(ctx, fill.Gateway, []im.Head{{Conv: group, To: 700}, {Conv: fill.Hot, To: 20_000}}, 1000)
			return err
		}},
		{"recall", 120, func(ctx context.Context, e *explained) error {
			res, err := e.SendBatch(ctx, []im.SendReq{{From: user, Conv: group, CMID: "to recall", Body: "x"}}, true)
			if err := first(err, res, func(r im.SendResult) error { return r.Err }); err != nil {
				return err
			}
			e.forget()
			return e.Recall(ctx, im.RecallReq{From: user, Conv: group, Seq: res[0].Seq, CMID: "recall"}).Err
		}},
		{"leave", 100, func(ctx context.Context, e *explained) error {
			_, err := e.Leave(ctx, user, group, fill.User(40))
			return err
		}},
		{"join", 100, func(ctx context.Context, e *explained) error {
			_, err := e.Join(ctx, user, group, fill.User(40))
			return err
		}},
		{"direct", 20, func(ctx context.Context, e *explained) error {
			_, _, err := e.Direct(ctx, user, fill.Many)
			return err
		}},
		{"direct-new", 120, func(ctx context.Context, e *explained) error {
			_, created, err := e.Direct(ctx, user, fill.User(135))
			return rows(err, map[bool]int{true: 1}[created], 1)
		}},
		{"retain", 1500, func(ctx context.Context, e *explained) error {
			if _, err := e.ChangeConversation(ctx, fill.Group(2), ConvChange{RetentionMS: new(int64(24 * 3600 * 1000))}); err != nil {
				return err
			}
			e.forget()
			r, err := e.Retain(ctx, 20, time.Hour)
			return rows(err, int(r.Events), 20)
		}},
		{"claim", 60, func(ctx context.Context, e *explained) error {
			res, err := e.ClaimRoutes(ctx, []im.RouteClaim{{User: user.User, Device: user.Device, Install: 1, Gateway: "g", Conn: 1}})
			return first(err, res, func(r im.RouteResult) error { return r.Err })
		}},
		{"release", 40, func(ctx context.Context, e *explained) error {
			return e.ReleaseRoutes(ctx, []im.Route{{Device: user.Device, Generation: 1}})
		}},
		{"assert", 60, func(ctx context.Context, e *explained) error { // it has just been released
			lost, err := e.AssertRoutes(ctx, "g", []im.HeldRoute{{Route: im.Route{Device: user.Device, Generation: 1}, Conn: 1}})
			return rows(err, len(lost), 0)
		}},
		{"lapsed", 60, func(ctx context.Context, e *explained) error {
			lease, err := e.BeginLease(ctx, "h", "", time.Hour)
			if err != nil {
				return err
			}
			e.forget()
			_, err = e.RenewLease(ctx, "h", lease, time.Hour)
			return err
		}},
	}
}

// first is err, or the first error among results.
func first[R any](err error, res []R, of func(R) error) error {
	for i := 0; err == nil && i < len(res); i++ {
		err = of(res[i])
	}
	return err
}

func rows(err error, got, want int) error {
	if err == nil && got != want {
		err = fmt.Errorf("%d rows, want %d", got, want)
	}
	return err
}

// goldenPlans holds the plans of the calls on the hot path against testdata/plans, and the pages that they touch against
// their bounds. The files are of the small filling and of the major version that their first line names; with others only
// which table is read through which index is compared.
func goldenPlans(t *testing.T, f fixture) {
	e := explain(t, f.Store)
	var version int
	if err := f.pool.QueryRow(t.Context(), `SELECT current_setting('server_version_num')::int / 10000`).Scan(&version); err != nil {
		t.Fatal(err)
	}
	for _, c := range plannedCalls() {
		if err := e.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		e.take(t)
		if err := c.call(t.Context(), e); err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		list := e.take(t)
		got := fmt.Sprintf("PostgreSQL %d\n%s", version, shape(list))
		if n := pages(list); n > c.most || n == 0 {
			t.Errorf("%s: %d pages were touched, at most %d are right\n%s", c.name, n, c.most, got)
		}
		t.Logf("%s: %d pages of %d", c.name, pages(list), c.most)
		file := filepath.Join("testdata", "plans", c.name+".txt")
		if *update {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		want := string(data)
		if *full || !strings.HasPrefix(want, fmt.Sprintf("PostgreSQL %d\n", version)) {
			got, want = scans(got), scans(want)
		}
		if got != want {
			t.Errorf("%s: another plan (-update writes it to %s)\n%s\nwant\n%s", c.name, file, got, want)
		}
	}
}

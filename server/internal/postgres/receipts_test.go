package postgres

import (
	"errors"
	"testing"
	"time"

	"imbench/server/internal/im"
)

// Receipts of a group of a thousand look a member's position and cursor up and read the log once, not for each member;
// and they count those whom im_reader counts, at each seq.
func TestReceiptsOfALargeGroup(t *testing.T) {
	t.Parallel()
	f := fixture{openTest(t)}
	f.exec(t, `INSERT INTO users SELECT 'u' || n FROM generate_series(1, 1000) n`)
	f.exec(t, `INSERT INTO devices (device_id, user_id) SELECT 'd' || n, 'u' || n FROM generate_series(1, 1000) n`)
	f.exec(t, `INSERT INTO conversations (conv_id, kind, delivery_mode, next_seq) VALUES ('g', 'group', 'push', 1001)`)
	f.exec(t, `INSERT INTO membership_periods SELECT 'g', 'u' || n, n FROM generate_series(1, 1000) n`)
	f.exec(t, `INSERT INTO events (conv_id, seq, kind, sender_user, subject_user, msg_no) SELECT 'g', n, 'join', 'u1', 'u' || n, 0 FROM generate_series(1, 1000) n`)
	for i := range 4 { // some send every hundredth message, some once; a fifth has reported
		var reqs []im.SendReq
		for j := range 60 {
			n := []string{"u2", "u3", "u1", "u4", "u5"}[min(j%20, 4)]
			if j == 40 {
				n = "u6" // every sixtieth: not all of them are noted, so that the events behind the message decide
			}
			reqs = append(reqs, im.SendReq{From: im.Principal{User: n, Device: "d" + n[1:]}, Conv: "g", CMID: string(rune('a'+i)) + string(rune('0'+j)), Body: "x"})
		}
		if res, err := f.SendBatch(t.Context(), reqs, true); err != nil || res[59].Err != nil {
			t.Fatal(err, res)
		}
	}
	f.exec(t, `INSERT INTO read_positions (conv_id, user_id, read_seq) SELECT 'g', 'u' || n, 1000 + n % 240 FROM generate_series(10, 200) n`)
	f.exec(t, `INSERT INTO device_cursors (conv_id, device_id, install_epoch, epoch, delivered_seq) SELECT 'g', 'd' || n, 1, 1, 1001 + n % 240 FROM generate_series(1, 1000) n`)
	f.exec(t, `VACUUM ANALYZE events, conversations, membership_periods, read_positions, device_cursors, devices, users`)
	for seq := int64(1001); seq <= 1240; seq += 7 {
		var want int64
		if err := f.pool.QueryRow(t.Context(), `SELECT count(*) FROM membership_periods m CROSS JOIN LATERAL im_reader('g', m.user_id) s
			WHERE m.conv_id = 'g' AND s.read_seq >= $1 AND m.user_id <> (SELECT sender_user FROM events WHERE conv_id = 'g' AND seq = $1)`, seq).Scan(&want); err != nil {
			t.Fatal(err)
		}
		r, err := f.Receipts(t.Context(), im.Principal{User: "u1", Device: "d1"}, "g", seq)
		if err != nil || r.Read != want || r.Users != 999 || r.Devices != 999 {
			t.Errorf("%d: %+v, %v, want %d to have read", seq, r, err, want)
		}
	}
	const most = 8000 // pages: seven a member (a position, a device, its cursor) and the two tables of members and events
	pages, plan := f.cost(t, receiptsSQL, "g", int64(1100), "u1", "d1", int32(1))
	if pages == 0 || pages > most {
		t.Errorf("%d pages, want %d at most:\n%s", pages, most, plan)
	}
	t.Logf("%d pages", pages)
}

// A join, a leave and a recall wait for a locked conversation as long as ChangeWait says, and no longer.
func TestChangesWaitShortly(t *testing.T) {
	t.Parallel()
	f := withChat(t, func(c *Config) {
		c.ChangeWait, c.LockTimeout, c.StmtTimeout = 10*time.Millisecond, time.Minute, 5*time.Second
	})
	if got := f.text(t, `SHOW lock_timeout`); got != "1min" {
		t.Fatal(got)
	}
	release, err := f.Lock(t.Context(), "c")
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if _, err := f.Join(t.Context(), ana, "c", "x"); !errors.Is(err, im.ErrBusy) {
		t.Errorf("join: %v", err)
	}
	if _, err := f.Leave(t.Context(), ana, "c", "ben"); !errors.Is(err, im.ErrBusy) {
		t.Errorf("leave: %v", err)
	}
	if r := f.Recall(t.Context(), im.RecallReq{From: ana, Conv: "c", Seq: 1, CMID: "r"}); !errors.Is(r.Err, im.ErrBusy) {
		t.Errorf("recall: %v", r.Err)
	}
	for range f.cfg.Conns { // on whichever connection, the setting has ended with the change
		if got := f.text(t, `SHOW lock_timeout`); got != "1min" {
			t.Error(got)
		}
	}
}

// What is refused as a bad request says in a sentence what is bad, where the shape of the request does not.
func TestBadRequestsSayWhy(t *testing.T) {
	t.Parallel()
	f := withChat(t)
	_, _, direct := f.Direct(t.Context(), ana, "ana")
	_, join := f.Join(t.Context(), ana, "c", "x")
	_, leave := f.Leave(t.Context(), ana, "c", "ben")
	recall := f.Recall(t.Context(), im.RecallReq{From: ana, Conv: "c", Seq: 1, CMID: "r"}).Err
	_, receipts := f.Receipts(t.Context(), ana, "c", 1)
	for what, c := range map[string]struct {
		err  error
		want im.BadRequest
	}{
		"direct": {direct, "a direct conversation is with another user, not with oneself"},
		"join":   {join, "a direct conversation keeps its two members"}, "leave": {leave, "a direct conversation keeps its two members"},
		"recall":   {recall, "there is no message at this seq: only a message can be recalled, and has receipts"},
		"receipts": {receipts, "there is no message at this seq: only a message can be recalled, and has receipts"},
	} {
		if c.err != c.want {
			t.Errorf("%s: %v, want %v", what, c.err, c.want)
		}
	}
}

// Two processes with one gateway id: each finds out about the other, and drops no lease and no routes of the other's.
func TestLeaseOfTwoProcesses(t *testing.T) {
	t.Parallel()
	f, ctx := withChat(t), t.Context()
	other, err := Open(ctx, f.cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	elsewhere := func(lease, want string) {
		t.Helper()
		holder, until, err := f.LeaseElsewhere(ctx, "g", lease)
		if err != nil || holder != want || until.IsZero() != (want == "") {
			t.Errorf("another process has the lease: %q, %v, %v, want %q", holder, until, err, want)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	rows := func() string {
		return f.text(t, `SELECT (SELECT count(*) FROM gateways) || ' lease, ' || (SELECT count(*) FROM routes) || ' route'`)
	}
	elsewhere("", "")
	one, err := f.BeginLease(ctx, "g", "", time.Hour)
	must(err)
	elsewhere(one, "")
	elsewhere("", one)
	two, err := other.BeginLease(ctx, "g", one, time.Hour)
	must(err)
	elsewhere(one, two)
	for name, want := range map[string]bool{"of no connection": false, f.text(t, `SELECT current_setting('application_name')`): true} {
		if there, err := f.Connected(ctx, name); err != nil || there != want {
			t.Errorf("%q is connected: %v, %v", name, there, err)
		}
	}
	if _, err := other.ClaimRoutes(ctx, []im.RouteClaim{{User: "ana", Device: "ana-d", Install: 1, Gateway: "g", Conn: 1, Lease: two}}); err != nil {
		t.Fatal(err)
	}
	must(f.DropLease(ctx, "g", one))
	if got := rows(); got != "1 lease, 1 route" {
		t.Errorf("dropped by the other one: %s left", got)
	}
	if _, err := f.RenewLease(ctx, "g", one, time.Hour); err != im.ErrLeaseHeld {
		t.Errorf("renewed by the other one: %v", err)
	}
	must(other.DropLease(ctx, "g", two))
	if got := rows(); got != "0 lease, 0 route" {
		t.Errorf("dropped by its holder: %s left", got)
	}
}

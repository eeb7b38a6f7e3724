package postgres

import (
	"fmt"
	"testing"
	"time"

	"imbench/server/internal/im"
)

// rebuild leaves what a rebuild of c's log does that lost everything behind head.
func (f fixture) rebuild(t *testing.T, head int64) {
	t.Helper()
	f.exec(t, `DELETE FROM events WHERE conv_id = 'c' AND seq > $1`, head)
	f.exec(t, `UPDATE conversations c SET next_seq = $1 + 1, msg_count = (SELECT coalesce(max(msg_no), 0) FROM events e
		WHERE e.conv_id = 'c') WHERE conv_id = 'c'`, head)
}

func (f fixture) unread(t *testing.T, user string) int64 {
	t.Helper()
	list, _, err := f.Convs(t.Context(), im.Principal{User: user, Device: user + "-d", Install: 1}, "", 0)
	if err != nil || len(list) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	return list[0].Unread
}

var ben = im.Principal{User: "ben", Device: "ben-d", Install: 1}

const positionsSQL = `SELECT string_agg(user_id || ' ' || read_seq || ' ' || own_seq, ', ' ORDER BY user_id) FROM read_positions`

// After a rebuild that lost the log's end nobody has read, or sent, what is written there next.
func TestRaiseEpochLowersPositions(t *testing.T) {
	t.Parallel()
	f := withChat(t)
	for i := range 98 { // 3..100; ana's own_seq becomes 65
		f.sendOne(t, fmt.Sprint("k", i))
	}
	send := func(from im.Principal, cmid string) {
		t.Helper()
		res, err := f.SendBatch(t.Context(), []im.SendReq{{From: from, Conv: "c", CMID: cmid, Body: "x"}}, true)
		if err != nil || res[0].Err != nil {
			t.Fatal(err, res)
		}
	}
	send(ben, "k100") // 101: ben's own_seq
	if _, err := f.ReadBatch(t.Context(), []im.ReadReq{{From: ana, Conv: "c", Seq: 101}}); err != nil {
		t.Fatal(err)
	}
	if got := f.text(t, positionsSQL); got != "ana 101 65, ben 0 101" {
		t.Fatalf("before: %s", got)
	}
	f.rebuild(t, 50)
	if epoch, err := f.RaiseEpoch(t.Context(), "c"); err != nil || epoch != 2 {
		t.Fatalf("%d, %v", epoch, err)
	}
	if got := f.text(t, positionsSQL); got != "ana 50 50, ben 0 0" {
		t.Errorf("after the rebuild: %s", got)
	}
	if n := f.unread(t, "ben"); n != 48 {
		t.Errorf("ben has %d unread, want 48", n)
	}
	for i := range 10 {
		send(ben, fmt.Sprint("new", i)) // 51..60
	}
	if n := f.unread(t, "ana"); n != 10 {
		t.Errorf("ana has %d unread, want 10", n)
	}

	// Written to before the epoch was raised: own_seq is of another's message, though not past the head.
	f.rebuild(t, 40)
	for i := range 20 {
		send(ben, fmt.Sprint("again", i)) // 41..60
	}
	if _, err := f.RaiseEpoch(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	if got := f.text(t, positionsSQL); got != "ana 50 40, ben 0 0" {
		t.Errorf("after the second rebuild: %s", got)
	}

	// What retention removed need not be there; and a log that is whole changes nothing.
	f.exec(t, `UPDATE events SET created_at = created_at - interval '1 hour' WHERE seq < 55`)
	if err := f.SetRetention(t.Context(), "c", time.Minute); err != nil {
		t.Fatal(err)
	}
	f.exec(t, `UPDATE conversations SET retain_at = clock_timestamp() - interval '1 minute'`)
	if r, err := f.Retain(t.Context(), 100, time.Hour); err != nil || r.Events != 54 {
		t.Fatalf("%+v, %v", r, err)
	}
	if _, err := f.RaiseEpoch(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	if got := f.text(t, positionsSQL); got != "ana 50 40, ben 0 0" {
		t.Errorf("after retention: %s", got)
	}
}

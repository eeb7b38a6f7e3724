package postgres

import (
	"testing"
	"time"

	"imbench/server/internal/im"
)

// TestRoom: a new conversation's row has room for its next version, which the first send takes, be it in a batch or alone,
// and nothing gives it back: what is done to the row later finds a page with room.
func TestRoom(t *testing.T) {
	t.Parallel()
	f, ctx := withChat(t), t.Context()
	const roomSQL = `SELECT coalesce(length(room)::text, 'none') FROM conversations WHERE conv_id = $1`
	created, _, err := f.Direct(ctx, ana, "ben")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		conv  string
		sends int
	}{{"c", 1}, {created, 2}} {
		if got := f.text(t, roomSQL, c.conv); got != "63" {
			t.Errorf("%s: a new row has room for %s bytes", c.conv, got)
		}
		var reqs []im.SendReq
		for i := range c.sends {
			reqs = append(reqs, im.SendReq{From: ana, Conv: c.conv, CMID: string(rune('a' + i)), Body: "x"})
		}
		res, err := f.SendBatch(ctx, reqs, true)
		if err := first(err, res, func(r im.SendResult) error { return r.Err }); err != nil {
			t.Fatal(err)
		}
		if err := f.SetRetention(ctx, c.conv, time.Hour); err != nil {
			t.Fatal(err)
		}
		if got := f.text(t, roomSQL, c.conv); got != "none" {
			t.Errorf("%s: after a call with %d sends there is room for %s bytes", c.conv, c.sends, got)
		}
	}
}

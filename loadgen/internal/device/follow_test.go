package device

import (
	"testing"
	"time"

	"imbench/server/wire"
)

// TestFollowsAtOnce: what came while a sync was under way is asked for right after it, and so is the next page; neither
// waits for a timer.
func TestFollowsAtOnce(t *testing.T) {
	virtual(t, func(t *testing.T) {
		w := newWorld(t, 1, "push")
		w.wire.Delay = 50 * time.Millisecond
		w.gate.DropPush = func(string, string, int64) bool { return true }
		w.start()
		for range 12 {
			w.post("t-g0")
		}
		w.gate.Hint("t-u0-d1", "t-g0", "sweep")
		w.wait(60 * time.Millisecond) // the sync of the first page is under way
		w.post("t-g0")
		w.gate.Hint("t-u0-d1", "t-g0", "sweep")
		w.wait(200 * time.Millisecond)
		w.complete(0, 0)
	})
	virtual(t, func(t *testing.T) {
		w := newWorld(t, 1, "pull")
		w.gate.SyncDelay = 50 * time.Millisecond
		w.start()
		w.post("t-g0")
		w.wait(20 * time.Millisecond)
		w.post("t-g0") // its hint overtakes the page that does not have it
		w.wait(130 * time.Millisecond)
		w.complete(0, 0)
		if n := len(w.requests(wire.TSync)); n != 2 {
			t.Errorf("%d syncs, want 2", n)
		}
	})
}

// TestAcksSurviveReconnect: an ack whose reply was lost, and one that had not left, are made good right after the next
// session has begun; a hint of the sweep for what is applied already is answered with the ack that was waiting.
func TestAcksSurviveReconnect(t *testing.T) {
	virtual(t, func(t *testing.T) {
		w := newWorld(t, 1, "push", "push")
		w.cfg.AckDelay = time.Hour
		w.start()
		w.post("t-g0")
		w.wait(time.Second)
		w.gate.Hint("t-u0-d1", "t-g0", "sweep")
		w.wait(20 * time.Millisecond)
		if got := w.gate.Acked("t-g0", "t-u0-d1"); got != 2 {
			t.Errorf("acknowledged %d after the hint, want 2", got)
		}
		w.post("t-g1")
		w.wait(time.Second)
		w.gate.Kick("", wire.CloseSlow.Code, "")
		w.wait(2 * time.Second)
		if got := w.gate.Acked("t-g1", "t-u0-d1"); got != 2 {
			t.Errorf("acknowledged %d after the reconnect, want 2", got)
		}
		w.settled()
	})
}

// TestResendAfterReconnect: a send without a reply goes out again as soon as the next session is ready.
func TestResendAfterReconnect(t *testing.T) {
	virtual(t, func(t *testing.T) {
		w := newWorld(t, 1, "push")
		w.gate.DropReply = func(ty wire.Type, n int) bool { return ty == wire.TSent && n == 1 }
		w.start()
		w.send(0, 0)
		w.wait(10 * time.Millisecond)
		w.gate.Kick("", wire.CloseSlow.Code, "")
		w.wait(w.cfg.BackoffBase + 50*time.Millisecond)
		if n := len(w.requests(wire.TSend)); n != 2 {
			t.Errorf("%d sends written, want the second at once", n)
		}
		w.complete(0, 0)
	})
}

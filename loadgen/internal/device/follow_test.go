package device

import (
	"sync/atomic"
	"testing"
	"time"

	"imbench/loadgen/internal/sample"
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
		if lists := w.requests(wire.TConvs); len(lists) != 2 || lists[0].Brief || !lists[1].Brief {
			t.Errorf("the lists asked for, of which the second is to be brief: %+v", lists)
		}
		w.complete(0, 0)
	})
}

// TestPatience: who gets no reply asks again later each time, and not the more the slower a gateway is.
func TestPatience(t *testing.T) {
	virtual(t, func(t *testing.T) {
		w := newWorld(t, 1, "push")
		w.gate.DropReply = func(ty wire.Type, n int) bool { return ty == wire.TSent && n <= 6 }
		w.start()
		w.send(0, 0)
		for i, after := range []int64{1, 2, 4, 8, 8, 8} {
			w.wait(time.Duration(after)*w.cfg.ResendAfter - 100*time.Millisecond)
			if n := len(w.requests(wire.TSend)); n != i+1 {
				t.Fatalf("%d sends written before the time for number %d", n, i+2)
			}
			w.wait(100 * time.Millisecond)
		}
		w.wait(100 * time.Millisecond)
		w.complete(0, 0)
	})
}

// TestWentBack: a gateway that takes back what it confirmed is told of, in a reply and in the list after a reconnect; the
// late reply to an ack that was given up is no such thing.
func TestWentBack(t *testing.T) {
	virtual(t, func(t *testing.T) {
		w := newWorld(t, 1, "push")
		w.cfg.AckEvery = 1
		var back atomic.Int64
		w.gate.Tamper.Acked = func(_, _ string, before, now int64) int64 {
			if n := back.Load(); n > 0 {
				return before - n
			}
			return now
		}
		var lose atomic.Bool
		w.gate.DropReply = func(ty wire.Type, _ int) bool { return ty == wire.TAcked && lose.Load() }
		w.start()
		w.post("t-g0")
		w.wait(time.Second)
		if n := w.sink.wentBack(); len(n) != 0 {
			t.Fatalf("without cause: %+v", n)
		}
		back.Store(1)
		w.post("t-g0")
		w.wait(time.Second)
		if n := w.sink.wentBack(); len(n) != 1 || n[0].Seq != 1 || n[0].Events != 1 || n[0].Conv != 0 || n[0].Device != 0 {
			t.Fatalf("after a reply: %+v", n)
		}
		back.Store(0)
		w.post("t-g0")
		w.wait(time.Second)
		w.gate.SetAcked("t-g0", "t-u0-d1", 2)
		w.gate.Kick("", wire.CloseSlow.Code, "")
		w.wait(time.Minute)
		if n := w.sink.wentBack(); len(n) != 2 || n[1].Seq != 2 || n[1].Events != 2 {
			t.Fatalf("after the list: %+v", n)
		}
		w.settled()
		lose.Store(true)
		w.post("t-g0")
		w.wait(20 * time.Second)
		lose.Store(false) // the next reply is for an ack after one that was given up
		back.Store(3)
		w.wait(20 * time.Second)
		if n := w.sink.wentBack(); len(n) != 2 {
			t.Fatalf("what may be an old ack's reply was taken for a new one's: %+v", n)
		}
	})
}

func (n *notes) wentBack() (list []sample.Op) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, o := range n.ops {
		if o.Kind == sample.OpWentBack {
			list = append(list, o)
		}
	}
	return list
}

// TestAckBesideAnother: an ack that became due while the one before it was on its way leaves in its time, whatever the
// device had to do for another conversation meanwhile.
func TestAckBesideAnother(t *testing.T) {
	virtual(t, func(t *testing.T) {
		w := newWorld(t, 1, "push", "push")
		w.cfg.AckEvery, w.cfg.AckDelay = 100, 300*time.Millisecond
		w.wire.Delay = 60 * time.Millisecond
		w.start()
		w.post("t-g0")
		w.wait(40 * time.Millisecond)
		w.post("t-g1") // its ack leaves 40 ms after the other's, before the reply to that
		w.wait(290 * time.Millisecond)
		w.post("t-g0") // pushed behind the first ack's writing and before its reply
		w.wait(time.Second)
		w.settled()
	})
}

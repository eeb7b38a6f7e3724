package device

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"imbench/loadgen/internal/behavior"
	"imbench/loadgen/internal/clock"
	"imbench/loadgen/internal/sample"
	"imbench/server/wire"
)

// virtual runs a test in virtual time.
func virtual(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

// TestAckPolicy: four events make one ack at once, a single one an ack after the delay, and it covers what its delivery said.
func TestAckPolicy(t *testing.T) {
	virtual(t, func(t *testing.T) {
		w := newWorld(t, 1, "push")
		w.start()
		var last = w.post("t-g0")
		for range 3 {
			last = w.post("t-g0")
		}
		w.wait(100 * time.Millisecond)
		if acks := w.requests(wire.TAck); len(acks) != 1 || acks[0].Seq != 5 || acks[0].Epoch != 1 {
			t.Fatalf("after four events: acks %+v, want one of seq 5", acks)
		}
		posted := time.Now()
		w.post("t-g0")
		w.wait(5 * time.Second)
		acks := w.requests(wire.TAck)
		if len(acks) != 2 || acks[1].Seq != 6 {
			t.Fatalf("acks %+v, want a second of seq 6", acks)
		}
		if d := acks[1].At.Sub(posted); d < w.cfg.AckDelay || d > w.cfg.AckDelay+w.wire.Delay+2*granularity {
			t.Errorf("a single event was acknowledged after %v", d)
		}
		w.settled()
		op := w.sink.ops[len(w.sink.ops)-2]
		if op.Kind != sample.OpAck || op.Events != 4 || op.Msg != last || op.Code != "" {
			t.Errorf("the first ack was reported as %+v, want four events and the time of the fourth", op)
		}
		for _, d := range w.complete(0, 0) {
			if d.Path != sample.FirstPush || d.At.Sub(d.Intended) != w.wire.Delay || d.Own {
				t.Errorf("delivery %+v", d)
			}
		}
	})
}

// TestMeanwhile: after a frame the goroutine that took it may start other sends, of the same device too.
func TestMeanwhile(t *testing.T) {
	virtual(t, func(t *testing.T) {
		w := newWorld(t, 2, "push")
		var frames, sent atomic.Int64
		var once sync.Mutex // one at a time, as the pacer's
		w.meanwhile = func(now clock.Time) {
			if late := clock.Now().Sub(now); late != 0 {
				t.Errorf("told of a time %v ago", late)
			}
			frames.Add(1)
			once.Lock()
			defer once.Unlock()
			if n := sent.Load(); n < 20 && w.n.Ready.Load() == 2 {
				sent.Add(1)
				w.send(int32(n%2), 0)
			}
		}
		w.start()
		w.post("t-g0")
		w.wait(10 * time.Second)
		if sent.Load() != 20 || w.n.Done.Load() != 20 || frames.Load() < 40 { // a reply and a push each
			t.Errorf("%d sends begun, %d done, %d frames", sent.Load(), w.n.Done.Load(), frames.Load())
		}
		w.complete(0, 0)
		w.complete(1, 0)
		w.settled()
	})
}

// TestLostPushFoundByGap: the push after a lost one reveals it; the sync is attributed to the lost message, and the push
// that had come keeps its path.
func TestLostPushFoundByGap(t *testing.T) {
	virtual(t, func(t *testing.T) {
		w := newWorld(t, 1, "push")
		w.cfg.Loss = 0.5
		for behavior.Lost(w.cfg.Seed, 0, 0, 2, 0.5) || !behavior.Lost(w.cfg.Seed, 0, 0, 3, 0.5) || behavior.Lost(w.cfg.Seed, 0, 0, 4, 0.5) {
			w.cfg.Seed++
		}
		w.start()
		w.post("t-g0")
		lost := w.post("t-g0")
		w.wait(time.Second)
		w.post("t-g0")
		w.wait(5 * time.Second)
		got := w.complete(0, 0)
		want := []sample.Path{sample.FirstPush, sample.Repaired, sample.FirstPush}
		for i, p := range want {
			if got[i].Path != p {
				t.Errorf("event %d came by path %d, want %d", got[i].Seq, got[i].Path, p)
			}
		}
		if s := w.requests(wire.TSync); len(s) != 1 || s[0].After != 2 {
			t.Fatalf("syncs %+v, want one after 2", s)
		}
		for _, f := range w.sink.frames {
			if (f.Type == sample.FSync || f.Type == sample.FSynced || f.Type == sample.FEventDiscarded) && f.Msg != lost {
				t.Errorf("%v is attributed to %d, want the lost message's %d", f.Type, f.Msg, lost)
			}
		}
		if n := w.sink.frameCount(sample.FEventDiscarded, sample.Down); n != 1 {
			t.Errorf("%d pushes discarded, want 1", n)
		}
		if n := w.sink.frameCount(sample.FEvent, sample.Down); n != 3 {
			t.Errorf("%d pushes counted, want 3: the discarded one too", n)
		}
		w.settled()
	})
}

// TestLostPushFoundBySweep: nothing follows the lost push, so a hint of the sweep reveals it.
func TestLostPushFoundBySweep(t *testing.T) {
	virtual(t, func(t *testing.T) {
		w := newWorld(t, 1, "push")
		w.gate.DropPush = func(string, string, int64) bool { return true }
		w.start()
		lost := w.post("t-g0")
		w.wait(4 * time.Second)
		w.gate.Hint("t-u0-d1", "t-g0", "sweep")
		w.wait(4 * time.Second)
		if got := w.complete(0, 0); got[0].Path != sample.Repaired {
			t.Errorf("path %d, want repaired", got[0].Path)
		}
		for _, f := range w.sink.frames {
			if f.Type == sample.FHint && f.Msg != lost {
				t.Errorf("the hint is attributed to %d, want %d", f.Msg, lost)
			}
		}
		// A second hint of the same head asks for nothing.
		w.gate.Hint("t-u0-d1", "t-g0", "sweep")
		w.wait(time.Second)
		if n := len(w.requests(wire.TSync)); n != 1 {
			t.Errorf("%d syncs, want 1", n)
		}
		w.settled()
	})
}

// TestPullMergesHints: hints that come while a sync is under way make one more, not one each.
func TestPullMergesHints(t *testing.T) {
	virtual(t, func(t *testing.T) {
		w := newWorld(t, 1, "pull")
		w.wire.Delay = 200 * time.Millisecond
		w.start()
		for range 4 {
			w.post("t-g0")
			time.Sleep(10 * time.Millisecond)
		}
		w.wait(time.Second)
		for _, d := range w.complete(0, 0) {
			if d.Path != sample.PulledHint {
				t.Errorf("event %d came by path %d, want a pulled hint", d.Seq, d.Path)
			}
		}
		if n := len(w.requests(wire.TSync)); n > 2 {
			t.Errorf("%d syncs for four hints within one round trip, want at most 2", n)
		}
		if n := w.sink.frameCount(sample.FHint, sample.Down); n != 4 {
			t.Errorf("%d hints counted, want 4", n)
		}
		if n := len(w.requests(wire.TOpen)); n != 1 {
			t.Errorf("%d opens, want 1: the device reads this conversation", n)
		}
		w.wait(3 * time.Second)
		w.settled()
	})
}

// TestPullUnread: a device that does not read ignores hints, and that counts as settled.
func TestPullUnread(t *testing.T) {
	virtual(t, func(t *testing.T) {
		w := newWorld(t, 1, "pull")
		w.cfg.ReadingShare = 0
		w.start()
		w.post("t-g0")
		w.send(0, 0) // nor does its own message make it read
		w.wait(5 * time.Second)
		if n := len(w.requests(wire.TSync)); n != 0 {
			t.Errorf("%d syncs, want none", n)
		}
		if n := len(w.sink.sends); n != 1 {
			t.Errorf("%d sends answered, want 1", n)
		}
		w.settled()
	})
}

// TestOwnSendBetweenPushes: a push that follows one's own message does not look like a loss while the reply is awaited,
// and a reply that overtakes a push waits for it.
func TestOwnSendBetweenPushes(t *testing.T) {
	virtual(t, func(t *testing.T) {
		w := newWorld(t, 2, "push")
		w.gate.DropReply = func(ty wire.Type, n int) bool { return ty == wire.TSent && n == 1 }
		w.cfg.GapWait, w.cfg.ResendAfter = 30*time.Second, time.Second
		w.start()
		w.send(0, 0) // seq 3; its reply is lost, and comes with the resend
		w.post("t-g0")
		w.wait(500 * time.Millisecond)
		if n := len(w.sink.applied(0, 0)); n != 0 {
			t.Fatalf("%d events applied before the own one is known", n)
		}
		w.wait(10 * time.Second)
		got := w.complete(0, 0)
		if !got[0].Own || got[1].Own || got[1].Path != sample.FirstPush {
			t.Errorf("applied %+v", got)
		}
		if n := len(w.requests(wire.TSync)); n != 0 {
			t.Errorf("%d syncs, want none: nothing was lost", n)
		}
		if s := w.sink.sends; len(s) != 1 || !s[0].Dup || s[0].Resends != 1 || s[0].Seq != 3 || s[0].BodyHash != got[0].BodyHash {
			t.Errorf("send reported as %+v", s)
		}
		sends := w.requests(wire.TSend)
		if len(sends) != 2 || sends[0].CMID != sends[1].CMID || sends[0].Body != sends[1].Body {
			t.Errorf("the resend differs from the send: %+v", sends)
		}
		w.complete(1, 0)
		w.settled()
	})
}

// TestGapThatNoReplyCloses: if the reply that would close a gap does not come, a sync brings one's own message.
func TestGapThatNoReplyCloses(t *testing.T) {
	virtual(t, func(t *testing.T) {
		w := newWorld(t, 1, "push")
		w.gate.DropReply = func(ty wire.Type, n int) bool { return ty == wire.TSent && n == 1 }
		w.start()
		w.send(0, 0)
		w.post("t-g0")
		w.wait(time.Second)
		if got := w.complete(0, 0); !got[0].Own || got[1].Own {
			t.Errorf("applied %+v, want the first as own", got)
		}
		w.wait(12 * time.Second) // the resend's reply changes nothing
		w.complete(0, 0)
		w.settled()
	})
}

// TestWireRepeatIsCounted: what comes twice is applied once.
func TestWireRepeatIsCounted(t *testing.T) {
	virtual(t, func(t *testing.T) {
		w := newWorld(t, 1, "push")
		w.start()
		w.post("t-g0")
		w.wait(time.Second)
		w.gate.Push("t-u0-d1", "t-g0", 2)
		w.wait(5 * time.Second)
		w.complete(0, 0)
		if n := len(w.sink.deliveries); n != 2 || !w.sink.deliveries[1].WireRepeat {
			t.Errorf("deliveries %+v, want the second as a repeat", w.sink.deliveries)
		}
	})
}

// TestUnknownOutcomes: UNAVAILABLE repeats under the same cmid; a refusal for good ends the send.
func TestUnknownOutcomes(t *testing.T) {
	virtual(t, func(t *testing.T) {
		w := newWorld(t, 1, "push")
		w.gate.Refuse = func(r *wire.Request, before int) (wire.Code, int) {
			switch {
			case r.T == wire.TSend && before == 0:
				return wire.Unavailable, 0
			case r.T == wire.TSend && before == 1:
				return wire.RateLimited, 3000
			case r.T == wire.TSend && r.CMID == "cmid-2":
				return wire.NotMember, 0
			case r.T == wire.TAck && before == 0:
				return wire.Unavailable, 0
			}
			return "", 0
		}
		w.start()
		w.send(0, 0)
		w.wait(8 * time.Second)
		w.send(0, 0)
		w.wait(8 * time.Second)
		s := w.sink.sends
		if len(s) != 2 || s[0].Code != "" || s[0].Resends != 2 || s[0].Done.Sub(s[0].Start) < 3*time.Second || s[1].Code != "NOT_MEMBER" {
			t.Fatalf("sends reported as %+v", s)
		}
		if w.gate.Acked("t-g0", "t-u0-d1") != 2 {
			t.Error("the ack was not repeated after UNAVAILABLE")
		}
		if w.n.Done.Load() != 1 || w.n.Failed.Load() != 1 {
			t.Errorf("counted %d done, %d failed", w.n.Done.Load(), w.n.Failed.Load())
		}
		w.settled()
	})
}

// TestInFlightLimit: more than the limit wait, in order, and start as places become free.
func TestInFlightLimit(t *testing.T) {
	virtual(t, func(t *testing.T) {
		w := newWorld(t, 1, "push")
		w.cfg.InFlight = 3
		w.start()
		for range 10 {
			w.send(0, 0)
		}
		if n := len(w.requests(wire.TSend)); n != 3 {
			t.Fatalf("%d sends written at once, want 3", n)
		}
		if n := w.g.waiting.Load(); n != 7 {
			t.Errorf("%d sends counted as waiting, want 7", n)
		}
		w.wait(5 * time.Second)
		sends := w.requests(wire.TSend)
		for i, e := range w.gate.Log("t-g0")[1:] {
			if e.CMID != sends[i].CMID {
				t.Errorf("message %d is %s, sent as %s", i, e.CMID, sends[i].CMID)
			}
		}
		if got := w.complete(0, 0); len(got) != 10 {
			t.Errorf("%d messages", len(got))
		}
		w.settled()
	})
}

// TestReconnect: what was under way is taken up again, and the latency of what was missed counts: it is repaired.
func TestReconnect(t *testing.T) {
	virtual(t, func(t *testing.T) {
		w := newWorld(t, 2, "push", "push", "push")
		w.gate.DropReply = func(ty wire.Type, n int) bool { return ty == wire.TSent && n == 1 }
		w.start()
		w.send(0, 0)
		w.wait(10 * time.Millisecond)
		w.gate.Kick("t-u0-d1", wire.CloseDraining.Code, "retry_after_ms=2000")
		w.wait(10 * time.Millisecond)
		w.post("t-g2")
		away := time.Now()
		w.send(0, 1) // while it is away
		w.wait(5 * time.Second)
		if h := w.requests(wire.THello); len(h) != 3 || h[2].At.Sub(away) < 1900*time.Millisecond {
			t.Fatalf("hellos %+v, want a third after the two seconds that the gateway asked for", h)
		}
		w.wait(5 * time.Second)
		for c := range int32(3) {
			w.complete(0, c)
			w.complete(1, c)
		}
		if got := w.sink.applied(0, 2); got[0].Path != sample.Repaired {
			t.Errorf("what was missed came by path %d, want repaired", got[0].Path)
		}
		if len(w.sink.reconnects) != 1 || w.sink.reconnects[0] != wire.CloseDraining.Code {
			t.Errorf("reconnects %v", w.sink.reconnects)
		}
		w.settled()
	})
}

// TestNotAdmitted: the place that 4009 tells is taken at its time, but not for ever; a terminal close ends the device.
func TestNotAdmitted(t *testing.T) {
	virtual(t, func(t *testing.T) {
		w := newWorld(t, 1, "push")
		w.gate.Admit = func(n int) (bool, int) { return n == 6 || n > 9, 1500 }
		w.open()
		w.g.Start(0, "mem")
		w.wait(time.Minute)
		h := w.requests(wire.THello)
		if len(h) != 6 {
			t.Fatalf("hellos %+v", h)
		}
		for i := range 5 {
			if gap := h[i+1].At.Sub(h[i].At); (gap < 1510*time.Millisecond) != (i < placesInVain) || gap < 1500*time.Millisecond {
				t.Errorf("hello %d came after %v", i+2, gap)
			}
		}
		// After a session that was lost there are as many places to take.
		w.gate.Kick("", wire.CloseSlow.Code, "")
		w.wait(time.Minute)
		if h = w.requests(wire.THello); len(h) != 10 || h[9].At.Sub(h[6].At) > 3*1510*time.Millisecond {
			t.Errorf("after a lost session: %d hellos, %v from the first to the last", len(h), h[len(h)-1].At.Sub(h[6].At))
		}
		w.settled()
		w.gate.Kick("", wire.CloseReplaced.Code, "replaced")
		w.wait(time.Minute)
		if n := len(w.requests(wire.THello)); n != 10 || w.n.Ended.Load() != 1 || w.n.Connected.Load() != 0 || w.n.Ready.Load() != 0 {
			t.Errorf("after a terminal close: %d hellos, %d ended, %d connected", n, w.n.Ended.Load(), w.n.Connected.Load())
		}
	})
}

// TestHalfOpen: a session on which nothing is heard for two and a half heartbeats is given up, and so is one whose hello is not answered.
func TestHalfOpen(t *testing.T) {
	virtual(t, func(t *testing.T) {
		w := newWorld(t, 1, "push")
		w.gate.Heartbeat = 4 * time.Second
		w.start()
		w.wait(9 * time.Second)
		if n := len(w.requests(wire.THello)); n != 1 {
			t.Fatalf("%d hellos before the time", n)
		}
		w.gate.Silent.Store(true)
		w.wait(5 * time.Second)
		if n := len(w.requests(wire.THello)); n != 2 {
			t.Fatalf("%d hellos, want a second", n)
		}
		w.wait(11 * time.Second) // the dial timeout
		if n := len(w.requests(wire.THello)); n < 3 {
			t.Errorf("%d hellos, want a third: the second was never answered", n)
		}
	})
}

// TestCensored: what has no outcome at the end is reported with the time it has waited.
func TestCensored(t *testing.T) {
	virtual(t, func(t *testing.T) {
		w := newWorld(t, 1, "push")
		w.gate.DropReply = func(ty wire.Type, _ int) bool { return ty == wire.TSent }
		w.cfg.InFlight = 1
		w.start()
		w.send(0, 0)
		w.send(0, 0)
		w.wait(3 * time.Second)
		w.g.Close()
		s := w.sink.sends
		if len(s) != 2 || !s[0].Censored || s[0].Code != CodeTimeout || !s[1].Censored || s[1].Code != CodeDisconnected ||
			s[0].Done.Sub(s[0].Intended) < 3*time.Second {
			t.Errorf("sends reported as %+v", s)
		}
		if w.g.waiting.Load() != 0 {
			t.Error("the count of waiting sends is not balanced")
		}
	})
}

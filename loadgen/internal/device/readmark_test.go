package device

import (
	"testing"
	"time"

	"imbench/loadgen/internal/sample"
	"imbench/server/wire"
)

// reports are the read requests so far, as seqs.
func (w *world) reports() (seqs []int64) {
	for _, r := range w.requests(wire.TRead) {
		seqs = append(seqs, r.Seq)
	}
	return seqs
}

func (w *world) reported(want ...int64) {
	w.t.Helper()
	got := w.reports()
	if len(got) != len(want) {
		w.t.Fatalf("reported %v, want %v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			w.t.Fatalf("reported %v, want %v", got, want)
		}
	}
}

// TestReadReports: one report after the debounce covers what came meanwhile; having sent something needs none; nothing new,
// nothing told.
func TestReadReports(t *testing.T) {
	virtual(t, func(t *testing.T) {
		w := newWorld(t, 1, "push")
		w.cfg.ReadReports, w.cfg.ReadDebounce = 1, time.Second
		w.start()
		at := w.post("t-g0")
		w.wait(500 * time.Millisecond)
		last := w.post("t-g0")
		w.reported()
		w.wait(600 * time.Millisecond)
		w.reported(3)
		w.wait(5 * time.Second)
		w.reported(3)
		w.post("t-g0")
		w.wait(100 * time.Millisecond)
		w.send(0, 0)
		w.wait(5 * time.Second)
		w.reported(3)
		w.settled()
		var ops []sample.Op
		for _, o := range w.sink.ops {
			if o.Kind == sample.OpRead {
				ops = append(ops, o)
			}
		}
		if len(ops) != 1 || ops[0].Msg != last || ops[0].Code != "" || ops[0].Start.Sub(at) < time.Second || ops[0].Done.Sub(ops[0].Start) != 5*time.Millisecond {
			t.Errorf("operations %+v", ops)
		}
		if up, down := w.sink.frameCount(sample.FRead, sample.Up), w.sink.frameCount(sample.FReaded, sample.Down); up != 1 || down != 1 {
			t.Errorf("%d reports and %d replies counted", up, down)
		}
	})
}

// TestReadReportIsTakenUp: a report that got no reply, an error that leaves the outcome open, or no more session, is told
// again; one that is refused for good is not.
func TestReadReportIsTakenUp(t *testing.T) {
	for name, c := range map[string]struct {
		before func(w *world)
		during func(w *world)
		want   []int64
	}{
		"no reply": {func(w *world) {
			w.gate.DropReply = func(ty wire.Type, n int) bool { return ty == wire.TReaded && n == 1 }
		}, nil, []int64{2, 2}},
		"unavailable": {func(w *world) { w.gate.Refuse = refuseRead(wire.Unavailable) }, nil, []int64{2, 2}},
		"refused":     {func(w *world) { w.gate.Refuse = refuseRead(wire.NotMember) }, nil, []int64{2}},
		"left": {func(w *world) {
			w.gate.DropReply = func(ty wire.Type, n int) bool { return ty == wire.TReaded && n == 1 }
		},
			func(w *world) { w.g.Leave(0) }, []int64{2, 2}},
		"left before": {nil, nil, []int64{2}},
	} {
		virtual(t, func(t *testing.T) {
			w := newWorld(t, 1, "push")
			w.cfg.ReadReports, w.cfg.ReadDebounce, w.cfg.ResendAfter = 1, time.Second, 3*time.Second
			if c.before != nil {
				c.before(w)
			}
			w.start()
			w.post("t-g0")
			if name == "left before" {
				w.wait(500 * time.Millisecond)
				w.g.Leave(0)
			}
			w.wait(1100 * time.Millisecond)
			if c.during != nil {
				c.during(w)
			}
			w.wait(20 * time.Second)
			t.Log(name)
			w.reported(c.want...)
			w.settled()
		})
	}
}

func refuseRead(code wire.Code) func(*wire.Request, int) (wire.Code, int) {
	return func(r *wire.Request, before int) (wire.Code, int) {
		if r.T == wire.TRead && before == 0 {
			return code, 100
		}
		return "", 0
	}
}

// TestLeave: a device that leaves closes in order, comes back to its gateway and gets what it missed; one that is not there
// is no matter.
func TestLeave(t *testing.T) {
	virtual(t, func(t *testing.T) {
		w := newWorld(t, 2, "push")
		w.start()
		w.g.Leave(0)
		w.wait(time.Millisecond)
		w.post("t-g0")
		w.g.Leave(0)
		w.wait(5 * time.Second)
		w.complete(0, 0)
		w.complete(1, 0)
		w.settled()
		if n := w.n.Reconnects.Load(); n != 1 {
			t.Errorf("%d reconnects, want 1", n)
		}
	})
}

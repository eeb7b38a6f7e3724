package device

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"imbench/loadgen/internal/sample"
	"imbench/loadgen/internal/testgate"
	"imbench/loadgen/protocol"
	"imbench/server/wire"
)

// choice is a wire to several gateways, all the same gate, of which some may be down. It remembers who was called.
type choice struct {
	*testgate.Wire
	mu     sync.Mutex
	down   map[string]bool
	called []string
}

func (c *choice) Dial(ctx context.Context, target, token string) (protocol.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.called = append(c.called, target)
	if c.down[target] {
		return nil, errors.New("connection refused")
	}
	return c.Wire.Dial(ctx, target, token)
}

// TestAnotherGateway: a cut device comes back to its gateway; one whose gateway drains or is gone goes to another, with the
// same cmid for what was under way; one that was not admitted waits where it is.
func TestAnotherGateway(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(w *world, c *choice)
		want []string // who is called after the first session
	}{
		"cut":      {func(w *world, _ *choice) { w.g.Cut(0, 0) }, []string{"b"}},
		"drained":  {func(w *world, _ *choice) { w.gate.Kick("", wire.CloseDraining.Code, "") }, []string{"a"}},
		"too slow": {func(w *world, _ *choice) { w.gate.Kick("", wire.CloseSlow.Code, "") }, []string{"b"}},
		"killed":   {func(w *world, c *choice) { c.down["b"] = true; w.g.Cut(0, 0) }, []string{"b", "a"}},
		"not admitted": {func(w *world, _ *choice) {
			w.gate.Admit = func(n int) (bool, int) { return n > 2, 100 }
			w.g.Cut(0, 0)
		}, []string{"b", "b"}},
		"all down": {func(w *world, c *choice) { c.down["a"], c.down["b"] = true, true; w.g.Cut(0, 0) }, []string{"b", "a", "b"}},
	} {
		virtual(t, func(t *testing.T) {
			w := newWorld(t, 1, "push")
			ch := &choice{Wire: w.wire, down: map[string]bool{}}
			w.gate.DropReply = func(ty wire.Type, n int) bool { return ty == wire.TSent && n == 1 }
			w.openOn(ch)
			w.g.Start(0, "b", "a", "b")
			w.wait(time.Second)
			w.send(0, 0)
			w.wait(10 * time.Millisecond)
			c.end(w, ch)
			w.wait(4 * time.Second)
			ch.mu.Lock()
			called := ch.called[1:]
			ch.mu.Unlock()
			if len(called) < len(c.want) {
				t.Fatalf("%s: then called %v, want %v", name, called, c.want)
			}
			for i, want := range c.want {
				if called[i] != want {
					t.Errorf("%s: then called %v, want %v", name, called, c.want)
				}
			}
			if name == "all down" {
				return
			}
			sends := w.requests(wire.TSend)
			if len(sends) != 2 || sends[0].Request.CMID != sends[1].Request.CMID {
				t.Errorf("%s: sends %+v, want the same one twice", name, sends)
			}
			w.complete(0, 0)
			w.settled()
			if n := w.sink.reconnectOps(); n != 1 {
				t.Errorf("%s: %d returns reported, want 1", name, n)
			}
		})
	}
}

// TestFreeze: a frozen device takes nothing and says nothing until its time is over, and then all of it.
func TestFreeze(t *testing.T) {
	t.Run("the connection waits", func(t *testing.T) { freeze(t, true) })
	t.Run("the device waits", func(t *testing.T) { freeze(t, false) })
}

func freeze(t *testing.T, holds bool) {
	virtual(t, func(t *testing.T) {
		w := newWorld(t, 2, "push")
		w.wire.Holds = holds
		w.start()
		if n := w.g.Freeze(0, 0, 5*time.Second); n != 2 {
			t.Errorf("%d frozen, want both", n)
		}
		for range 3 {
			w.post("t-g0")
		}
		w.wait(4900 * time.Millisecond)
		if got := w.sink.applied(0, 0); len(got) != 0 {
			t.Errorf("a frozen device applied %d events", len(got))
		}
		w.wait(5 * time.Second)
		w.complete(0, 0)
		w.complete(1, 0)
		w.settled()
		w.g.Freeze(0, 0, 5*time.Second) // and it stays frozen in a new session
		w.g.Cut(0, 0)
		w.wait(4 * time.Second)
		if n := w.n.Ready.Load(); n != 0 {
			t.Errorf("%d frozen devices came back and took what they were told", n)
		}
		w.wait(5 * time.Second)
		w.settled()
		some := w.g.Freeze(1, 0.5, time.Hour)
		if some != len(w.g.picked(1, 0.5)) || len(w.g.picked(1, 1)) != 2 {
			t.Errorf("%d frozen, picked %d and %d", some, len(w.g.picked(1, 0.5)), len(w.g.picked(1, 1)))
		}
		w.post("t-g0") // the end of the run does not wait for the thaw
	})
}

func (n *notes) reconnectOps() (c int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, o := range n.ops {
		if o.Kind == sample.OpReconnect && o.Done > o.Start {
			c++
		}
	}
	return c
}

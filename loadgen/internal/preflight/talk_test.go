package preflight

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"imbench/loadgen/internal/population"
	"imbench/loadgen/internal/testgate"
	"imbench/loadgen/protocol"
	"imbench/server/wire"
)

const many = 4

// party is four devices in one group, and in another in which they do not talk, at a gate in memory.
func party(gate func(*testgate.Gate)) (Party, *testgate.Gate) {
	pop := &population.Population{Namespace: "k"}
	group := population.Conv{ID: "g", Kind: "group", Mode: "push"}
	p := Party{Targets: []string{"http://gate"}, Tokens: map[string]string{}, Conv: "g", Key: "check-", Body: "hello", After: many, Say: func(string) {},
		Welcome: func(string, string) error { return nil }}
	for i := range int32(many) {
		id := fmt.Sprint("d", i)
		pop.Users = append(pop.Users, population.User{ID: fmt.Sprint("u", i), Devices: []int32{i}, Convs: []int32{0}})
		pop.Devices = append(pop.Devices, population.Device{ID: id, User: i, Connected: true})
		group.Members = append(group.Members, i)
		p.Devices = append(p.Devices, id)
	}
	other := group
	other.ID = "other"
	pop.Convs = []population.Conv{group, other}
	g := testgate.New(pop)
	if gate != nil {
		gate(g)
	}
	p.Wire = &testgate.Wire{Gate: g, Delay: 3 * time.Millisecond}
	return p, g
}

func TestTalk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := party(nil)
		p.Idle = 40 * time.Second
		r, err := Talk(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Sent) != many || len(r.Delivered) != many*(many-1) || r.Expected != many*(many-1) || r.Repeated != 0 || r.Acked != many {
			t.Errorf("%+v", r)
		}
		for _, d := range r.Delivered {
			if d != 3*time.Millisecond {
				t.Errorf("delivered after %v", d)
			}
		}
		if r.Idled != p.Idle || len(r.Cut) != 0 {
			t.Errorf("silent for %v, cut %q", r.Idled, r.Cut)
		}
	})
}

// Something on the way cuts two of the silent connections.
func TestIdleConnectionsAreCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, g := party(nil)
		p.Idle = 40 * time.Second
		p.Say = func(string) {
			for _, d := range p.Devices[:2] {
				time.AfterFunc(12*time.Second, func() { g.Kick(d, 1006, "idle") })
			}
		}
		r, err := Talk(t.Context(), p)
		if err != nil || len(r.Cut) != 2 || !strings.HasPrefix(r.Cut[0], "after 12.0 s: ") {
			t.Errorf("cut %q, %v", r.Cut, err)
		}
	})
}

// A gate that accepts and never answers ends the talk with a sentence, and in bounded time.
func TestSilentGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := party(func(g *testgate.Gate) { g.Silent.Store(true) })
		begun := time.Now()
		if _, err := Talk(t.Context(), p); err == nil || err.Error() != "http://gate did not answer hello" {
			t.Errorf("got %v", err)
		}
		if d := time.Since(begun); d > 2*stepLimit {
			t.Errorf("it took %v", d)
		}
	})
}

// A target that nothing listens on is named: an error of the network alone has addresses, and not what the user gave.
func TestUnreachableTarget(t *testing.T) {
	p, _ := party(nil)
	p.Wire = deaf{p.Wire}
	if _, err := Talk(t.Context(), p); err == nil || err.Error() != "cannot use http://gate: connection refused" {
		t.Errorf("got %v", err)
	}
}

// deaf is a wire without connections.
type deaf struct{ protocol.Wire }

func (deaf) Dial(context.Context, string, string) (protocol.Conn, error) {
	return nil, errors.New("connection refused")
}

// A device that is sent away ends the talk with the gate's reason; without silence there is no idle time.
func TestSentAwayAndNoSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := party(func(g *testgate.Gate) { g.Admit = func(n int) (bool, int) { return n != 3, 50 } })
		if _, err := Talk(t.Context(), p); err == nil || !strings.Contains(err.Error(), "http://gate: closed by the gateway: 4009") {
			t.Errorf("got %v", err)
		}
		p, _ = party(nil)
		p.Idle = -1
		if r, err := Talk(t.Context(), p); err != nil || r.Idled != 0 || r.Acked != many {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// A push that is lost is missing in the report, and the talk waits for it no longer than a step may take.
func TestLostPushIsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := party(func(g *testgate.Gate) {
			lost := false
			g.DropPush = func(device, _ string, _ int64) bool {
				drop := device == "d1" && !lost
				lost = lost || drop
				return drop
			}
		})
		p.Idle = -1
		if r, err := Talk(t.Context(), p); err != nil || len(r.Delivered) != many*(many-1)-1 || r.Expected != many*(many-1) {
			t.Errorf("%d of %d delivered, %v", len(r.Delivered), r.Expected, err)
		}
	})
}

// A gateway that may not be talked to is left with nothing but a hello, wherever it stands among the others.
func TestWhoMayNotBeTalkedTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, g := party(nil)
		no, met := errors.New("not here"), 0
		p.Welcome = func(gateway, environment string) error {
			if met++; gateway != "test" || environment != "test" {
				t.Errorf("welcomed by %q, %q", gateway, environment)
			}
			if met == many {
				return no
			}
			return nil
		}
		if _, err := Talk(t.Context(), p); !errors.Is(err, no) {
			t.Errorf("got %v", err)
		}
		for _, kind := range []wire.Type{wire.TSub, wire.TSend, wire.TAck, wire.TSync} {
			if n := len(g.Requests(kind)); n != 0 {
				t.Errorf("%d requests %v", n, kind)
			}
		}
	})
}

// What comes in another conversation meanwhile is none of the talk's: its seqs are not acknowledged here.
func TestBackgroundElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, g := party(nil)
		p.Idle = -1
		var others sync.WaitGroup
		others.Go(func() {
			for i := range 50 {
				g.Post("other", "stranger", fmt.Sprint("check-", i), "hello")
				time.Sleep(time.Millisecond)
			}
		})
		r, err := Talk(t.Context(), p)
		others.Wait()
		if err != nil || r.Acked != many || len(r.Delivered) != r.Expected || r.Repeated != 0 {
			t.Errorf("%+v, %v", r, err)
		}
		if got := g.Acked("g", "d0"); got != 2*many {
			t.Errorf("acknowledged %d", got)
		}
	})
}

// A group that is larger than the party is hinted at: what the hints tell of is asked for, from where the conversation stood,
// and counts as heard, once.
func TestHintsAreFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, g := party(func(g *testgate.Gate) { g.Large = true })
		for i := range 100 {
			g.Post("g", "stranger", fmt.Sprint("old-", i), "of before")
		}
		p.After += 100
		p.Idle = -1
		r, err := Talk(t.Context(), p)
		if err != nil || len(r.Delivered) != r.Expected || r.Repeated != 0 || r.Acked != many || r.Hinted != many {
			t.Errorf("%+v, %v", r, err)
		}
		for _, s := range g.Requests(wire.TSync) {
			if s.After < many+100 {
				t.Errorf("asked for what is older: %+v", s)
			}
		}
		if n := len(g.Requests(wire.TSync)); n == 0 || n > many*many {
			t.Errorf("%d syncs", n)
		}
	})
}

package preflight

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"imbench/loadgen/internal/population"
	"imbench/loadgen/internal/testgate"
)

const many = 4

// party is four devices in one group, at a gate in memory.
func party(gate func(*testgate.Gate)) (Party, *testgate.Gate) {
	pop := &population.Population{Namespace: "k"}
	group := population.Conv{ID: "g", Kind: "group", Mode: "push"}
	p := Party{Targets: []string{"http://gate"}, Tokens: map[string]string{}, Conv: "g", Key: "check-", Body: "hello", Say: func(string) {}}
	for i := range int32(many) {
		id := fmt.Sprint("d", i)
		pop.Users = append(pop.Users, population.User{ID: fmt.Sprint("u", i), Devices: []int32{i}, Convs: []int32{0}})
		pop.Devices = append(pop.Devices, population.Device{ID: id, User: i, Connected: true})
		group.Members = append(group.Members, i)
		p.Devices = append(p.Devices, id)
	}
	pop.Convs = []population.Conv{group}
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

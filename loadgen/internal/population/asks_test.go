package population

import (
	"math"
	"slices"
	"testing"
	"time"

	"imbench/loadgen/internal/scenario"
)

// Fetches and lists are Poisson streams that follow the stages, from the seed; they fall on connected devices and their
// conversations, on all alike, and what the window has is counted.
func TestAsks(t *testing.T) {
	s := load(t, "smoke", "load.fetch_rate=100/s", "load.convs_rate=50/s", "phases.warmup=10s", "phases.measure=40s", "phases.tail=0s")
	s.Load.Stages = []scenario.Stage{{For: 10 * time.Second, Rate: new(0.5)}, {For: time.Hour, Rate: new(2.0)}}
	pop := build(t, s, 5)
	plan, err := NewPlan(pop, s, 5)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		stream func() Arrivals
		rate   float64
	}{"fetches": {plan.Fetches, 100}, "lists": {plan.Lists, 50}} {
		var early, window, draws float64
		hits := map[int32]bool{}
		last, again := time.Duration(0), c.stream()
		for list := c.stream(); ; {
			a, ok := list.Next()
			if b, bok := again.Next(); a != b || ok != bok {
				t.Fatalf("%s differ from time to time", name)
			}
			if !ok {
				break
			}
			user := pop.Devices[a.Device].User
			if a.At < last || a.At >= s.Phases.LoadTime() || !pop.Devices[a.Device].Connected || name == "fetches" && !slices.Contains(pop.Users[user].Convs, a.Conv) {
				t.Fatalf("%s: %+v after %v", name, a, last)
			}
			last, hits[a.Device] = a.At, true
			draws += a.Draw
			if a.At < 10*time.Second {
				early++
			} else {
				window++
			}
		}
		if e, w := c.rate*10*0.5, c.rate*40*2; math.Abs(early-e) > 4*math.Sqrt(e) || math.Abs(window-w) > 4*math.Sqrt(w) {
			t.Errorf("%s: %v and %v, want %v and %v: stages of 0.5 and 2", name, early, window, e, w)
		}
		if n, total := plan.Asked(c.stream()); float64(n) != window || float64(total) != early+window {
			t.Errorf("%s: %d of %d counted, want %v of %v", name, n, total, window, early+window)
		}
		if len(hits) < s.Population.ConnectedDevices*9/10 { // of 504, after 4 000 or 8 500 draws
			t.Errorf("%s fall on %d devices only", name, len(hits))
		}
		if mean := draws / (early + window); name == "fetches" && math.Abs(mean-0.5) > 0.03 {
			t.Errorf("draws are %v on average, want 0.5", mean)
		}
	}
	e := plan.Expect(4, Timing{})
	fetches, _ := plan.Asked(plan.Fetches())
	if got := e.Figures["ops.fetch"]; got != float64(fetches)/40 {
		t.Errorf("%v fetches/s are planned, want %d in 40 s", got, fetches)
	}
	quiet, err := NewPlan(build(t, load(t, "smoke"), 5), load(t, "smoke"), 5)
	if err != nil {
		t.Fatal(err)
	}
	if quiet.Fetches() != nil || quiet.Lists() != nil {
		t.Error("smoke asks for something")
	}
	if _, planned := quiet.Expect(4, Timing{}).Figures["ops.fetch"]; planned {
		t.Error("smoke plans to fetch")
	}
}

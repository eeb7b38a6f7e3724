package population

import (
	"testing"

	"pgregory.net/rapid"
)

// Every connected device belongs to exactly one worker, the workers' shares differ by a block at most, and each worker has
// as many devices on a target as on another, but for its last block.
func TestSharesAreAPartition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &Population{}
		for range rapid.IntRange(0, 300).Draw(t, "devices") {
			p.Devices = append(p.Devices, Device{Connected: rapid.Bool().Draw(t, "connected")})
		}
		workers, targets := rapid.IntRange(1, 9).Draw(t, "workers"), rapid.IntRange(1, 5).Draw(t, "targets")
		owners := make([]int, len(p.Devices))
		least, most := len(p.Devices), 0
		for w := range workers {
			n := 0
			for i, d := range Share(p, w, workers, targets).Devices {
				if d.Connected {
					owners[i]++
					n++
				}
			}
			least, most = min(least, n), max(most, n)
		}
		for i, d := range p.Devices {
			if want := map[bool]int{true: 1}[d.Connected]; owners[i] != want {
				t.Fatalf("device %d, connected %v, has %d owners", i, d.Connected, owners[i])
			}
		}
		if most-least > targets {
			t.Fatalf("shares from %d to %d with blocks of %d", least, most, targets)
		}
	})
}

// The workers' arrivals together are the plan.
func TestArrivalsOfTheShares(t *testing.T) {
	p := &Population{Devices: make([]Device, 10)}
	for i := range p.Devices {
		p.Devices[i].Connected = i != 4
	}
	var plan fixed
	for i := range int64(100) {
		if d := int32(i * 7 % 10); d != 4 {
			plan = append(plan, Arrival{Index: i, Device: d})
		}
	}
	seen := map[int64]int{}
	for w := range 3 {
		share := Share(p, w, 3, 2)
		rest := plan
		for own := Only(&rest, share); ; {
			a, ok := own.Next()
			if !ok {
				break
			}
			if !share.Devices[a.Device].Connected {
				t.Errorf("worker %d sends for device %d", w, a.Device)
			}
			seen[a.Index]++
		}
	}
	for _, a := range plan {
		if seen[a.Index] != 1 {
			t.Errorf("arrival %d has %d senders", a.Index, seen[a.Index])
		}
	}
}

// fixed is a plan from memory.
type fixed []Arrival

// Next implements Arrivals.
func (f *fixed) Next() (Arrival, bool) {
	if len(*f) == 0 {
		return Arrival{}, false
	}
	a := (*f)[0]
	*f = (*f)[1:]
	return a, true
}

package checks

import (
	"context"
	"sync"

	"imbench/server/internal/fault"
)

// gate stands at some of a gateway's points: it lets everyone pass, and holds those who come to a point while that is
// shut. Its goroutines end with the test.
type gate struct {
	mu      sync.Mutex
	closed  fault.Point // "" = none
	held    []*fault.Held
	arrived chan struct{} // capacity 1: somebody is held
}

// gate takes over the gateway's pauses at these points.
func (g *gateway) gate(points ...fault.Point) *gate {
	g.t.Helper()
	a := &gate{arrived: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	g.t.Cleanup(func() { a.open(); cancel(); wg.Wait() })
	for _, p := range points {
		wg.Go(func() {
			for {
				h, err := g.barrier.Wait(ctx, p)
				if err != nil {
					return
				}
				if !a.hold(h) {
					_ = h.Release("") // an error means that the connection or process has gone
				}
			}
		})
	}
	return a
}

func (a *gate) hold(h *fault.Held) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed != h.Point {
		return false
	}
	a.held = append(a.held, h)
	select {
	case a.arrived <- struct{}{}:
	default:
	}
	return true
}

// shut holds everyone who comes to the point from now on.
func (a *gate) shut(p fault.Point) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = p
	select {
	case <-a.arrived: // of an earlier time
	default:
	}
}

// open lets those go on who are held, and returns how many they were.
func (a *gate) open() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := len(a.held)
	for _, h := range a.held {
		_ = h.Release("")
	}
	a.held, a.closed = nil, ""
	return n
}

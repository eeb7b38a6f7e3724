package device

import (
	"testing"
	"time"

	"imbench/loadgen/internal/clock"

	"pgregory.net/rapid"
)

// TestWheel: whatever the order of adding and turning, a deadline comes up once, at the first turn after it, never before.
func TestWheel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := clock.Time(rapid.Int64Range(0, 1e15).Draw(t, "now"))
		w := newWheel(now)
		waiting := map[*Device]clock.Time{}
		for range rapid.IntRange(1, 30).Draw(t, "turns") {
			for range rapid.IntRange(0, 20).Draw(t, "adds") {
				d := &Device{}
				at := now.Add(time.Duration(rapid.Int64Range(-1e9, 60e9).Draw(t, "in")))
				waiting[d] = max(at, now) // one that has passed already comes up at the next turn
				w.add(d, at)
			}
			now = now.Add(time.Duration(rapid.Int64Range(0, 30e9).Draw(t, "step")))
			for _, d := range w.due(now, nil) {
				at, known := waiting[d]
				if !known {
					t.Fatal("a deadline came up twice")
				}
				if at > now {
					t.Fatalf("a deadline came up %v early", at.Sub(now))
				}
				delete(waiting, d)
			}
			for _, at := range waiting {
				if late := now.Sub(at); late > 2*granularity {
					t.Fatalf("a deadline is %v late", late)
				}
			}
		}
	})
}

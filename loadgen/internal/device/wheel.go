package device

import (
	"context"
	"sync"
	"time"

	"imbench/loadgen/internal/clock"
)

const (
	granularity = 10 * time.Millisecond // timers fire up to this much late, never early
	wheelSlots  = 1024

	// TimerLate is how late a device's timers fire on average.
	TimerLate = granularity / 2
)

// wheel is a hashed timer wheel: one goroutine serves the deadlines of thousands of devices. A device has one deadline
// in it, its next one; a superseded entry stays until it comes up and is then found to be stale.
//
// Lock order: a device's mu, then the wheel's mu.
type wheel struct {
	mu    sync.Mutex
	now   int64 // the last tick that was served
	slots [wheelSlots][]timer
	spare []timer
}

type timer struct {
	tick int64
	dev  *Device
}

func newWheel(now clock.Time) *wheel { return &wheel{now: int64(now) / int64(granularity)} }

// add makes d.tick come at or soon after at.
func (w *wheel) add(d *Device, at clock.Time) {
	w.mu.Lock()
	tick := max(int64(at)/int64(granularity)+1, w.now+1)
	slot := &w.slots[tick%wheelSlots]
	*slot = append(*slot, timer{tick, d})
	w.mu.Unlock()
}

// due moves the hand to now and appends the devices whose deadline has come.
func (w *wheel) due(now clock.Time, to []*Device) []*Device {
	w.mu.Lock()
	defer w.mu.Unlock()
	until := int64(now) / int64(granularity)
	if until-w.now > wheelSlots {
		w.now = until - wheelSlots // one turn visits every slot
	}
	for w.now < until {
		w.now++
		slot := &w.slots[w.now%wheelSlots]
		old := *slot
		*slot = w.spare[:0]
		for _, t := range old {
			if t.tick <= until {
				to = append(to, t.dev)
			} else {
				*slot = append(*slot, t)
			}
		}
		clear(old)
		w.spare = old[:0]
	}
	return to
}

// run serves deadlines until ctx ends.
func (w *wheel) run(ctx context.Context) {
	tick := time.NewTicker(granularity)
	defer tick.Stop()
	var list []*Device
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		list = w.due(clock.Now(), list[:0])
		for _, d := range list {
			d.tick(clock.Now())
		}
		clear(list)
	}
}

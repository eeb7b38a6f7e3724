package driver

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"imbench/loadgen/internal/clock"
	"imbench/loadgen/internal/device"
	"imbench/loadgen/internal/population"
)

// Counters are live figures for a status line. The zero value is ready; all methods are safe for concurrent use.
type Counters struct {
	device  device.Counters
	due     atomic.Pointer[due] // nil before the load
	lateMax atomic.Int64
}

// Snapshot is a reading of the counters.
type Snapshot struct {
	Connected  int64         // devices with a session now
	Ready      int64         // of these, those that know how their conversations stand
	Offered    int64         // arrivals that were due by their intended time, started or not
	Started    int64         // sends handed to a device
	Done       int64         // sends committed
	Failed     int64         // sends refused for good
	InFlight   int64         // sends without an outcome
	Reconnects int64         // connections that ended before the run did
	LateMax    time.Duration // largest start − intended so far
}

// Plus adds up the figures of two parts of a run.
func (s Snapshot) Plus(o Snapshot) Snapshot {
	return Snapshot{Connected: s.Connected + o.Connected, Ready: s.Ready + o.Ready, Offered: s.Offered + o.Offered, Started: s.Started + o.Started,
		Done: s.Done + o.Done, Failed: s.Failed + o.Failed, InFlight: s.InFlight + o.InFlight, Reconnects: s.Reconnects + o.Reconnects,
		LateMax: max(s.LateMax, o.LateMax)}
}

// Snapshot reads the counters.
func (c *Counters) Snapshot() Snapshot {
	d := &c.device
	s := Snapshot{Connected: d.Connected.Load(), Ready: d.Ready.Load(), Offered: c.due.Load().count(),
		Done: d.Done.Load(), Failed: d.Failed.Load(), Started: d.Started.Load(), Reconnects: d.Reconnects.Load(),
		LateMax: time.Duration(c.lateMax.Load())}
	s.InFlight = s.Started - s.Done - s.Failed
	return s
}

// Due is how many arrivals were due until now, or until the load was stopped, and when that was: those whose intended time is not
// later.
func (c *Counters) Due() (n int64, until clock.Time) { return c.due.Load().countUntil() }

// Totals returns how many sends were due and how many had been started so far.
func (c *Counters) Totals() (offered, started int64) {
	return c.due.Load().count(), c.device.Started.Load()
}

// due counts a plan's arrivals by their intended time, so that what the pacer is behind with shows.
type due struct {
	mu    sync.Mutex
	plan  population.Arrivals // this counter's own
	start clock.Time
	end   clock.Time // of the load; 0 = it goes on
	next  clock.Time // of the first arrival that is not counted; 0 = there is none
	n     int64
}

func newDue(plan population.Arrivals, start clock.Time) *due {
	d := &due{plan: plan, start: start}
	d.read()
	return d
}

// read looks at the next arrival; mu must be held once d is shared.
func (d *due) read() {
	d.next = 0
	if a, ok := d.plan.Next(); ok {
		d.next = d.start.Add(a.At)
	}
}

// count is how many arrivals were due until now, or until the load was stopped.
func (d *due) count() int64 {
	n, _ := d.countUntil()
	return n
}

func (d *due) countUntil() (n int64, until clock.Time) {
	if d == nil {
		return 0, clock.Now()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	now := clock.Now()
	if d.end != 0 {
		now = min(now, d.end)
	}
	for ; d.next != 0 && d.next <= now; d.n++ {
		d.read()
	}
	return d.n, now
}

// stop ends the load: later arrivals are not due.
func (d *due) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.end = clock.Now()
}

// started records that a send began late by d.
func (c *Counters) started(late time.Duration) {
	for {
		old := c.lateMax.Load()
		if int64(late) <= old || c.lateMax.CompareAndSwap(old, int64(late)) {
			return
		}
	}
}

// FileLimitError: the process may not open as many files as the devices need.
type FileLimitError struct{ Needed, Had uint64 }

// Error says both numbers and what helps.
func (e *FileLimitError) Error() string {
	return fmt.Sprintf("the devices need %d open files and this process may have %d: raise the hard limit (ulimit -Hn) or connect fewer devices",
		e.Needed, e.Had)
}

// ConnectError: not every device could be connected in time.
type ConnectError struct {
	Connected, Wanted int
	Last              error // the last thing that went wrong
}

// Error says how many connected, and why another did not.
func (e *ConnectError) Error() string {
	return fmt.Sprintf("%d of %d devices connected in time; the last failure: %v", e.Connected, e.Wanted, e.Last)
}

// Unwrap gives the last failure.
func (e *ConnectError) Unwrap() error { return e.Last }

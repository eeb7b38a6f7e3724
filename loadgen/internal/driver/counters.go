package driver

import (
	"fmt"
	"sync/atomic"
	"time"

	"imbench/loadgen/internal/device"
)

// Counters are live figures for a status line. The zero value is ready; all methods are safe for concurrent use.
type Counters struct {
	device  device.Counters
	offered atomic.Int64
	lateMax atomic.Int64
}

// Snapshot is a reading of the counters.
type Snapshot struct {
	Connected  int64         // devices with a session now
	Ready      int64         // of these, those that know how their conversations stand
	Offered    int64         // arrivals that were due
	Started    int64         // sends handed to a device
	Done       int64         // sends committed
	Failed     int64         // sends refused for good
	InFlight   int64         // sends without an outcome
	Reconnects int64         // connections that ended before the run did
	LateMax    time.Duration // largest start − intended so far
}

// Snapshot reads the counters.
func (c *Counters) Snapshot() Snapshot {
	d := &c.device
	s := Snapshot{Connected: d.Connected.Load(), Ready: d.Ready.Load(), Offered: c.offered.Load(),
		Done: d.Done.Load(), Failed: d.Failed.Load(), Started: d.Started.Load(), Reconnects: d.Reconnects.Load(),
		LateMax: time.Duration(c.lateMax.Load())}
	s.InFlight = s.Started - s.Done - s.Failed
	return s
}

// Totals returns how many sends were due and how many had been started so far.
func (c *Counters) Totals() (offered, started int64) {
	return c.offered.Load(), c.device.Started.Load()
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

// Package driver runs one load from end to end: it brings the devices online, starts their sends when the plan says so,
// waits until every device has all that it is owed, and takes the devices down again.
//
// Run may be called from many goroutines, each with a Config of its own; all that it starts has ended when it returns.
// Counters are safe for concurrent use.
package driver

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"imbench/loadgen/internal/clock"
	"imbench/loadgen/internal/device"
	"imbench/loadgen/internal/pacer"
	"imbench/loadgen/internal/population"
	"imbench/loadgen/internal/sample"
	"imbench/loadgen/protocol"
)

// Phase is a part of a run.
type Phase string

// The phases, in order.
const (
	Connect  Phase = "connect"
	Warmup   Phase = "warmup"
	Measure  Phase = "measure"
	Tail     Phase = "tail" // arrivals go on for Config.Tail, so that the window's end is like its middle
	Settle   Phase = "settle"
	Close    Phase = "close"
	Finished Phase = "finished"
)

// Phases are all of them, in order.
var Phases = []Phase{Connect, Warmup, Measure, Tail, Settle, Close, Finished}

// Config is one run. All fields without "default" must be set.
type Config struct {
	Wire       protocol.Wire
	Population *population.Population
	Arrivals   func() population.Arrivals // the plan from its beginning, the same each time
	Churn      func() population.Arrivals // whose device leaves and comes back when, from the load's beginning; nil = nobody does
	Fetches    func() population.Arrivals // who asks for an event when; nil = nobody does
	Lists      func() population.Arrivals // who asks for the list of conversations; likewise
	Targets    []string                   // http(s):// or ws(s)://; the i-th connected device begins at target i mod n
	Tokens     func(device int32) string  // bearer tokens
	// Renew, if given, gets another token for a device whose token was refused; see device.GroupConfig.
	Renew    func(ctx context.Context, device int32, refused string) bool
	Sink     sample.Sink
	Seed     uint64
	RunID    uint32
	BodySize func(index int64) int // bytes of each message's body
	Device   device.Config

	ConnectRate                   float64       // connections started per second
	ConnectTimeout                time.Duration // for all of them; default: time at ConnectRate + 30 s
	LostAfter                     time.Duration // without any connection, or any confirmed send while some wait, the targets count as lost; default 10 s
	Warmup, Measure, Tail, Settle time.Duration
	Sleeper                       pacer.Sleeper // default: the most exact that the platform has

	// OnPhase is told each phase as it begins. For Measure the time is that from which the window counts, by intended
	// time: [t, t+Config.Measure). It comes before the first sample of the window, possibly a moment before t.
	OnPhase func(Phase, clock.Time)
	// Welcomed, if given, is told of each welcome which gateway it came from. It must not wait.
	Welcomed func(gateway, environment string)
	// Counters, if given, can be read while the run goes on.
	Counters *Counters
	// Control, if given, does things to the devices while the run goes on.
	Control *Control

	// What follows is for a run of which this is a part: other processes drive its other devices. Ahead is how far this
	// machine's clock is ahead of the one that bodies are written in.
	Ahead time.Duration
	// Start, if given, is asked when all devices are ready, and says when the load begins. It waits for the other parts.
	Start func(ctx context.Context) (clock.Time, error)
	// Agree, if given, is asked once while the run settles: when no device lacks anything that is known here, or the time for
	// it is over. It is given the heads of all conversations as they are known here, waits for the other parts, and returns
	// the largest of each; all devices must reach those.
	Agree func(ctx context.Context, heads []int64) ([]int64, error)
	// Leave, if given, is asked when the devices have settled, or had the time for it, before they are taken down. It waits for
	// the other parts.
	Leave func(ctx context.Context) error
}

// Control reaches the devices of a run. The zero value is ready; before the run has devices, and after its end, it does
// nothing. It is safe for concurrent use.
type Control struct{ group atomic.Pointer[device.Group] }

// Cut breaks connections; see device.Group.
func (c *Control) Cut(n int, share float64) int {
	if g := c.group.Load(); g != nil {
		return g.Cut(n, share)
	}
	return 0
}

// Freeze keeps devices from reading; see device.Group.
func (c *Control) Freeze(n int, share float64, length time.Duration) int {
	if g := c.group.Load(); g != nil {
		return g.Freeze(n, share, length)
	}
	return 0
}

// Unread is what lies unread in the sockets of some devices; see device.Group.
func (c *Control) Unread(most int) (sockets int, bytes, largest int64) {
	if g := c.group.Load(); g != nil {
		return g.Unread(most)
	}
	return 0, 0, 0
}

// Result says how far a run got.
type Result struct {
	Ended                Phase      // Finished, or the phase in which the run was cancelled or broke
	Interrupted          bool       // the context was cancelled
	Settled              bool       // every device was caught up and acknowledged before the end
	Unsettled            []string   // devices that were not, with what they lack; the first 20
	UnsettledDevices     int        // all of them
	LoadStart            clock.Time // intended time of plan offset 0
	WindowFrom, WindowTo clock.Time // 0 = the window was not reached
	Final                Snapshot
}

// TargetError is a target that refuses, is no gateway, or went away. The run cannot go on.
type TargetError struct {
	Target string
	Lost   bool // it had been there, and went away in mid-run
	Err    error
}

// Error names the target and what it answered.
func (e *TargetError) Error() string {
	if e.Lost {
		return fmt.Sprintf("lost %s: %v", e.Target, e.Err)
	}
	return fmt.Sprintf("cannot use %s: %v", e.Target, e.Err)
}

// Unwrap gives the cause.
func (e *TargetError) Unwrap() error { return e.Err }

// Run drives one load. It returns a *TargetError, a *FileLimitError or a *ConnectError with what there is of a Result;
// a cancelled context is no error (Result.Interrupted says so).
func Run(ctx context.Context, cfg Config) (Result, error) {
	return run(ctx, cfg)
}

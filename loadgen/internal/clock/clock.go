// Package clock reads CLOCK_MONOTONIC, which all processes of one machine share, as nanoseconds.
//
// All functions are safe for concurrent use.
package clock

import (
	"context"
	"time"

	"golang.org/x/sys/unix"
)

// Time is a reading of CLOCK_MONOTONIC in nanoseconds; 0 means "not set".
type Time int64

var (
	baseGo   = time.Now()
	baseMono = monotonic()
)

func monotonic() Time {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return Time(baseGo.UnixNano())
	}
	return Time(ts.Nano())
}

// Now is one reading; it costs what time.Since costs (no system call: Go's own monotonic clock is the same clock).
func Now() Time {
	d := time.Since(baseGo)
	if d < 0 { // only in a test's virtual time (testing/synctest), which begins long before this process
		return Time(time.Now().UnixNano())
	}
	return baseMono + Time(d)
}

// Of is the reading at t, which has a monotonic one.
func Of(t time.Time) Time {
	d := t.Sub(baseGo)
	if d < 0 { // as in Now
		return Time(t.UnixNano())
	}
	return baseMono + Time(d)
}

// Sub is t − u.
func (t Time) Sub(u Time) time.Duration { return time.Duration(t - u) }

// Add is t + d.
func (t Time) Add(d time.Duration) Time { return t + Time(d) }

// Pause waits for d, and ends early with the context's cause.
func Pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Package pacer starts things when a plan says so, whatever becomes of those started before (an open loop).
//
// Run occupies one goroutine, which on Linux sleeps on a timerfd: Go's own timers are several times less exact (see the
// benchmark).
package pacer

import (
	"context"
	"time"

	"imbench/loadgen/internal/clock"
	"imbench/loadgen/internal/population"
)

// Sleeper waits. Until may return early, and late by as much as the machine makes it.
type Sleeper interface {
	Until(t clock.Time)
}

// maxNap bounds one sleep, so that a cancelled context is noticed soon.
const maxNap = 20 * time.Millisecond

// Run calls do for each arrival of the plan at start + At, in order and never early, until the plan or ctx ends. A late
// one is not skipped: those behind it follow at once. do must not wait for the network, or all arrivals are late (and
// the lateness that do can measure shows it). A nil sleeper is the best that the platform has.
func Run(ctx context.Context, plan population.Arrivals, start clock.Time, s Sleeper, do func(a *population.Arrival, intended clock.Time)) {
	if s == nil {
		exact, release := exactSleeper()
		defer release()
		s = exact
	}
	for {
		a, ok := plan.Next()
		if !ok || !waitUntil(ctx, start.Add(a.At), s) {
			return
		}
		do(&a, start.Add(a.At))
	}
}

// waitUntil returns at or after due; false if ctx ended first.
func waitUntil(ctx context.Context, due clock.Time, s Sleeper) bool {
	for {
		if ctx.Err() != nil {
			return false
		}
		now := clock.Now()
		if now >= due {
			return true
		}
		s.Until(min(due, now.Add(maxNap)))
	}
}

// Timers sleeps with Go's timers: portable, and virtual time in tests.
type Timers struct{}

// Until implements Sleeper.
func (Timers) Until(t clock.Time) { time.Sleep(t.Sub(clock.Now())) }

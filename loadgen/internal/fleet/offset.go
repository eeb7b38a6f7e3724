package fleet

import (
	"fmt"
	"time"

	"imbench/loadgen/internal/clock"
)

// Offset is how far a worker's clock is ahead of the coordinator's.
type Offset struct {
	Ahead time.Duration
	// Bound is how far Ahead may be off, as far as the exchanges so far can tell: half of the shortest way there and back,
	// and what the clocks drifted apart since.
	Bound time.Duration
	// Common: both read the same clock, and Ahead is 0 exactly.
	Common bool
}

// String tells it to a person.
func (o Offset) String() string {
	if o.Common {
		return "the same clock (CLOCK_MONOTONIC of one machine)"
	}
	return fmt.Sprintf("clock %+.3f ms ± %.3f ms", float64(o.Ahead)/1e6, float64(o.Bound)/1e6)
}

// window is how many exchanges are held together: ten seconds, in which clocks hardly drift.
const window = 20

// estimator narrows an offset down from exchanges. A question that left at t0 and came at t1 took some time, so the offset
// is at most t1 − t0; an answer that left at t2 and came at t3 likewise says that it is at least t2 − t3 (D. Mills, RFC
// 5905, section 8; the bounds are those of each exchange, and no delay is taken to be symmetric). The zero value is ready.
type estimator struct {
	lo, hi time.Duration
	n      int // exchanges in this window
	used   Offset
	fixed  bool
}

// add takes one exchange: t0 and t3 are of the coordinator's clock, t1 and t2 of the worker's.
func (e *estimator) add(t0, t1, t2, t3 clock.Time) {
	lo, hi := t2.Sub(t3), t1.Sub(t0)
	// A window ends early when the clocks have drifted within it: what was true of its beginning is not true of now.
	if e.n == window || e.n > 0 && max(e.lo, lo) > min(e.hi, hi) {
		e.drift()
		e.n = 0
	}
	if e.n == 0 {
		e.lo, e.hi = lo, hi
	} else {
		e.lo, e.hi = max(e.lo, lo), min(e.hi, hi)
	}
	e.n++
}

// drift widens the bound of the offset in use by how far the window that ends has left it.
func (e *estimator) drift() {
	if e.fixed && !e.used.Common {
		e.used.Bound = max(e.used.Bound, e.used.Ahead-e.lo, e.hi-e.used.Ahead)
	}
}

// fix decides on the offset that the run uses. sameMachine: both were started since the same boot; unless the exchanges
// contradict it (a time namespace), the clock is one.
func (e *estimator) fix(sameMachine bool) Offset {
	e.used = Offset{Ahead: (e.lo + e.hi) / 2, Bound: (e.hi - e.lo + 1) / 2}
	if sameMachine && e.lo <= 0 && e.hi >= 0 {
		e.used = Offset{Common: true}
	}
	e.fixed = true
	e.n = 0
	return e.used
}

func now() clock.Time { return clock.Now() }

func timeOf(ns int64) clock.Time { return clock.Time(ns) }

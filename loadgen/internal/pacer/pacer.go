// Package pacer starts things when a plan says so, whatever becomes of those started before (an open loop).
//
// Run occupies one goroutine, which on Linux sleeps on a timerfd: Go's own timers are several times less exact (see the
// benchmark). Goroutines that have other work help it out while it waits for a processor.
package pacer

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
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

// maxHelp bounds what one call of Help starts: its caller has work of its own.
const maxHelp = 16

// never is a time at which nothing is due any more.
const never = clock.Time(math.MaxInt64)

// Pacer is one plan under way. Run is its one owner; Help may be called from any goroutine meanwhile.
type Pacer struct {
	ctx   context.Context
	due   atomic.Int64 // clock.Time of the next arrival
	mu    sync.Mutex   // of whoever starts arrivals
	plan  population.Arrivals
	start clock.Time
	next  population.Arrival
	do    func(a *population.Arrival, intended clock.Time)
}

// New prepares a plan whose arrivals are due at start + At; none is started after ctx has ended. do is called by one goroutine at a time. It must not wait for
// the network, or all arrivals are late (and the lateness that do can measure shows it), and it must not call Help.
func New(ctx context.Context, plan population.Arrivals, start clock.Time, do func(a *population.Arrival, intended clock.Time)) *Pacer {
	p := &Pacer{ctx: ctx, plan: plan, start: start, do: do}
	p.peek()
	return p
}

// Run calls do for each arrival, in order and never early, until the plan or the context ends. A late one is not skipped: those
// behind it follow at once. When it has returned nothing is started any more. A nil sleeper is the best that the platform
// has.
func (p *Pacer) Run(s Sleeper) {
	if s == nil {
		exact, release := exactSleeper()
		defer release()
		s = exact
	}
	defer p.stop()
	for {
		due := clock.Time(p.due.Load())
		if due == never || !waitUntil(p.ctx, due, s) {
			return
		}
		p.mu.Lock()
		for p.one(clock.Now()) {
		}
		p.mu.Unlock()
	}
}

// Help starts what is due at now and no other goroutine is at, a few arrivals at most. It is for goroutines that are
// running while Run's waits for a processor: with thousands of them ready at once that takes milliseconds. When nothing
// is due it costs one load.
func (p *Pacer) Help(now clock.Time) {
	if int64(now) < p.due.Load() || !p.mu.TryLock() {
		return
	}
	defer p.mu.Unlock()
	for range maxHelp {
		if !p.one(now) {
			return
		}
	}
}

// one starts the next arrival, if it is due at now and the context has not ended; mu must be held.
func (p *Pacer) one(now clock.Time) bool {
	due := clock.Time(p.due.Load())
	if due > now || p.ctx.Err() != nil {
		return false
	}
	a := p.next
	p.do(&a, due)
	p.peek()
	return true
}

// peek takes the next arrival from the plan; mu must be held, but in New.
func (p *Pacer) peek() {
	a, ok := p.plan.Next()
	if !ok {
		p.due.Store(int64(never))
		return
	}
	p.next = a
	p.due.Store(int64(p.start.Add(a.At)))
}

func (p *Pacer) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.due.Store(int64(never))
}

// Run is a Pacer that nobody helps.
func Run(ctx context.Context, plan population.Arrivals, start clock.Time, s Sleeper, do func(a *population.Arrival, intended clock.Time)) {
	New(ctx, plan, start, do).Run(s)
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

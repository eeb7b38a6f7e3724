package pacer

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"imbench/loadgen/internal/clock"
	"imbench/loadgen/internal/population"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// offsets is a plan made of offsets.
type offsets struct {
	at []time.Duration
	i  int
}

func (o *offsets) Next() (population.Arrival, bool) {
	if o.i == len(o.at) {
		return population.Arrival{}, false
	}
	o.i++
	return population.Arrival{Index: int64(o.i - 1), At: o.at[o.i-1]}, true
}

// TestRunNeverEarlyNeverSkipped: every arrival is started, in order, at its time or, behind a slow one, right after it.
func TestRunNeverEarlyNeverSkipped(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SliceOfN(rapid.Int64Range(0, int64(50*time.Millisecond)), 1, 40).Draw(rt, "steps")
		slow := rapid.SliceOfN(rapid.Int64Range(0, int64(80*time.Millisecond)), len(steps), len(steps)).Draw(rt, "slow")
		var at []time.Duration
		var sum time.Duration
		for _, s := range steps {
			sum += time.Duration(s)
			at = append(at, sum)
		}
		synctest.Test(t, func(*testing.T) {
			start := clock.Now()
			free := start // when the one before was done
			n := 0
			Run(t.Context(), &offsets{at: at}, start, Timers{}, func(a *population.Arrival, intended clock.Time) {
				now := clock.Now()
				if a.Index != int64(n) || intended != start.Add(at[n]) || now != max(intended, free) {
					rt.Fatalf("arrival %d (call %d): intended %v, started %v, the one before was done at %v",
						a.Index, n, intended.Sub(start), now.Sub(start), free.Sub(start))
				}
				time.Sleep(time.Duration(slow[n]))
				free = clock.Now()
				n++
			})
			if n != len(at) {
				rt.Fatalf("%d of %d arrivals started", n, len(at))
			}
		})
	})
}

// oversleeper is a Run whose goroutine waits for a processor.
type oversleeper struct{ Timers }

func (oversleeper) Until(t clock.Time) { Timers{}.Until(t.Add(time.Second)) }

// TestHelp: whoever starts an arrival, Run or those who help it out, all are started once, in order, never early, and as
// soon as somebody looks; and none after Run has returned.
func TestHelp(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SliceOfN(rapid.Int64Range(0, int64(20*time.Millisecond)), 1, 60).Draw(rt, "steps")
		every := time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(10*time.Millisecond)).Draw(rt, "every"))
		cut := time.Duration(rapid.Int64Range(0, int64(2*time.Second)).Draw(rt, "cut"))
		var at []time.Duration
		var sum time.Duration
		for _, s := range steps {
			sum += time.Duration(s)
			at = append(at, sum)
		}
		var wrong string
		n := 0
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), cut)
			defer cancel()
			start := clock.Now()
			var ended atomic.Bool
			p := New(ctx, &offsets{at: at}, start, func(a *population.Arrival, intended clock.Time) {
				// A call of Help starts maxHelp at most: a crowd takes several.
				late, most := clock.Now().Sub(intended), every*time.Duration(2+len(at)/maxHelp)
				if a.Index != int64(n) || intended != start.Add(at[n]) || late < 0 || late > most || ctx.Err() != nil || ended.Load() {
					wrong = fmt.Sprintf("arrival %d is the %dth, %v late; after the end: %v", a.Index, n, late, ended.Load())
				}
				n++
			})
			var helpers sync.WaitGroup
			done := make(chan struct{})
			for range 3 {
				helpers.Go(func() {
					tick := time.NewTicker(every)
					defer tick.Stop()
					for {
						select {
						case <-done:
							return
						case <-tick.C:
							p.Help(clock.Now())
						}
					}
				})
			}
			p.Run(oversleeper{})
			ended.Store(true)
			time.Sleep(3 * time.Second) // the helpers go on
			close(done)
			helpers.Wait()
		})
		if wrong != "" || n != len(at) && cut > sum+2*time.Second {
			rt.Fatalf("%d of %d arrivals started; %s", n, len(at), wrong)
		}
	})
}

// TestRunEndsWithContext: a cancelled run ends within one nap, though the next arrival is far away.
func TestRunEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := clock.Now()
		Run(ctx, &offsets{at: []time.Duration{time.Hour}}, start, Timers{}, func(*population.Arrival, clock.Time) {
			t.Error("an arrival was started an hour early")
		})
		if d := clock.Now().Sub(start); d < time.Second || d > time.Second+maxNap {
			t.Errorf("ended after %v", d)
		}
	})
}

// TestExactSleeperIsNeverEarly: the platform's sleeper keeps the promise too, in real time.
func TestExactSleeperIsNeverEarly(t *testing.T) {
	at := make([]time.Duration, 200)
	for i := range at {
		at[i] = time.Duration(i) * 100 * time.Microsecond
	}
	start, n := clock.Now(), 0
	Run(t.Context(), &offsets{at: at}, start, nil, func(_ *population.Arrival, intended clock.Time) {
		if now := clock.Now(); now < intended {
			t.Errorf("arrival %d started %v early", n, intended.Sub(now))
		}
		n++
	})
	if n != len(at) {
		t.Errorf("%d of %d arrivals started", n, len(at))
	}
}

// BenchmarkStartError compares the start-time error at 5 000/s with that of a scheduler on time.Sleep, in turns of a
// fifth of a second, beside another goroutine that is woken 5 000 times a second. It reports both medians and the ratio.
func BenchmarkStartError(b *testing.B) {
	const rate, turn = 5000, time.Second / 5
	at := make([]time.Duration, int(rate*turn/time.Second))
	for i := range at {
		at[i] = time.Duration(i) * time.Second / rate
	}
	var stop atomic.Bool
	var beside sync.WaitGroup
	beside.Go(func() {
		for !stop.Load() {
			time.Sleep(time.Second / rate)
		}
	})
	arm := func(s Sleeper, late []time.Duration) []time.Duration {
		Run(context.Background(), &offsets{at: at}, clock.Now().Add(time.Millisecond), s,
			func(_ *population.Arrival, intended clock.Time) { late = append(late, clock.Now().Sub(intended)) })
		return late
	}
	var ours, timers []time.Duration
	for range b.N {
		ours = arm(nil, ours)
		timers = arm(Timers{}, timers)
	}
	stop.Store(true)
	beside.Wait()
	p := func(d []time.Duration, q float64) float64 {
		slices.Sort(d)
		return float64(d[int(q*float64(len(d)-1))]) / float64(time.Microsecond)
	}
	b.ReportMetric(p(ours, 0.5), "p50-µs")
	b.ReportMetric(p(ours, 0.99), "p99-µs")
	b.ReportMetric(p(timers, 0.5), "sleep-p50-µs")
	b.ReportMetric(p(timers, 0.99), "sleep-p99-µs")
	b.ReportMetric(p(ours, 0.5)/p(timers, 0.5), "p50-ratio")
}

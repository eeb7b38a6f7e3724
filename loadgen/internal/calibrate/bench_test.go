package calibrate

import (
	"context"
	"runtime"
	"testing"
	"time"

	"imbench/loadgen/internal/child"
	"imbench/loadgen/internal/clock"
	"imbench/loadgen/internal/pacer"
	"imbench/loadgen/internal/population"
	"imbench/reports/rundir"
)

// BenchmarkLateness is how late sends start at 5 000/s when each is made by a real device over a real socket and answered,
// recorded and kept in the ledger: turns of half a second with the pacer, and as many with a scheduler on time.Sleep. The aim
// is a p99 under 1 ms with a core to itself, which the null server and everything else on the machine may not leave it.
func BenchmarkLateness(b *testing.B) {
	const rate, turn = 5000, time.Second / 2
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(runtime.NumCPU() + 2)) // as a run has it
	var first ready
	server, err := child.Start(b.Context(), Role, &first)
	if err != nil {
		b.Fatal(err)
	}
	defer server.Close()
	x, err := newBench(Config{BodyBytes: 200}, server)
	if err != nil {
		b.Fatal(err)
	}
	defer x.group.Close()
	for i := range int32(devices) {
		x.group.Start(i, first.URL)
	}
	for x.count.Ready.Load() < devices {
		if err := clock.Pause(b.Context(), time.Millisecond); err != nil {
			b.Fatal(err)
		}
	}
	ours, sleeps := rundir.NewHistogram(), rundir.NewHistogram()
	for range b.N {
		for _, arm := range []struct {
			h interface{ RecordValue(int64) error }
			s pacer.Sleeper
		}{{ours, nil}, {sleeps, pacer.Timers{}}} {
			plan := population.Evenly(int64(rate*turn/time.Second), time.Second/rate)
			pacer.Run(context.Background(), plan, clock.Now().Add(time.Millisecond), arm.s, func(_ *population.Arrival, intended clock.Time) {
				_ = arm.h.RecordValue(min(int64(clock.Now().Sub(intended)), rundir.HighestNS)) // in range
				x.send(intended)
			})
		}
	}
	a, s := rundir.MetricOf(ours), rundir.MetricOf(sleeps)
	b.ReportMetric(a.P50*1000, "p50-µs")
	b.ReportMetric(a.P99*1000, "p99-µs")
	b.ReportMetric(s.P50*1000, "sleep-p50-µs")
	b.ReportMetric(s.P99*1000, "sleep-p99-µs")
	b.ReportMetric(a.P50/s.P50, "p50-ratio")
	b.ReportMetric(a.P99/s.P99, "p99-ratio")
}

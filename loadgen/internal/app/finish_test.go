package app

import (
	"io"
	"testing"
	"time"

	"imbench/loadgen/internal/clock"
	"imbench/loadgen/internal/driver"
	"imbench/loadgen/internal/ledger"
	"imbench/loadgen/internal/record"
	"imbench/loadgen/internal/sample"
	"imbench/loadgen/internal/scenario"
	"imbench/reports/rundir"
)

// What a finished run is compared with is the plan as counted with its own latencies, and not as before it.
func TestFinishCountsThePlanAgain(t *testing.T) {
	sc, err := scenario.Load("smoke")
	if err != nil {
		t.Fatal(err)
	}
	r := &runner{program: Program{Stdout: io.Discard, Stderr: io.Discard}, options: options{out: t.TempDir(), json: true}, scenario: sc, env: &environment{}}
	if err := r.prepare(); err != nil {
		t.Fatal(err)
	}
	if err := r.createRunDir(); err != nil {
		t.Fatal(err)
	}
	r.rec, r.ledger = record.New(record.Config{Out: r.out}), ledger.New(r.pop, ledger.Config{Reads: r.reads})
	const slow = 900 * time.Millisecond
	now := clock.Now()
	r.rec.SetWindow(now, now.Add(sc.Phases.Measure))
	r.rec.Op(sample.Op{Kind: sample.OpAck, Start: now, Done: now.Add(slow), Events: 1})
	// A run that was cut short asks no gateway for its log.
	if _, err := r.finish(t.Context(), driver.Result{Ended: driver.Measure, Interrupted: true}, nil); err != nil {
		t.Fatal(err)
	}
	d, err := rundir.Open(r.dir)
	if err != nil {
		t.Fatal(err)
	}
	s, err := d.Summary()
	if err != nil {
		t.Fatal(err)
	}
	planned := func(list []rundir.Prediction) float64 {
		t.Helper()
		for _, p := range list {
			if p.Name == "frames.hint" && p.Planned != nil {
				return *p.Planned
			}
		}
		t.Fatal("no hints are planned")
		return 0
	}
	want := recount(sc, r.plan, r.predictions.Predictions, map[string]rundir.Metric{rundir.Ack: s.Metrics[rundir.Ack]})
	before, after := planned(r.predictions.Predictions), planned(s.Predictions)
	if got := s.Metrics[rundir.Ack]; got.Count != 1 || after <= before || after != planned(want) {
		t.Errorf("acknowledgements %+v; hints planned %g before the run, %g after it, want %g", got, before, after, planned(want))
	}
}

package app

import (
	"context"
	"fmt"
	"time"

	"imbench/loadgen/internal/abort"
	"imbench/loadgen/internal/clock"
	"imbench/loadgen/internal/driver"
	"imbench/loadgen/internal/scenario"
	"imbench/reports/rundir"
)

// ended is a run that was ended before its time, on purpose: what there is of it is judged and kept.
type ended struct {
	verdict rundir.Verdict // aborted or interrupted
	why     string
}

func (e *ended) Error() string { return e.why }

// spare prepares a scenario for a target that others use, too: the load grows, and ends when it does harm.
func spare(sc *scenario.Scenario, o options) error {
	ramp := o.staging.ramp.value
	if len(o.targets) > 0 && !o.staging.ramp.set {
		ramp = sc.DefaultRamp()
	}
	if err := sc.SetRamp(ramp); err != nil {
		return err
	}
	switch {
	case o.staging.noAbort:
		sc.Abort = nil
	case len(o.targets) > 0 && len(sc.Abort) == 0:
		sc.Abort = sc.DefaultAborts()
	}
	return nil
}

// watchAborts holds the scenario's rules against the run, a reading a second while there is load, and ends it by end with an
// *ended when one is broken. It returns when ctx ends.
func (r *runner) watchAborts(ctx context.Context, end context.CancelCauseFunc) {
	if len(r.scenario.Abort) == 0 {
		return
	}
	watch := abort.NewWatch(r.scenario.Abort)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		reading, loaded := r.reading()
		if !loaded {
			continue
		}
		if b := watch.Add(reading); b != nil {
			r.event("abort", b.Rule.String(), b.String())
			end(&ended{rundir.Aborted, fmt.Sprintf("abort rule %s (%s)", b, time.Now().UTC().Format(time.RFC3339))})
			return
		}
	}
}

// reading is the state of the load; false before it and after it.
func (r *runner) reading() (abort.Reading, bool) {
	from := clock.Time(r.loadFrom.Load())
	if from == 0 {
		return abort.Reading{}, false
	}
	d, s := r.figures().Snapshot(), r.rec.Snapshot()
	return abort.Reading{At: clock.Now().Sub(from), Due: d.Offered, Done: d.Done, Failed: d.Failed, Connected: d.Connected,
		Devices: int64(r.scenario.Population.ConnectedDevices), SendP99: s.SendP99, DeliverP99: s.DeliverP99, Late99: s.LateP99}, true
}

// loadPhase keeps from when to when abort rules are looked at: while sends are started.
func (r *runner) loadPhase(p driver.Phase, at clock.Time) {
	switch p {
	case driver.Warmup:
		r.loadFrom.Store(int64(at))
	case driver.Settle, driver.Close:
		r.loadFrom.Store(0)
	}
}

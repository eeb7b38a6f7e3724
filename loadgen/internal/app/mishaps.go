package app

import (
	"context"
	"slices"
	"strings"
	"time"

	"imbench/loadgen/internal/clock"
	"imbench/loadgen/internal/driver"
	"imbench/loadgen/internal/population"
	"imbench/loadgen/internal/record"
	"imbench/loadgen/internal/sample"
	"imbench/model/capacity"
	"imbench/reports/rundir"
)

// planFaults makes what does and follows the scenario's faults, if it has any. They end with ctx.
func (r *runner) planFaults(ctx context.Context) {
	if len(r.scenario.Faults) == 0 {
		return
	}
	heal := &healing{total: int64(r.scenario.Population.ConnectedDevices)}
	var devices handset
	if r.shared.fleet != nil {
		all := fleetCrowd{r.shared.fleet}
		heal.crowd, devices = all, all
	} else {
		r.watch = newWatch(&r.live, r.ledger)
		heal.crowd, devices = r.watch, hands{&r.hands}
	}
	seen := r.env.processes()
	r.faults = &injector{faults: r.scenario.Faults, gateways: len(r.env.targets), drain: r.scenario.Server.Drain, stack: r.env.mishaps(), devices: devices,
		network: r.env.harmable(), heal: heal, shared: r.shared.fleet != nil,
		env:   []string{"IMBENCH_RUN=" + r.dir, "IMBENCH_TARGETS=" + strings.Join(r.env.targets, ",")},
		event: func(name, detail string) { r.event("fault", name, detail) },
		ctx:   ctx}
	r.faults.restarted = func() {
		r.faults.procs.Lock()
		defer r.faults.procs.Unlock()
		for _, p := range r.env.processes() {
			if !slices.Contains(seen, p) {
				seen = append(seen, p)
				r.rec.Watch(p)
			}
		}
	}
}

// sink is what the devices report to.
func (r *runner) sink() sample.Sink {
	if r.watch == nil {
		return sample.Tee{r.rec, r.ledger}
	}
	return sample.Tee{r.rec, r.ledger, r.watch}
}

// phase is told each phase as it begins: the timeline starts with the window, and what has healed is told before the
// devices are taken down.
func (j *injector) phase(p driver.Phase, at clock.Time) {
	switch p {
	case driver.Measure:
		j.begin(j.ctx, at)
	case driver.Close:
		if !j.shared { // else some devices are down already; see fleetRun.Settled
			j.heal.settle(context.Background())
		}
	}
}

// patience is how long nothing may get through, beyond what the faults ask for, before the target counts as lost: devices
// back off before they try again, and a database recovers first.
const patience = 30 * time.Second

// lostAfter is the driver's own default without faults.
func (r *runner) lostAfter() time.Duration {
	if len(r.scenario.Faults) == 0 {
		return 0
	}
	return patience + r.scenario.LongestOutage()
}

// tellFaults puts the faults into the summary. With faults or churn, what the plan and the model say of a run without them
// is compared with messages and deliveries only: pushes that nobody took became syncs, and devices came and went.
func (r *runner) tellFaults(s *rundir.Summary, measured record.Result) {
	what := "faults"
	switch {
	case r.faults != nil:
		s.Faults = r.faults.heal.results()
		s.Metrics["heal"] = healMetric(s.Faults)
	case r.scenario.Devices.Churn > 0:
		what = "churn"
	case r.pop.Brought && s.Reconnects > 0:
		what = "connections that ended, as those do whose tokens end,"
	default:
		return
	}
	for i, p := range s.Predictions {
		switch p.Name {
		case capacity.Messages, rundir.FetchRate, rundir.ConvsRate:
		case capacity.Deliveries: // with faults, what was applied by whichever way
			if measured.AppliedPerMessage > 0 {
				s.Predictions[i] = appliedInstead(p, r.expected, measured.AppliedPerMessage)
			}
		default:
			p.Error, p.PlanError, p.Note = nil, nil, "not compared ("+strings.TrimSuffix(what, ",")+")"
			s.Predictions[i] = p
		}
	}
	s.Notes = append(s.Notes, "of the predictions only messages and deliveries are compared: with "+what+" pushes become syncs, which neither model nor plan foresees")
}

// appliedInstead compares what was applied a message with what the plan has it applied by. Where hints bring a part of it,
// the model, which counts event frames, says nothing of that.
func appliedInstead(p rundir.Prediction, e population.Expected, applied float64) rundir.Prediction {
	pushed := e.Figures[capacity.Deliveries]
	p.Planned = &e.Due
	p = p.WithMeasured(applied)
	if e.Due != pushed {
		p.NotPredicted, p.Predicted, p.Low, p.High, p.Error = true, 0, 0, 0, nil
		p.Note = "with faults, churn or connections that ended: events applied a message, by push or by sync after a hint"
	}
	return p
}

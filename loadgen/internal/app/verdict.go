package app

import (
	"fmt"
	"strings"

	"imbench/loadgen/internal/fleet"
	"imbench/loadgen/internal/scenario"
	"imbench/reports/rundir"
)

// outcome is what is known at the end of a run, from which the verdict follows.
type outcome struct {
	err         error  // internal, or the target was lost
	early       *ended // ended on purpose; nil = not
	interrupted bool
	settled     bool
	lost        *fleet.LostError // a worker
	sendLimitMS float64          // the send criterion that lateness is judged by; 0 = none
}

// judge fills in criteria, verdict and reasons: error, broken, aborted, interrupted, invalid, missed, passed, the first
// that applies. An error is the reason for all that is missing after it, so it stands alone; only a broken promise is more
// than that.
func judge(s *rundir.Summary, criteria []scenario.Criterion, o outcome) {
	s.Criteria = nil
	var missed, empty []string
	for _, c := range criteria {
		for _, row := range evaluate(s, c) {
			s.Criteria = append(s.Criteria, row)
			if row.Result != rundir.Met {
				missed = append(missed, row.Metric)
			}
			if row.Result == rundir.NoData {
				empty = append(empty, row.Metric)
			}
		}
	}
	why := func(v rundir.Verdict, format string, args ...any) {
		if s.Verdict == "" {
			s.Verdict = v
		}
		s.Reasons = append(s.Reasons, fmt.Sprintf(format, args...))
	}
	s.Verdict, s.Reasons = "", nil
	if o.err != nil {
		why(rundir.Error, "%v", o.err)
	}
	if s.Ledger.Broken() {
		why(rundir.Broken, "a delivery promise was broken: %d lost, %d duplicated, %d reordered, %d leaked, %d with other content, %d in no log, %d times delivered went back (ledger.json names them)",
			s.Ledger.Lost, s.Ledger.Duplicated, s.Ledger.Reordered, s.Ledger.Leaked, s.Ledger.Mismatched, s.Ledger.Foreign+s.Ledger.Unlogged+s.Ledger.LoggedTwice+s.Ledger.LogGaps, s.Ledger.Regressed)
	}
	if o.err != nil {
		return
	}
	if o.early != nil {
		why(o.early.verdict, "%s", o.early.why)
	} else if o.interrupted {
		why(rundir.Interrupted, "the run was interrupted; what was measured up to then is kept")
	}
	if o.lost != nil {
		why(rundir.Invalid, "%v; what it measured since is missing, and the load was not the one that was planned", o.lost)
	}
	if s.Generator.Dropped > 0 {
		why(rundir.Invalid, "the generator dropped %d samples: what was measured is not all that happened", s.Generator.Dropped)
	}
	if limit := o.sendLimitMS / 10; limit > 0 && s.Generator.LateP99MS > limit {
		why(rundir.Invalid, "the generator started its sends late: p99 %.1f ms, above a tenth of the send criterion (%.1f ms)", s.Generator.LateP99MS, limit)
	}
	for _, reason := range limited(s.Generator, o.sendLimitMS/10) {
		why(rundir.Invalid, "%s", reason)
	}
	for _, f := range s.Faults {
		if f.Error != "" && o.early == nil && !o.interrupted {
			why(rundir.Invalid, "a fault could not be done, so this is not the run that the scenario describes: %s: %s", f.Fault, f.Error)
		}
	}
	if len(empty) > 0 {
		why(rundir.Missed, "no data: nothing was measured of %s", strings.Join(empty, ", "))
	}
	if len(missed) > 0 {
		why(rundir.Missed, "%d of %d criteria missed: %s", len(missed), len(s.Criteria), strings.Join(missed, ", "))
	}
	if s.Verdict == "" {
		s.Verdict = rundir.Passed
	}
}

// evaluate gives one row per bound of a criterion. A figure without samples is "no data", which misses.
func evaluate(s *rundir.Summary, c scenario.Criterion) []rundir.Criterion {
	value, unit := figure(s, c)
	var rows []rundir.Criterion
	add := func(op string, l *scenario.Limit, met func(v float64) bool) {
		if l == nil {
			return
		}
		row := rundir.Criterion{Metric: c.Metric, Op: op, Limit: l.Value, Unit: unit, Value: value, Result: rundir.NoData}
		if value != nil {
			row.Result = rundir.NotMet
			if met(*value) {
				row.Result = rundir.Met
			}
		}
		rows = append(rows, row)
	}
	add("<=", c.Max, func(v float64) bool { return v <= c.Max.Value })
	add(">=", c.Min, func(v float64) bool { return v >= c.Min.Value })
	return rows
}

// figure looks up a criterion's metric in the summary; nil means that there were no samples.
func figure(s *rundir.Summary, c scenario.Criterion) (value *float64, unit string) {
	some := func(v float64, ok bool) *float64 {
		if !ok {
			return nil
		}
		return &v
	}
	switch c.Metric {
	case "achieved_rate":
		return some(s.AchievedShare, s.Offered > 0), "of offered"
	case "admitted_rate":
		return s.AdmittedRate, "1/s"
	case "effective_ack":
		return some(s.EffectiveAck, s.EffectiveAck > 0), "events/ack"
	}
	metric, stat, _ := c.Latency()
	m := s.Metrics[metric]
	return some(statistic(m, stat), m.Count > 0), "ms"
}

func statistic(m rundir.Metric, stat string) float64 {
	switch stat {
	case "p50":
		return m.P50
	case "p95":
		return m.P95
	case "p99":
		return m.P99
	case "p999":
		return m.P999
	}
	return m.Max
}

// sendLimit is the tightest p99 that a criterion sets on a send, in ms; 0 = none.
func sendLimit(criteria []scenario.Criterion) float64 {
	limit := 0.0
	for _, c := range criteria {
		metric, stat, ok := c.Latency()
		if !ok || stat != "p99" || c.Max == nil || (metric != rundir.SendIntended && metric != rundir.SendService) {
			continue
		}
		if limit == 0 || c.Max.Value < limit {
			limit = c.Max.Value
		}
	}
	return limit
}

// exitCode is the code of a verdict; a lost target overrides "error" (see run).
func exitCode(v rundir.Verdict) int {
	switch v {
	case rundir.Passed:
		return ExitPassed
	case rundir.Broken:
		return ExitBroken
	case rundir.Aborted:
		return ExitAborted
	case rundir.Interrupted:
		return ExitInterrupted
	case rundir.Invalid:
		return ExitInvalid
	case rundir.Missed:
		return ExitMissed
	}
	return ExitError
}

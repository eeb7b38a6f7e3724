package app

import (
	"fmt"
	"slices"
	"strings"

	"imbench/loadgen/internal/scenario"
	"imbench/loadgen/internal/search"
	"imbench/reports/rundir"
)

// fewestMessages is what a short probe has at least at the lowest rate of a search: percentiles of fewer say nothing.
const fewestMessages = 20

// lowestShare is the lowest multiple of the scenario's rate that a search tries, if that is messages enough.
const lowestShare = 1.0 / 64

// lowest is the lowest multiple of the scenario's rates of which a short probe says something.
func (c *campaign) lowest() float64 {
	messages := c.rate() * min(c.options.series.probes.measure, c.base.Phases.Measure).Seconds()
	if messages <= 0 {
		return 1
	}
	return min(1, max(lowestShare, fewestMessages/messages))
}

// attempt is what a probe measured; nil = nothing.
type attempt struct {
	multiple float64
	summary  *rundir.Summary
}

// reported is what the search is told of the last probe of a trial. Of one at the lowest rate that did not hold it says
// why no rate will: with a sentence on the criteria that every probe missed, whatever its rate. The generator is to blame
// only for what its own lateness explains.
func (c *campaign) reported(t search.Trial, probe *rundir.Probe, all []attempt) search.Outcome {
	outcome := map[string]search.Outcome{rundir.ProbeHeld: search.Held, rundir.ProbeFailed: search.Failed, rundir.ProbeGenerator: search.Generator}[probe.Outcome]
	if !t.Lowest {
		return outcome
	}
	c.hopeless = ""
	if outcome == search.Held {
		return outcome
	}
	always := alwaysMissed(all)
	if len(always) == 0 {
		if probe.Verdict == rundir.Missed { // of other criteria than above
			return search.Unclear
		}
		return outcome
	}
	last := all[len(all)-1].summary
	if outcome == search.Generator && slices.ContainsFunc(always, func(r rundir.Criterion) bool { return !lateExplains(r, last) }) {
		outcome, probe.Outcome = search.Failed, rundir.ProbeFailed
	}
	var said []string
	for _, row := range always {
		said = append(said, missedAlways(row, all))
	}
	c.hopeless = strings.Join(said, "; ")
	if outcome == search.Generator {
		c.hopeless += fmt.Sprintf("; the generator itself starts sends %.3g ms late there (p99), so this machine cannot tell whether a system meets it", last.Generator.LateP99MS)
	}
	return outcome
}

// alwaysMissed are the criteria that every attempt missed, of those that measured anything, as the last one has them: each of
// them with a value, or each without. One that was missed at a high rate and has no data at the lowest was not missed there: it may
// be that a rate in between meets it.
func alwaysMissed(all []attempt) (rows []rundir.Criterion) {
	first := true
	for _, a := range all {
		if a.summary == nil || len(a.summary.Criteria) == 0 {
			continue
		}
		var still []rundir.Criterion
		for _, row := range a.summary.Criteria {
			same := func(r rundir.Criterion) bool { return sameBound(r, row) && r.Result == row.Result }
			if row.Result != rundir.Met && (first || slices.ContainsFunc(rows, same)) {
				still = append(still, row)
			}
		}
		rows, first = still, false
	}
	if last := all[len(all)-1].summary; last == nil || len(last.Criteria) == 0 {
		return nil // what the lowest rate says is missing
	}
	return rows
}

func sameBound(a, b rundir.Criterion) bool {
	return a.Metric == b.Metric && a.Op == b.Op && a.Limit == b.Limit
}

// lateExplains says whether a criterion may be missed only because the generator started its sends late. One without data has
// nothing that could be late.
func lateExplains(row rundir.Criterion, s *rundir.Summary) bool {
	_, _, latency := scenario.Criterion{Metric: row.Metric}.Latency()
	if row.Value == nil {
		return false
	}
	if !latency {
		return row.Metric == "achieved_rate"
	}
	return row.Op == "<=" && *row.Value-s.Generator.LateP99MS <= row.Limit
}

// missedAlways is the sentence on one criterion.
func missedAlways(row rundir.Criterion, all []attempt) string {
	name := fmt.Sprintf("%s %s %.4g %s", row.Metric, row.Op, row.Limit, row.Unit)
	var values []string
	for _, i := range []int{0, len(all) - 1} {
		if all[i].summary == nil {
			continue
		}
		for _, r := range all[i].summary.Criteria {
			if sameBound(r, row) && r.Value != nil {
				values = append(values, fmt.Sprintf("%.4g %s at %.3f times the scenario's rate", *r.Value, r.Unit, all[i].multiple))
			}
		}
	}
	if len(values) == 0 {
		return name + " has no data at any rate that was tried: the scenario has nothing of which it could be measured"
	}
	return fmt.Sprintf("%s was missed at every rate that was tried, down to the lowest that says something (%s): no load is low enough", name, strings.Join(values, ", "))
}

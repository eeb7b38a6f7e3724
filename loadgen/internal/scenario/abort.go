package scenario

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// AbortRule ends a run when a figure of its live state stays beyond a bound. In YAML:
// {metric: error_rate, max: 5%, for: 10s}.
type AbortRule struct {
	Metric string        `yaml:"metric" enum:"error_rate,achieved_rate,connected,send.intended.p99,deliver.p99,generator.late.p99" doc:"error_rate (failed, of the sends that ended), achieved_rate (done, of the sends that were due), connected (of the devices), send.intended.p99, deliver.p99, or generator.late.p99"`
	Max    *Limit        `yaml:"max" doc:"the run is aborted when the figure stays above this"`
	Min    *Limit        `yaml:"min" doc:"the run is aborted when the figure stays below this"`
	For    time.Duration `yaml:"for" min:"0s" max:"1h" doc:"how long: shares are taken over the last so many seconds, a latency must be beyond in each of them (seconds in which nothing ended are passed over); 0s is one second"`
}

// The figures that an abort rule may bound.
const (
	ErrorRate    = "error_rate"
	AchievedRate = "achieved_rate"
	Connected    = "connected"
	LiveSend     = "send.intended.p99"
	LiveDeliver  = "deliver.p99"
	LiveLate     = "generator.late.p99"
)

var abortMetrics = []string{ErrorRate, AchievedRate, Connected, LiveSend, LiveDeliver, LiveLate}

// Latency says whether the figure is a latency in ms; the others are shares.
func (r AbortRule) Latency() bool { return strings.Contains(r.Metric, ".") }

// String is the rule as a person writes it: "error_rate > 5% for 10s".
func (r AbortRule) String() string {
	var parts []string
	if r.Max != nil {
		parts = append(parts, r.Metric+" > "+r.Max.text)
	}
	if r.Min != nil {
		parts = append(parts, r.Metric+" < "+r.Min.text)
	}
	return strings.Join(parts, " or ") + fmt.Sprintf(" for %v", max(r.For, time.Second))
}

// abortIssues lists what is wrong with each rule by itself. whole is false when a field could not be read.
func (s *Scenario) abortIssues(whole bool) (list []issue) {
	for i := range s.Abort {
		r, path := &s.Abort[i], fmt.Sprintf("abort[%d]", i)
		// Of the metric the sentence below says more than that it is none of the tag's.
		bad := slices.DeleteFunc(fieldIssues(r, path), func(i issue) bool { return i.path == path+".metric" })
		switch {
		case r.Metric == "":
			if whole { // else it may be what could not be read
				bad = append(bad, issue{path, "has no metric"})
			}
		case !slices.Contains(abortMetrics, r.Metric):
			bad = append(bad, issue{path, fmt.Sprintf("unknown metric %q; %s", r.Metric, nearest(r.Metric, abortMetrics))})
		case r.Max == nil && r.Min == nil:
			bad = append(bad, issue{path, r.Metric + " needs max or min"})
		default:
			for _, l := range []*Limit{r.Max, r.Min} {
				if l == nil {
					continue
				}
				if err := l.resolve(kindOf(r.Metric, r.Latency())); err != nil {
					bad = append(bad, issue{path, r.Metric + ": " + err.Error()})
				}
			}
		}
		list = append(list, bad...)
	}
	return list
}

// Bounds of the default abort rules.
const (
	farAbove    = 10              // times a criterion of a send
	leastFar    = 2 * time.Second // however tight the criterion is
	noCriterion = 10 * time.Second
)

// DefaultAborts are the rules for a target when the scenario has none: what the load does to others must not go on for long.
// The faults of a scenario are meant to hurt, so the rules then wait for the longest of them and half a minute more.
func (s *Scenario) DefaultAborts() []AbortRule {
	far := noCriterion
	for _, c := range s.Criteria {
		if c.Metric == LiveSend && c.Max != nil {
			far = max(leastFar, time.Duration(farAbove*c.Max.Value*float64(time.Millisecond)))
		}
	}
	var patience time.Duration
	if len(s.Faults) > 0 {
		patience = s.LongestOutage() + 30*time.Second
	}
	share := func(text string) *Limit { return mustLimit(text, shareLimit) }
	return []AbortRule{
		{Metric: ErrorRate, Max: share("5%"), For: 10*time.Second + patience},
		{Metric: AchievedRate, Min: share("50%"), For: 15*time.Second + patience},
		{Metric: Connected, Min: share("50%"), For: 15*time.Second + patience},
		{Metric: LiveSend, Max: mustLimit(far.String(), latencyLimit), For: 15*time.Second + patience},
	}
}

// mustLimit is a limit of this package's own; one that does not parse is a mistake in it.
func mustLimit(text string, kind limitKind) *Limit {
	l := &Limit{text: text}
	if err := l.resolve(kind); err != nil {
		panic(err)
	}
	return l
}

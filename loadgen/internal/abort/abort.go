// Package abort decides when a run must end for the sake of the system under load.
//
// A Watch is pure: it is told a reading a second and says which rule is broken. It belongs to one goroutine. It keeps as many
// readings as its longest rule lasts, in seconds.
package abort

import (
	"fmt"
	"time"

	"imbench/loadgen/internal/scenario"
)

// Reading is the state of a load at a moment; counts are since its beginning.
type Reading struct {
	At                          time.Duration // since the load began
	Due, Done, Failed           int64         // sends
	Connected, Devices          int64
	SendP99, DeliverP99, Late99 time.Duration // of the last second
}

// Breach is a rule that is broken.
type Breach struct {
	Rule  scenario.AbortRule
	Value float64       // a share, or ms
	At    time.Duration // since the load began
}

// String names rule, value and time.
func (b Breach) String() string {
	value := fmt.Sprintf("%.1f %%", 100*b.Value)
	if b.Rule.Latency() {
		value = fmt.Sprintf("%.0f ms", b.Value)
	}
	return fmt.Sprintf("%s: it was %s, %.0f s after the load began", b.Rule, value, b.At.Seconds())
}

// Watch holds the rules against the readings.
type Watch struct {
	rules    []scenario.AbortRule
	readings []Reading // the last ones, oldest first
	keep     time.Duration
	beyond   []int // by rule: seconds in a row in which a latency was beyond
}

// NewWatch makes a watch for rules that a scenario has validated.
func NewWatch(rules []scenario.AbortRule) *Watch {
	w := &Watch{rules: rules, beyond: make([]int, len(rules))}
	for _, r := range rules {
		w.keep = max(w.keep, length(r))
	}
	return w
}

// length is how long a rule must be broken.
func length(r scenario.AbortRule) time.Duration { return max(r.For, time.Second) }

// Add takes the next reading, and returns the first rule that is broken with it; nil if none.
func (w *Watch) Add(r Reading) *Breach {
	w.readings = append(w.readings, r)
	for len(w.readings) > 2 && r.At-w.readings[1].At >= w.keep {
		w.readings = w.readings[1:]
	}
	for i, rule := range w.rules {
		value, ok := w.value(i, rule)
		if ok {
			return &Breach{Rule: rule, Value: value, At: r.At}
		}
	}
	return nil
}

// value gives a rule's figure, and whether it breaks the rule.
func (w *Watch) value(i int, rule scenario.AbortRule) (value float64, broken bool) {
	last := w.readings[len(w.readings)-1]
	if rule.Latency() {
		if len(w.readings) < 2 || ended(last) == ended(w.readings[len(w.readings)-2]) {
			return 0, false // nothing ended in this second: its latency is an older one's
		}
		value = float64(latency(last, rule.Metric)) / float64(time.Millisecond)
		if !beyond(rule, value) {
			w.beyond[i] = 0
			return value, false
		}
		w.beyond[i]++
		return value, time.Duration(w.beyond[i])*time.Second >= length(rule)
	}
	first, ok := w.before(last.At - length(rule))
	if !ok {
		return 0, false
	}
	if rule.Metric == scenario.Connected {
		return w.connected(rule)
	}
	value, ok = share(first, last, rule.Metric)
	return value, ok && beyond(rule, value)
}

// connected is beyond if it was in every reading of the rule's length.
func (w *Watch) connected(rule scenario.AbortRule) (value float64, broken bool) {
	last := w.readings[len(w.readings)-1]
	for _, r := range w.readings {
		if r.At <= last.At-length(rule) {
			continue
		}
		if r.Devices == 0 {
			return 0, false
		}
		if value = float64(r.Connected) / float64(r.Devices); !beyond(rule, value) {
			return value, false
		}
	}
	return value, true
}

// before is the latest reading at or before a moment.
func (w *Watch) before(at time.Duration) (r Reading, ok bool) {
	for _, x := range w.readings {
		if x.At > at {
			break
		}
		r, ok = x, true
	}
	return r, ok
}

func ended(r Reading) int64 { return r.Done + r.Failed }

func latency(r Reading, metric string) time.Duration {
	switch metric {
	case scenario.LiveSend:
		return r.SendP99
	case scenario.LiveDeliver:
		return r.DeliverP99
	}
	return r.Late99
}

// share is what happened between two readings; false if there is nothing to take a share of.
func share(from, to Reading, metric string) (float64, bool) {
	part, of := to.Done-from.Done, to.Due-from.Due
	if metric == scenario.ErrorRate {
		part, of = to.Failed-from.Failed, ended(to)-ended(from)
	}
	if of <= 0 {
		return 0, false
	}
	return float64(part) / float64(of), true
}

func beyond(r scenario.AbortRule, value float64) bool {
	return r.Max != nil && value > r.Max.Value || r.Min != nil && value < r.Min.Value
}

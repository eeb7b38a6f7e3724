package scenario

import (
	"fmt"
	"time"
)

// A target is not hit with the whole load at once: rampFrom is the factor that a ramp begins with, and it takes at most
// longestRamp, and at most rampShare of the warm-up, so that the window begins in the steady state.
const (
	rampFrom    = 0.1
	rampShare   = 0.75
	longestRamp = 30 * time.Second
)

// DefaultRamp is how long the ramp up of a load on a target takes; 0 if the scenario has stages of its own, or no warm-up.
func (s *Scenario) DefaultRamp() time.Duration {
	if len(s.Load.Stages) > 0 {
		return 0
	}
	return min(longestRamp, time.Duration(rampShare*float64(s.Phases.Warmup)).Truncate(time.Millisecond))
}

// SetRamp has the load begin with a tenth of its rates, which grow to the whole over d. It must fit into the warm-up, and
// stages of the scenario's own leave no room for it.
func (s *Scenario) SetRamp(d time.Duration) error {
	switch {
	case d == 0:
		return nil
	case d < 0 || d > s.Phases.Warmup:
		return fmt.Errorf("-ramp %v does not fit into the warm-up of %v: give less, or -set phases.warmup=%v", d, s.Phases.Warmup, max(d, -d))
	case len(s.Load.Stages) > 0:
		return fmt.Errorf("-ramp does not go with %s, which has stages of its own", s.Name)
	}
	from, to := rampFrom, 1.0
	s.Load.Stages = []Stage{{For: d, Rate: &from, To: &to}}
	s.overrides = append(s.overrides, fmt.Sprintf("load.stages: from %v up over %v (-ramp)", rampFrom, d))
	return nil
}

// Steady says whether the stages leave the rates as they are from one moment of the load to another.
func (t Traffic) Steady(from, to time.Duration) bool {
	a, b := from.Seconds(), to.Seconds()
	end, factor := 0.0, 1.0
	first, seen := 0.0, false
	same := func(begin, end float64) bool {
		if !seen {
			first, seen = begin, true
		}
		return begin == first && end == first
	}
	for _, l := range t.Lines() {
		if max(a, l.From) < min(b, l.To) && !same(l.Begin, l.End) {
			return false
		}
		end, factor = l.To, l.End
	}
	return end >= b || same(factor, factor)
}

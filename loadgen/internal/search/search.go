// Package search finds the highest load that a system holds: geometric growth until a trial fails, bisection until the
// interval is narrow enough, and a long trial of its lower end. It only decides what to try next; who runs the trials
// reports how they ended.
//
// Loads are multiples of the scenario's. Short trials are optimistic: queues, dead rows and caches fill for longer than
// they last. So their lower end is confirmed by a long trial, and once a long trial has contradicted a short one only long
// ones count: the search goes down in growing steps until one holds, and bisects from there.
//
// What misses at the scenario's load and at the next below it may miss at any load: a criterion that no rate can meet. So
// the lowest load is tried then, before the search goes down step by step. If it fails too, that is the end; if it holds,
// the answer lies between.
//
// A Search belongs to one goroutine.
package search

import "math"

// Outcome is how a trial ended.
type Outcome int

// The outcomes. Generator: the generator could not drive the load, so that the system was not tested. That bounds the
// search as a failure does, but it is another answer. Unclear: the lowest load did not hold, but for another reason than
// the loads above it, as a figure of few messages may; that says nothing of them, and bounds nothing.
const (
	Held Outcome = iota
	Failed
	Generator
	Unclear // only of a Trial that is Lowest
)

// Config says how to search. Zero fields take their defaults.
type Config struct {
	Resolution float64 // the interval's ends are at most this share apart; default 0.05
	Grow       float64 // factor between trials while no end is known; default 1.5
	Lowest     float64 // no multiple below this is tried; default 1/64, at most 1
	Highest    float64 // nor above this; default 64, at least 1
	Retries    int     // a short trial that did not hold is tried again this often, and counts if none held: machines hiccup
}

// Trial is what to run next.
type Trial struct {
	Multiple float64
	Long     bool
	Lowest   bool // asks whether anything holds, before the search goes down step by step
}

// Answer is what is known; it may be asked for at any time.
type Answer struct {
	Held      float64 // the highest multiple that held; 0 = none
	Confirmed bool    // in a long trial
	Failed    float64 // the lowest that did not; 0 = none
	By        Outcome // of Failed
	Done      bool    // nothing is left to try
}

// Search is a search under way.
type Search struct {
	cfg     Config
	next    Trial
	retries int // left for next

	low      float64 // highest that held in a short trial below high; 0 = none
	high     float64 // lowest that did not hold; +Inf = none
	by       Outcome
	long     float64 // highest that held in a long trial; 0 = none
	longOnly bool    // a long trial contradicted a short one
	step     float64 // how far down the next long trial goes; a power of 1 + Resolution
	asked    bool    // the lowest load was tried out of turn
	lowest   bool    // and it held
	done     bool
}

// New begins at the scenario's own load.
func New(c Config) *Search {
	c.Resolution, c.Grow = or(c.Resolution, 0.05), or(c.Grow, 1.5)
	c.Lowest, c.Highest = min(or(c.Lowest, 1.0/64), 1), max(or(c.Highest, 64), 1)
	return &Search{cfg: c, next: Trial{Multiple: 1}, retries: c.Retries, high: math.Inf(1), step: 1 + c.Resolution}
}

func or(v, def float64) float64 {
	if v == 0 {
		return def
	}
	return v
}

// Next says what to try; ok is false when the answer is there.
func (s *Search) Next() (t Trial, ok bool) { return s.next, !s.done }

// Report says how the trial of Next ended.
func (s *Search) Report(o Outcome) {
	if s.done {
		return
	}
	t := s.next
	if o != Held && !t.Long && s.retries > 0 {
		s.retries--
		return
	}
	switch {
	case t.Lowest && o != Held && o != Unclear: // nothing lower is left
		s.high, s.by, s.done = t.Multiple, o, true
		return
	case t.Lowest:
		s.lowest = o == Held
	case o != Held:
		if t.Multiple < s.high {
			s.high, s.by = t.Multiple, o
		}
		s.longOnly = s.longOnly || t.Long
		if s.long >= s.high { // it held before and does not now
			s.long = 0
		}
		if s.low >= s.high {
			s.low = 0
		}
	case t.Long:
		s.long = max(s.long, t.Multiple)
	default:
		s.low = max(s.low, t.Multiple)
	}
	s.choose()
	s.retries = s.cfg.Retries
}

// choose picks the next trial, or ends the search.
func (s *Search) choose() {
	if s.low == 0 && s.lowest && s.high/s.cfg.Grow <= s.cfg.Lowest {
		s.low = s.cfg.Lowest // the way down has come to what held out of turn
	}
	low := s.low
	if s.longOnly {
		low = s.long
	}
	next := Trial{Long: s.longOnly}
	switch {
	case s.long > 0 && (s.narrow(s.long) || s.long >= s.cfg.Highest):
		s.done = true
		return
	case s.longOnly && low == 0:
		next.Multiple = s.high / s.step
		s.step *= s.step
	case low == 0 && !s.asked && s.high < 1 && s.cfg.Lowest < s.high/s.cfg.Grow:
		next.Multiple, next.Lowest, s.asked = s.cfg.Lowest, true, true
	case low == 0:
		next.Multiple = s.high / s.cfg.Grow
	case s.narrow(low) || low >= s.cfg.Highest:
		next = Trial{Multiple: low, Long: true}
	case math.IsInf(s.high, 1):
		next.Multiple = min(low*s.cfg.Grow, s.cfg.Highest)
	default:
		next.Multiple = math.Sqrt(low * s.high)
	}
	if next.Multiple < s.cfg.Lowest {
		s.done = true
		return
	}
	s.next = next
}

// narrow says whether the interval from low to the lowest failure is within the resolution. The little more is for
// products of roots that ought to be equal.
func (s *Search) narrow(low float64) bool { return s.high/low <= (1+s.cfg.Resolution)*(1+1e-9) }

// Answer is the interval so far.
func (s *Search) Answer() Answer {
	a := Answer{Held: s.low, Done: s.done}
	if s.longOnly || s.long > 0 {
		a.Held, a.Confirmed = s.long, s.long > 0
	}
	if !math.IsInf(s.high, 1) {
		a.Failed, a.By = s.high, s.by
	}
	return a
}

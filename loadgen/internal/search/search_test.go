package search

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// system is one under test: what it says to a trial.
type system func(Trial) Outcome

// limit holds up to a multiple.
func limit(most float64) system {
	return func(t Trial) Outcome {
		if t.Multiple <= most {
			return Held
		}
		return Failed
	}
}

// tiring holds less for long than for short.
func tiring(short, long float64) system {
	return func(t Trial) Outcome {
		if t.Long {
			return limit(long)(t)
		}
		return limit(short)(t)
	}
}

// driven is a system behind a generator that cannot do more than its own limit.
func driven(s system, generator float64) system {
	return func(t Trial) Outcome {
		if t.Multiple > generator {
			return Generator
		}
		return s(t)
	}
}

// noisy moves a system's limit from trial to trial.
func noisy(most, sigma float64, rng *rand.Rand) system {
	return func(t Trial) Outcome { return limit(most * math.Exp(sigma*rng.NormFloat64()))(t) }
}

// mostTrials is more than any search of these tests may take.
const mostTrials = 80

type told struct {
	Trial
	Outcome
}

func run(t interface {
	Fatalf(string, ...any)
}, c Config, s system) (Answer, []told) {
	search := New(c)
	var log []told
	for {
		trial, ok := search.Next()
		if !ok {
			return search.Answer(), log
		}
		if len(log) == mostTrials {
			t.Fatalf("no end after %d trials: %+v", mostTrials, log)
		}
		o := s(trial)
		log = append(log, told{trial, o})
		search.Report(o)
	}
}

func TestWhereItIsKnown(t *testing.T) {
	for _, c := range []struct {
		name      string
		system    system
		low, high float64 // the answer's ends lie on both sides of these
		by        Outcome
	}{
		{"above the scenario", limit(1.9), 1.9, 1.9, Failed},
		{"below the scenario", limit(0.3), 0.3, 0.3, Failed},
		{"far above", limit(40), 40, 40, Failed},
		{"it tires", tiring(2, 1.5), 1.5, 1.5, Failed},
		{"it tires below the scenario", tiring(2, 0.2), 0.2, 0.2, Failed},
		{"the generator is first", driven(limit(4), 2.5), 2.5, 2.5, Generator},
		{"the system is first", driven(limit(2.5), 4), 2.5, 2.5, Failed},
		{"the generator is first, for long only", func(x Trial) Outcome {
			if x.Long && x.Multiple > 1.7 {
				return Generator
			}
			return limit(2)(x)
		}, 1.7, 1.7, Generator},
	} {
		a, log := run(t, Config{}, c.system)
		if !a.Done || !a.Confirmed || a.Held > c.low || a.Failed < c.high || a.By != c.by || a.Failed/a.Held > 1.05+1e-6 {
			t.Errorf("%s: %+v after %+v", c.name, a, log)
		}
	}
}

// What no load meets is known after three trials: the scenario's load, the next below it, and the lowest.
func TestWhatNoLoadMeets(t *testing.T) {
	for _, none := range []Outcome{Failed, Generator} {
		a, log := run(t, Config{}, func(Trial) Outcome { return none })
		if !a.Done || a.Held != 0 || a.By != none || a.Failed != 1.0/64 || len(log) != 3 || !log[2].Lowest {
			t.Errorf("%+v after %+v", a, log)
		}
	}
	if a, log := run(t, Config{Lowest: 0.9}, limit(0)); a.Held != 0 || len(log) != 1 {
		t.Errorf("nothing below the lowest is to be tried: %+v after %+v", a, log)
	}
	// The lowest fails for a reason of its own, and what lies between is tried as ever.
	other := func(x Trial) Outcome {
		if x.Lowest {
			return Unclear
		}
		return limit(0.3)(x)
	}
	if a, log := run(t, Config{}, other); !a.Confirmed || a.Held > 0.3 || a.Failed < 0.3 {
		t.Errorf("%+v after %+v", a, log)
	}
	// Only the lowest holds: the way down comes to it, and the answer lies just above.
	if a, log := run(t, Config{}, limit(1.0/60)); !a.Confirmed || a.Held > 1.0/60 || a.Failed < 1.0/60 || a.Failed/a.Held > 1.05+1e-6 {
		t.Errorf("%+v after %+v", a, log)
	}
}

func TestNoEnd(t *testing.T) {
	if a, log := run(t, Config{}, limit(0)); a.Held != 0 || a.Confirmed || a.Failed >= 1.0/40 || a.By != Failed {
		t.Errorf("what holds nothing: %+v after %+v", a, log)
	}
	if a, log := run(t, Config{}, driven(limit(9), 0)); a.Held != 0 || a.By != Generator {
		t.Errorf("a generator that drives nothing: %+v after %+v", a, log)
	}
	if a, _ := run(t, Config{Highest: 10}, limit(1e9)); a.Held != 10 || !a.Confirmed || a.Failed != 0 {
		t.Errorf("what holds everything: %+v", a)
	}
	if a, _ := run(t, Config{Highest: 1}, limit(1e9)); a.Held != 1 || !a.Confirmed {
		t.Errorf("what needs to hold no more than the scenario: %+v", a)
	}
}

// The order of a plain search, as the README tells it.
func TestTheOrder(t *testing.T) {
	_, log := run(t, Config{Resolution: 0.25}, limit(2))
	want := []told{{Trial{Multiple: 1}, Held}, {Trial{Multiple: 1.5}, Held}, {Trial{Multiple: 2.25}, Failed},
		{Trial{Multiple: math.Sqrt(1.5 * 2.25)}, Held}, {Trial{Multiple: math.Sqrt(1.5 * 2.25), Long: true}, Held}}
	if len(log) != len(want) {
		t.Fatalf("%+v", log)
	}
	for i, x := range want {
		if log[i].Long != x.Long || log[i].Outcome != x.Outcome || math.Abs(log[i].Multiple-x.Multiple) > 1e-9 {
			t.Errorf("trial %d: %+v, want %+v", i, log[i], x)
		}
	}
}

// A hiccup is tried again, and only what fails again counts.
func TestRetry(t *testing.T) {
	calls := 0
	hiccup := func(x Trial) Outcome {
		if calls++; calls == 1 {
			return Failed
		}
		return limit(2)(x)
	}
	if a, log := run(t, Config{Retries: 1}, hiccup); a.Held < 1.9 || a.Held > 2 {
		t.Errorf("%+v after %+v", a, log)
	}
	_, log := run(t, Config{Retries: 1}, limit(0.9))
	if len(log) < 2 || log[0].Multiple != 1 || log[1].Multiple != 1 || log[2].Multiple >= 1 {
		t.Errorf("a failure is not tried twice: %+v", log)
	}
}

// Ctrl-C: whatever was reported, the answer is about trials that were made.
func TestAnswerAtAnyTime(t *testing.T) {
	s := New(Config{})
	if a := s.Answer(); a != (Answer{}) {
		t.Errorf("before the first: %+v", a)
	}
	s.Report(Held)
	if a := s.Answer(); a.Held != 1 || a.Confirmed || a.Failed != 0 || a.Done {
		t.Errorf("after one: %+v", a)
	}
	s.Report(Failed)
	if a := s.Answer(); a.Held != 1 || a.Failed != 1.5 {
		t.Errorf("after two: %+v", a)
	}
}

// For any system the search ends, and what it says was seen: the lower end held, long if it says so and nothing at or
// below it failed long; the upper end did not hold; if the search was not at its ends, they are within the resolution.
func TestProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Config{Resolution: rapid.Float64Range(0.01, 0.5).Draw(t, "resolution"), Retries: rapid.IntRange(0, 2).Draw(t, "retries")}
		short := math.Exp(rapid.Float64Range(-3, 3).Draw(t, "limit"))
		long := short * rapid.Float64Range(0.2, 1).Draw(t, "tired")
		sigma := rapid.SampledFrom([]float64{0, 0.02, 0.2}).Draw(t, "noise")
		generator := math.Exp(rapid.Float64Range(-3, 6).Draw(t, "generator"))
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		s := driven(func(x Trial) Outcome {
			if x.Long {
				return noisy(long, sigma, rng)(x)
			}
			return noisy(short, sigma, rng)(x)
		}, generator)
		a, log := run(t, c, s)
		seen := func(f func(told) bool) bool {
			for _, x := range log {
				if f(x) {
					return true
				}
			}
			return false
		}
		if !a.Done || a.Held > 0 != a.Confirmed {
			t.Fatalf("%+v: not done, or a rate that no long trial held", a)
		}
		if a.Held > 0 && (!seen(func(x told) bool { return x.Multiple == a.Held && x.Long && x.Outcome == Held }) ||
			seen(func(x told) bool { return x.Multiple <= a.Held && x.Long && x.Outcome != Held })) {
			t.Fatalf("%+v was not held: %+v", a, log)
		}
		if a.Failed > 0 && !seen(func(x told) bool { return x.Multiple == a.Failed && x.Outcome == a.By && x.Outcome != Held }) {
			t.Fatalf("%+v did not fail: %+v", a, log)
		}
		if a.Held > 0 && a.Failed > 0 && a.Failed/a.Held > (1+c.Resolution)*(1+1e-6) {
			t.Fatalf("%+v is wider than %v", a, c.Resolution)
		}
		if sigma == 0 && a.Held > 0 && (a.Held > min(long, generator) || a.Failed > 0 && a.Failed <= min(long, generator)) {
			t.Fatalf("%+v does not hold %v", a, min(long, generator))
		}
	})
}

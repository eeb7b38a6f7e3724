package scenario

import (
	"strings"
	"testing"
	"time"
)

func TestAbortRulesAreRead(t *testing.T) {
	s, err := Parse("x.yaml", []byte("abort:\n  - {metric: error_rate, max: 5%, for: 10s}\n  - {metric: send.intended.p99, max: 2s}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if a := s.Abort; a[0].String() != "error_rate > 5% for 10s" || a[0].Max.Value != 0.05 || a[1].String() != "send.intended.p99 > 2s for 1s" || a[1].Max.Value != 2000 {
		t.Errorf("%v", a)
	}
	for line, want := range map[string]string{
		"{metric: error_rat, max: 1}":               `unknown metric "error_rat"; did you mean "error_rate"?`,
		"{max: 1}":                                  "has no metric",
		"{metric: error_rate}":                      "error_rate needs max or min",
		"{metric: error_rate, max: 5ms}":            `"5ms" is not a number`,
		"{metric: error_rate, max: 5}":              `"5" is more than the whole`,
		"{metric: connected, min: 500%}":            `"500%" is more than the whole`,
		"{metric: connected, min: inf}":             `"inf" is not a number`,
		"{metric: connected, max: -Infinity%}":      `"-Infinity%" is not a number`,
		"{metric: deliver.p99, max: 5}":             `"5" is not a duration`,
		"{metric: connected, min: 50%, for: 5}":     `"5" is not a duration`,
		"{metric: connected, min: 50%, for: -5s}":   "must be at least 0s",
		"{metric: connected, min: 50%, during: 5s}": `unknown field "during"`,
	} {
		_, err := Parse("x.yaml", []byte("abort:\n  - "+line+"\n"))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Count(err.Error(), "x.yaml:2:") != 1 {
			t.Errorf("%s: got %v, want %q, and nothing else", line, err, want)
		}
	}
}

// All that is wrong with a rule is told at once, and once.
func TestAbortRuleWithTwoMistakes(t *testing.T) {
	_, err := Parse("x.yaml", []byte("abort:\n  - {metric: error_rat, max: 1, for: 2h}\n"))
	if err == nil || strings.Count(err.Error(), `unknown metric "error_rat"`) != 1 || strings.Count(err.Error(), "must be at most 1h") != 1 || strings.Count(err.Error(), "x.yaml:2:") != 2 {
		t.Errorf("got %v", err)
	}
}

// The default rules are the same after a round trip through what the run directory keeps.
func TestDefaultAborts(t *testing.T) {
	s, err := Parse("x.yaml", []byte("criteria:\n  - {metric: send.intended.p99, max: 500ms}\n"))
	if err != nil {
		t.Fatal(err)
	}
	s.Abort = s.DefaultAborts()
	s.overrides = []string{"abort"}
	kept, err := s.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse("y.yaml", kept)
	if err != nil {
		t.Fatalf("%v\n%s", err, kept)
	}
	var said []string
	for _, r := range again.Abort {
		said = append(said, r.String())
	}
	if got := strings.Join(said, "; "); got != "error_rate > 5% for 10s; achieved_rate < 50% for 15s; connected < 50% for 15s; send.intended.p99 > 5s for 15s" {
		t.Error(got)
	}
	s.Faults = []Fault{{Do: FreezeDevices, For: 20 * time.Second}}
	if got := s.DefaultAborts()[0].For; got != time.Minute {
		t.Errorf("with a fault of 20 s it waits %v", got)
	}
}

func TestRamp(t *testing.T) {
	s, err := Parse("x.yaml", []byte("phases: {warmup: 20s, measure: 60s}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if d := s.DefaultRamp(); d != 15*time.Second {
		t.Errorf("the ramp takes %v of 20s", d)
	}
	if err := s.SetRamp(21 * time.Second); err == nil || !strings.Contains(err.Error(), "phases.warmup=21s") {
		t.Errorf("got %v", err)
	}
	if err := s.SetRamp(15 * time.Second); err != nil {
		t.Fatal(err)
	}
	if err := s.Validate(); err != nil {
		t.Fatal(err)
	}
	if m := s.Load.MeanFactor(0, 15*time.Second); m < 0.549 || m > 0.551 {
		t.Errorf("the mean factor of the ramp is %v", m)
	}
	if !s.Load.Steady(20*time.Second, 80*time.Second) || !s.Load.Steady(15*time.Second, 20*time.Second) || s.Load.Steady(14*time.Second, 20*time.Second) {
		t.Error("steady from the ramp's end on, and not before")
	}
	if d := s.DefaultRamp(); d != 0 {
		t.Errorf("stages of its own, and a ramp of %v", d)
	}
	if err := s.SetRamp(time.Second); err == nil || !strings.Contains(err.Error(), "stages of its own") {
		t.Errorf("got %v", err)
	}
	half := 0.5
	two := Traffic{Stages: []Stage{{For: 10 * time.Second, Rate: &half}, {For: 10 * time.Second}}}
	if !two.Steady(0, time.Hour) || (Traffic{Stages: append(two.Stages, Stage{For: 1, To: new(float64)})}).Steady(0, time.Hour) {
		t.Error("two stages alike are steady, a step is not")
	}
}

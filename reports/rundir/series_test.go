package rundir

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func f(v float64) *float64 { return &v }

func aHead(kind string) SeriesHead {
	return SeriesHead{Format: SeriesFormat, Kind: kind, Scenario: "a-name-as-long-as-reconnect-storm", Started: time.Unix(1e9, 0).UTC(), Revision: "dev",
		Verdict: Missed, Reasons: []string{"run 2: 1 of 4 criteria missed: deliver.p99"}, Complete: true}
}

func aRun(verdict Verdict, counted bool) SeriesRun {
	return SeriesRun{Run: "a-name-as-long-as-reconnect-storm-20261130T080620Z", Seed: 18446744073709551615, Verdict: verdict, Counted: counted}
}

func aRepeat() Repeat {
	return Repeat{SeriesHead: aHead("repeat"), Seeds: "derived", Runs: []SeriesRun{aRun(Passed, true), aRun(Interrupted, false)},
		Figures: []RepeatFigure{
			{Name: "generator CPU/message", Unit: "µs", Values: []*float64{f(1), nil}, Min: f(1e6), Median: f(2e6), Max: f(3e6), Spread: f(12.5), Low: f(1e5), High: f(1e7)},
			{Name: "heal.max", Values: []*float64{nil, nil}}}}
}

func aComparison() Comparison {
	return Comparison{SeriesHead: aHead("ab"), Variants: [2]Variant{{Name: "push"}, {Name: "pull"}}, Pairs: 4, SamePlan: true,
		Runs: []ComparisonRun{{aRun(Passed, true), "push", 1}, {aRun(Invalid, false), "pull", 1}},
		Figures: []ComparisonFigure{
			{Name: "generator CPU/message", Unit: "µs", Pairs: 3, A: f(1000), B: f(900), Relative: true, Differences: []*float64{f(-0.2), f(-0.1), f(0.1), nil}, Mean: f(-0.1), Low: f(-0.983), High: f(21113), P: f(0.5), Result: NoneSeen},
			{Name: "syncs/message", Pairs: 3, A: f(0), B: f(2), Mean: f(2), Low: f(1.5), High: f(2.5), P: f(0.001), Result: Worse},
			{Name: "heal.max", Result: NoData}}}
}

func aSearch() SearchDocument {
	limit := Limit{Resource: "machine CPU", Value: 1.98, Bound: 2, Unit: "cores", Used: 0.99, Note: "of it loadgen 0.5"}
	return SearchDocument{SeriesHead: aHead("search"), Rate: 1250, Resolution: 0.05,
		Probes: []Probe{{SeriesRun: aRun(Passed, true), Multiple: 1, Rate: 1250, Long: true, Outcome: ProbeHeld, Limits: []Limit{limit}},
			{SeriesRun: aRun(Interrupted, false), Multiple: 1.5, Rate: 1875, Outcome: ProbeNone}},
		Answer: SearchAnswer{Held: f(1), HeldRate: f(1250), Failed: f(1.5), FailedRate: f(1875), By: ProbeFailed, Limiting: []Limit{limit}, Text: "Holds that."}}
}

func TestSeriesDocuments(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct{ wrote, read any }{
		RepeatFile: {ptrTo(aRepeat()), &Repeat{}}, ComparisonFile: {ptrTo(aComparison()), &Comparison{}}, SearchFile: {ptrTo(aSearch()), &SearchDocument{}},
	} {
		if err := WriteSeries(dir, name, c.wrote); err != nil {
			t.Fatal(err)
		}
		if err := ReadSeries(dir, name, c.read); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(c.wrote, c.read) {
			t.Errorf("%s: wrote %+v, read %+v", name, c.wrote, c.read)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".*.part")); left != nil {
		t.Errorf("left behind: %v", left)
	}
	if err := os.WriteFile(filepath.Join(dir, RepeatFile), []byte(`{"format": 2}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := ReadSeries(dir, RepeatFile, &Repeat{}); !errors.Is(err, ErrFormat) {
		t.Errorf("a version of tomorrow: %v", err)
	}
	for _, name := range []string{"nothing.json", "."} {
		if err := ReadSeries(dir, name, &Repeat{}); err == nil {
			t.Errorf("%s was read", name)
		}
	}
}

func ptrTo[T any](v T) *T { return &v }

// The tables fit a terminal of 100 columns, whatever the scenario is called, and say what matters.
func TestRenderSeries(t *testing.T) {
	var repeat, ab, found bytes.Buffer
	for _, err := range []error{RenderRepeat(&repeat, aRepeat(), 100), RenderComparison(&ab, aComparison(), 100), RenderSearch(&found, aSearch(), 100)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		text string
		says []string
	}{
		{repeat.String(), []string{"MISSED", "interrupted, not counted", "| heal.max", "no data", "1 250 %", "arrivals of its own"}},
		{ab.String(), []string{"A = push, B = pull, 4 pairs", "-10.0 %", "+2 111 300 %", "+1.500 … +2.500", "worse", "no data", "ABBA"}},
		{found.String(), []string{"Holds that.", "| 20261130T080620Z |", "full", "machine CPU 99 %", "interrupted", "of it loadgen 0.5"}},
	} {
		for _, want := range c.says {
			if !strings.Contains(unwrapped(c.text), unwrapped(want)) {
				t.Errorf("does not say %q:\n%s", want, c.text)
			}
		}
		for line := range strings.Lines(c.text) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 100 && !strings.HasPrefix(line, "#") {
				t.Errorf("%d columns: %s", n, line)
			}
		}
	}
	different, same := aComparison(), aRepeat()
	different.SamePlan, same.Seeds = false, "same"
	ab.Reset()
	repeat.Reset()
	if err := errors.Join(RenderComparison(&ab, different, 100), RenderRepeat(&repeat, same, 100)); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(unwrapped(ab.String()), "different arrivals") || !strings.Contains(unwrapped(repeat.String()), "machine's alone") {
		t.Errorf("what the runs shared is not said:\n%s\n%s", ab.String(), repeat.String())
	}
}

// Of two runs both values are told, and no interval; of three there is one.
func TestRenderRepeatOfTwo(t *testing.T) {
	two := aRepeat()
	two.Runs[1] = aRun(Passed, true)
	two.Figures = []RepeatFigure{{Name: "deliver.p99", Unit: "ms", Values: []*float64{f(10), f(12)}, Min: f(10), Median: f(11), Max: f(12), Spread: f(2. / 11)}}
	three := aRepeat()
	three.Runs = append(three.Runs, aRun(Passed, true))
	for _, c := range []struct {
		doc       Repeat
		says, not string
	}{
		{two, "| deliver.p99 ms | 10 | 12 | 18.2 % |", "95 %"},
		{two, "Two runs give no interval: that needs at least 3 that count (-repeat 3).", "12.5"},
		{three, "| figure | min | median | max | spread | 95 % interval |", "run 1"},
	} {
		var b bytes.Buffer
		if err := RenderRepeat(&b, c.doc, 100); err != nil {
			t.Fatal(err)
		}
		if text := unwrapped(b.String()); !strings.Contains(text, c.says) || strings.Contains(text, c.not) {
			t.Errorf("want %q and not %q:\n%s", c.says, c.not, b.String())
		}
	}
}

// Of two pairs both differences are told, and neither an interval nor a verdict.
func TestRenderComparisonOfTwo(t *testing.T) {
	c := aComparison()
	c.Pairs = 2
	c.Figures = []ComparisonFigure{
		{Name: "deliver.p99", Unit: "ms", Pairs: 2, A: f(10), B: f(12), Relative: true, Differences: []*float64{f(0.25), f(-0.05)}, Result: FewPairs},
		{Name: "syncs/message", Pairs: 1, A: f(0), B: f(2), Differences: []*float64{nil, f(2)}, Result: FewPairs},
		{Name: "heal.max", Differences: []*float64{nil, nil}, Result: NoData}}
	var b bytes.Buffer
	if err := RenderComparison(&b, c, 100); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| deliver.p99 ms | 10 | 12 | +25.0 % | -5.0 % |", "| syncs/message | 0 | 2 | no data | +2 |", "| heal.max | – | – | no data | no data |",
		"Two pairs give no interval and no verdict: those need at least 3 of which both runs count (-repeat 3)."} {
		if !strings.Contains(unwrapped(b.String()), want) {
			t.Errorf("does not say %q:\n%s", want, b.String())
		}
	}
	for _, not := range []string{"95 %", "B is", FewPairs} {
		if strings.Contains(b.String(), not) {
			t.Errorf("says %q:\n%s", not, b.String())
		}
	}
}

// A comparison of a variant with itself is called one.
func TestRenderAA(t *testing.T) {
	for _, same := range []bool{false, true} {
		var b bytes.Buffer
		c := aComparison()
		c.AA = same
		if err := RenderComparison(&b, c, 100); err != nil {
			t.Fatal(err)
		}
		if text := unwrapped(b.String()); strings.Contains(text, ", A/A: A = push, B = pull") != same || strings.Contains(text, "whatever differs is noise") != same {
			t.Errorf("same %v:\n%s", same, b.String())
		}
	}
}

// unwrapped is a text without its line breaks and alignment.
func unwrapped(text string) string { return strings.Join(strings.Fields(text), " ") }

package rundir

import (
	"bytes"
	"flag"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestRenderSummaryGolden(t *testing.T) {
	for _, tt := range []struct {
		file  string
		width int
	}{{"summary80.golden", 80}, {"summary120.golden", 120}} {
		s := testSummary()
		s.Run = "baseline-20260301T120000Z"
		var b bytes.Buffer
		if err := RenderSummary(&b, s, tt.width); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join("testdata", tt.file)
		if *update {
			if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(b.Bytes(), want) {
			t.Errorf("%s differs; got\n%s", tt.file, b.String())
		}
		for _, line := range strings.Split(b.String(), "\n") {
			if n := utf8.RuneCountInString(line); n > tt.width && strings.HasPrefix(line, "|") {
				t.Errorf("%s: %d columns: %s", tt.file, n, line)
			}
		}
	}
}

// Names come from servers and files: whatever they hold, a table stays a table.
func TestTableSurvivesAnyText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := testSummary()
		s.Criteria = []Criterion{{Metric: rapid.String().Draw(t, "metric"), Unit: rapid.String().Draw(t, "unit"), Result: Met}}
		s.Notes = []string{rapid.String().Draw(t, "note")}
		var b bytes.Buffer
		if err := RenderSummary(&b, s, 80); err != nil {
			t.Fatal(err)
		}
		head := -1
		for _, line := range strings.Split(b.String(), "\n") {
			if !strings.HasPrefix(line, "|") {
				head = -1
				continue
			}
			if head < 0 {
				head = strings.Count(line, "|")
			}
			if n := strings.Count(line, "|"); n != head {
				t.Fatalf("%d bars under a head of %d: %q", n, head, line)
			}
		}
	})
}

func TestFigure(t *testing.T) {
	for _, tt := range []struct {
		v    float64
		want string
	}{{0, "0"}, {1, "1"}, {0.1234, "0.123"}, {12.346, "12.35"}, {123.46, "123.5"}, {250, "250"}, {1234.5, "1 235"}, {-1234567, "-1.235 M"},
		{3.55e6, "3.550 M"}, {math.NaN(), "?"}, {math.Inf(1), "?"}} {
		if got := figure(tt.v); got != tt.want {
			t.Errorf("figure(%v) = %q, want %q", tt.v, got, tt.want)
		}
	}
}

// A figure that the model does not describe has no number that could be taken for one.
func TestNotPredicted(t *testing.T) {
	var b strings.Builder
	p := Prediction{Name: "frames.ack", Unit: "1/s", NotPredicted: true, Planned: ptr(80.0)}.WithMeasured(88)
	if err := RenderSummary(&b, Summary{Verdict: Passed, Predictions: []Prediction{p}}, 100); err != nil {
		t.Fatal(err)
	}
	if p.Error != nil || !strings.Contains(strings.Join(strings.Fields(b.String()), " "), "not predicted | | 80 | 88 | – | +10.00 %") {
		t.Errorf("%+v\n%s", p, b.String())
	}
}

func TestWithMeasured(t *testing.T) {
	p := Prediction{Predicted: 100, Planned: ptr(80.0)}.WithMeasured(88)
	if *p.Measured != 88 || math.Abs(*p.Error+0.12) > 1e-12 || math.Abs(*p.PlanError-0.1) > 1e-12 {
		t.Errorf("%v %v %v", *p.Measured, *p.Error, *p.PlanError)
	}
	if p := (Prediction{}).WithMeasured(3); p.Error != nil || p.PlanError != nil {
		t.Error("an error relative to nothing")
	}
}

// Between the narrowest table and the whole one, figures keep their unit; and no width breaks a table. A share is in per cent.
func TestPredictionsKeepTheirUnit(t *testing.T) {
	planned, measured, rate := 1020.2, 993.8, 0.9986
	s := Summary{Criteria: []Criterion{{Metric: "achieved_rate", Op: ">=", Limit: 0.99, Unit: "of offered", Value: &rate, Result: Met}},
		Predictions: []Prediction{{Name: "frames.event_discarded", Unit: "1/s", NotPredicted: true, Planned: &planned, Measured: &measured},
			{Name: "deliveries_per_message", Unit: "frames", Predicted: 1234567, Low: 1, High: 2345678, Planned: &planned, Measured: &measured}}}
	for width, want := range map[int]string{80: "| frames.event_discarded | – |", 100: "| frames.event_discarded | 1/s | not predicted |"} {
		var b bytes.Buffer
		if err := RenderSummary(&b, s, width); err != nil {
			t.Fatal(err)
		}
		said := strings.Join(strings.Fields(b.String()), " ")
		if !strings.Contains(said, want) || !strings.Contains(said, "| >= 99 % of offered | 99.86 % of offered | met |") {
			t.Errorf("%d columns: no %q in\n%s", width, want, b.String())
		}
		for line := range strings.Lines(b.String()) {
			if n := utf8.RuneCountInString(strings.TrimSpace(line)); n > width {
				t.Errorf("%d columns: a line of %d: %s", width, n, line)
			}
		}
	}
}

package page

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"imbench/reports/rundir"
)

func TestVerdictsHaveAMeaning(t *testing.T) {
	seen := map[string]rundir.Verdict{}
	for _, v := range []rundir.Verdict{rundir.Error, rundir.Broken, rundir.Aborted, rundir.Interrupted, rundir.Invalid, rundir.Missed, rundir.Passed, "new"} {
		if other, ok := seen[meaning(v)]; ok {
			t.Errorf("%s and %s mean the same", v, other)
		}
		seen[meaning(v)] = v
	}
}

func TestPercent(t *testing.T) {
	for v, want := range map[float64]string{0.00123: "+0.12 %", -0.5: "-50.00 %", 0: "+0.00 %", 27.208: "+2 721 %", -11: "-1 100 %"} {
		if got := strings.ReplaceAll(percent(v), "\u00a0", " "); got != want {
			t.Errorf("percent(%g) = %q, want %q", v, got, want)
		}
	}
}

// The documents' three arms as one run's traffic: what was not pushed was hinted.
func TestMeasuredPoint(t *testing.T) {
	run := &Run{
		Ledger: &rundir.Ledger{LedgerSummary: rundir.LedgerSummary{Messages: 40, Expected: 40 + 600 + 600}},
		Counters: []rundir.CounterLine{{Applied: 40 + 600 + 120,
			Frames: rundir.ByDirection{Down: map[string]int64{"event": 600, "sent": 40, "hint": 600, "synced": 56}},
			Bytes:  rundir.ByDirection{Down: map[string]int64{"event": 241500, "hint": 22800, "synced": 53966}}}}}
	p := (&builder{run: run}).measured()
	if p == nil || math.Abs(p.Ratio-76766.0/241500) > 1e-12 || math.Abs(p.RatioPoint.Reading-0.2) > 1e-12 || p.Syncs != 56 {
		t.Fatalf("got %+v", p)
	}
	run.Ledger.Expected = 40 + 600 + 3 // a few repairs
	if p := (&builder{run: run}).measured(); p != nil {
		t.Errorf("a run of pushes is an arm of hints: %+v", p)
	}
	run.Ledger = nil
	if p := (&builder{run: run}).measured(); p != nil {
		t.Errorf("a point without a ledger: %+v", p)
	}
}

func TestServerGrowth(t *testing.T) {
	line := func(source string, at float64, sum float64) rundir.ServerLine {
		return rundir.ServerLine{Source: source, T: at, Values: map[string]float64{`im_batch_size_sum{batcher="send"}`: sum, `im_batch_size_count{batcher="send"}`: at}}
	}
	run := &Run{Manifest: rundir.Manifest{Window: &rundir.Window{From: 10, To: 20}}, Server: []rundir.ServerLine{
		line("a", 9, 1), line("a", 10, 100), line("b", 10, 7), {Source: "a", T: 11, Error: "refused"}, line("a", 18, 180), line("b", 18, 87), line("a", 20, 1e9)}}
	rows := (&builder{run: run}).serverTable().Rows
	if got := rows[0][1].Text; got != "10" { // (80 + 80) messages in (8 + 8) commits
		t.Errorf("messages a commit: %q", got)
	}
	if got := rows[1][1].Text; got != "2" { // 16 in 8 s
		t.Errorf("commits a second: %q", got)
	}
	if got := rows[3][1].Text; got != noData {
		t.Errorf("a counter that no gateway has: %q", got)
	}
	run.Manifest.Window = nil
	if rows := (&builder{run: run}).serverTable().Rows; rows != nil {
		t.Errorf("rows without a window: %v", rows)
	}
}

func TestEstimateIsScaledByTheRate(t *testing.T) {
	run := &Run{Summary: rundir.Summary{AchievedRate: 125}}
	rows := (&builder{run: run}).estimateTable([]rundir.ProcessUse{{Role: "postgres", CPUCores: 0.05}, {Role: "gateway-1", CPUCores: 0.01}, {Role: "loadgen", CPUCores: 0.02}}).Rows
	var got []string
	for _, r := range rows[len(rows)-3:] {
		got = append(got, fmt.Sprint(r[0].Text, ": ", r[2].Text, "; ", r[3].Text, "; ", r[4].Text))
	}
	want := "database: 0.66 – 0.98; 0.07 – 0.10; 0.050\ngateways and generator: 0.42; 0.04; 0.030\nall: 1.08 – 1.40; 0.11 – 0.14; 0.080"
	if strings.Join(got, "\n") != want {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), want)
	}
}

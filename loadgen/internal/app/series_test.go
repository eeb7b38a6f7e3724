package app

import (
	"bytes"
	"context"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"imbench/loadgen/internal/limits"
	"imbench/loadgen/internal/scenario"
	"imbench/loadgen/internal/search"
	"imbench/reports/rundir"
)

// What cannot be a series is one sentence that names the flag, before anything is started.
func TestSeriesFlagsAreRefused(t *testing.T) {
	noCriteria := filepath.Join(t.TempDir(), "plain.yaml")
	if err := os.WriteFile(noCriteria, []byte("name: plain\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"-repeat", "-1"}, "-repeat -1"},
		{[]string{"-repeat", "1001"}, "1 to 1000"},
		{[]string{"-repeat", "x"}, "-repeat"},
		{[]string{"-same-seed"}, "-same-seed goes with"},
		{[]string{"-repeat", "2", "-cpuprofile", "x"}, "single run"},
		{[]string{"-search", "-repeat", "2"}, "-search makes its own runs"},
		{[]string{"-search", "-search-resolution", "0"}, "-search-resolution 0"},
		{[]string{"-search", "-search-resolution", "NaN"}, "-search-resolution NaN"},
		{[]string{"-search", "-search-highest", "0.5"}, "-search-highest 0.5"},
		{[]string{"-search", "-search-measure", "0s"}, "-search-measure 0s"},
		{[]string{"-search", "-search-retries", "11"}, "-search-retries 11"},
		{[]string{"-search", "-scenario", "gateway-crash"}, "has faults"},
		{[]string{"-search", "-scenario", noCriteria}, "no criteria"},
		{[]string{"-ab", "delivery.mode=push,pull", "-repeat", "1"}, "at least 2"},
		{[]string{"-ab", "delivery.mode"}, "two values of one field"},
		{[]string{"-ab", "delivery.mode=push"}, "two values of one field"},
		{[]string{"-ab", "delivery.mode=push,push"}, `both variants are called "push"`},
		{[]string{"-ab", "delivery.mode=push,pill"}, "pill"},
		{[]string{"-ab", "delivery.mude=push,pull"}, "delivery.mude"},
		{[]string{"-ab", "seed=1,2"}, "differ in their seed"},
		{[]string{"-ab", "a: x=1 | b: x=2 | c: x=3"}, "3 sides"},
		{[]string{"-ab", "x=1 | b: x=2"}, "begin with a name"},
		{[]string{"-ab", "old=http://h:1,new=http://h:2"}, "needs -admin old=URL,new=URL"},
		{[]string{"-ab", "old=http://h:1"}, "1 sides"},
		{[]string{"-ab", "http://h:1,http://h:2"}, "want NAME=URL"},
		{[]string{"-ab", "old=http://h:1,new=http://h:2", "-target", "http://h:3"}, "leave -target out"},
		{[]string{"-ab", "old=http://h:1,new=h:2", "-admin", "old=http://h:3,new=http://h:4"}, `"h:2"`},
		{[]string{"-ab", "server.ack_window=5ms,50ms", "-target", "http://h:1", "-admin", "http://h:2"}, "which a target brings itself"},
	} {
		var out, say bytes.Buffer
		dir := filepath.Join(t.TempDir(), "runs")
		code := Run(context.Background(), Program{Args: append([]string{"-scenario", "smoke", "-out", dir}, c.args...), Env: []string{"IM_ADMIN_TOKEN=x"},
			Stdout: &out, Stderr: &say})
		if code != ExitUsage || !strings.Contains(say.String(), c.says) || out.Len() > 0 {
			t.Errorf("%q: exit %d, says %q, want %q", c.args, code, say.String(), c.says)
		}
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%q: something was run", c.args)
		}
	}
}

func TestVariants(t *testing.T) {
	env := []string{"IM_ADMIN_TOKEN=x"}
	parse := func(args ...string) []variant {
		t.Helper()
		o, err := parseFlags(Program{Args: append([]string{"-scenario", "smoke"}, args...), Env: env})
		if err != nil {
			t.Fatal(err)
		}
		return o.series.variants
	}
	v := parse("-ab", "devices.ack_every=1,8")
	if v[0].name != "1" || v[1].name != "8" || v[1].set[0] != "devices.ack_every=8" {
		t.Errorf("%+v", v)
	}
	v = parse("-ab", "all: delivery.mode=pull | half: delivery.mode=pull devices.reading_share=0.5", "-target", "http://h:1", "-admin", "http://h:2")
	if v[0].name != "all" || !slices.Equal(v[1].set, []string{"delivery.mode=pull", "devices.reading_share=0.5"}) || v[1].target != nil {
		t.Errorf("%+v", v)
	}
	v = parse("-ab", "old=http://h:1+http://h:2,new=https://k:3", "-admin", "old=http://h:4,new=http://k:5")
	if !slices.Equal(v[0].target.targets, []string{"http://h:1", "http://h:2"}) || v[1].target.admin != "http://k:5" || v[1].target.adminToken != "x" {
		t.Errorf("%+v", v)
	}
}

func testCampaign(t *testing.T, name string, set ...string) *campaign {
	t.Helper()
	sc, err := scenario.Load(name, set...)
	if err != nil {
		t.Fatal(err)
	}
	c := &campaign{base: sc, codes: map[rundir.Verdict]int{}, options: options{scenario: name, set: set}}
	c.options.series.probes.highest = 64
	return c
}

// A scaled load keeps what an active conversation does, and everything else.
func TestScaled(t *testing.T) {
	c := testCampaign(t, "baseline")
	for _, m := range []float64{1, 0.02, 1.5, 3.7} {
		sc, err := c.vary(c.options, c.scaled(m)...)
		if err != nil {
			t.Fatal(err)
		}
		got, want := float64(sc.Load.GroupRate)/float64(sc.Load.ActiveGroups), 2.0
		if got < want*0.98 || got > want*1.02 || !reflect.DeepEqual(sc.Population, c.base.Population) || sc.Load.Burst != c.base.Load.Burst {
			t.Errorf("× %v: %v messages/s in an active conversation, want %v", m, got, want)
		}
		if rate := float64(sc.Load.GroupRate + sc.Load.DirectRate); rate < 1250*m*0.999 || rate > 1250*m*1.001 {
			t.Errorf("× %v: %v messages/s", m, rate)
		}
	}
	highest, err := c.plannable(64) // 1 500 groups, of which 250 are active at a time
	if err != nil || highest < 5.9 || highest > 6 {
		t.Errorf("plannable up to %v, %v; want just below 6", highest, err)
	}
	if highest, err = c.plannable(2); err != nil || highest != 2 {
		t.Errorf("plannable up to %v, %v; 2 was asked for", highest, err)
	}
}

// Two variants are the same if nothing but their names differs, however they came about.
func TestAA(t *testing.T) {
	c := testCampaign(t, "smoke")
	for _, x := range []struct {
		a, b variant
		aa   bool
	}{
		{variant{name: "a"}, variant{name: "b", set: []string{"delivery.mode=push"}}, true}, // it is the default
		{variant{name: "a", set: []string{"devices.ack_every=4"}}, variant{name: "b", set: []string{"devices.ack_every=5"}}, false},
		{variant{name: "a", target: &options{targets: []string{"http://h:1"}}}, variant{name: "b", target: &options{targets: []string{"http://h:1"}}}, true},
		{variant{name: "a", target: &options{targets: []string{"http://h:1"}}}, variant{name: "b", target: &options{targets: []string{"http://h:2"}}}, false},
	} {
		if aa, err := c.checkVariants([]variant{x.a, x.b}); err != nil || aa != x.aa {
			t.Errorf("%+v and %+v: %v, %v", x.a, x.b, aa, err)
		}
	}
}

// A criterion that no rate meets is named, with its values at the first and the lowest rate, and the generator is blamed
// only for what its lateness explains.
func TestWhatNoRateMeets(t *testing.T) {
	row := func(metric, op string, limit, value float64) rundir.Criterion {
		r := rundir.Criterion{Metric: metric, Op: op, Limit: limit, Unit: "ms", Value: &value, Result: rundir.NotMet}
		switch {
		case value < 0:
			r.Value, r.Result = nil, rundir.NoData
		case op == "<=" && value <= limit || op == ">=" && value >= limit:
			r.Result = rundir.Met
		}
		return r
	}
	ran := func(late float64, rows ...rundir.Criterion) *rundir.Summary {
		return &rundir.Summary{Criteria: rows, Generator: rundir.Generator{LateP99MS: late}}
	}
	for _, x := range []struct {
		name          string
		first, lowest *rundir.Summary
		verdict       rundir.Verdict
		outcome       string
		want          search.Outcome
		says          string
	}{
		{"a latency", ran(0.1, row("deliver.p50", "<=", 0.01, 3.21), row("sync.p99", "<=", 5, 9)), ran(0.1, row("deliver.p50", "<=", 0.01, 3.1), row("sync.p99", "<=", 5, 2)),
			rundir.Missed, rundir.ProbeFailed, search.Failed,
			"deliver.p50 <= 0.01 ms was missed at every rate that was tried, down to the lowest that says something (3.21 ms at 1.000 times the scenario's rate, 3.1 ms at 0.016 times the scenario's rate): no load is low enough"},
		{"another one", ran(0.1, row("deliver.p50", "<=", 5, 9)), ran(0.1, row("deliver.p50", "<=", 5, 2), row("sync.p99", "<=", 5, 9)), rundir.Missed, rundir.ProbeFailed, search.Unclear, ""},
		{"no data", ran(0.1, row("heal.max", "<=", 5, -1)), ran(0.1, row("heal.max", "<=", 5, -1)), rundir.Missed, rundir.ProbeFailed, search.Failed, "heal.max <= 5 ms has no data at any rate"},
		{"no data at the lowest", ran(0.1, row("sync.p99", "<=", 5, 9)), ran(0.1, row("sync.p99", "<=", 5, -1)), rundir.Missed, rundir.ProbeFailed, search.Unclear, ""},
		{"no data above the lowest", ran(0.1, row("sync.p99", "<=", 5, -1)), ran(0.1, row("sync.p99", "<=", 5, 9)), rundir.Missed, rundir.ProbeFailed, search.Unclear, ""},
		{"no data at the lowest, and a late generator", ran(2, row("sync.p99", "<=", 5, 9)), ran(2, row("sync.p99", "<=", 5, -1)), rundir.Invalid, rundir.ProbeGenerator, search.Generator, ""},
		{"no data beside what is always missed", ran(0.1, row("sync.p99", "<=", 5, 9), row("deliver.p50", "<=", 0.01, 3)), ran(0.1, row("sync.p99", "<=", 5, -1), row("deliver.p50", "<=", 0.01, 2)),
			rundir.Missed, rundir.ProbeFailed, search.Failed, "deliver.p50 <= 0.01 ms was missed at every rate"},
		{"no data, and a late generator", ran(2, row("heal.max", "<=", 5, -1)), ran(2, row("heal.max", "<=", 5, -1)), rundir.Invalid, rundir.ProbeGenerator, search.Failed, "heal.max <= 5 ms has no data at any rate"},
		{"more than the lateness", ran(2, row("send.intended.p99", "<=", 1, 9)), ran(2, row("send.intended.p99", "<=", 1, 8)), rundir.Invalid, rundir.ProbeGenerator, search.Failed, "no load is low enough"},
		{"the lateness", ran(2, row("send.intended.p99", "<=", 1, 9)), ran(2, row("send.intended.p99", "<=", 1, 2.5)), rundir.Invalid, rundir.ProbeGenerator, search.Generator,
			"the generator itself starts sends 2 ms late there (p99), so this machine cannot tell"},
		{"the generator alone", ran(2, row("send.intended.p99", "<=", 1, 0.5)), ran(2, row("send.intended.p99", "<=", 1, 0.5)), rundir.Invalid, rundir.ProbeGenerator, search.Generator, ""},
		{"nothing was measured", ran(2, row("deliver.p50", "<=", 1, 5)), nil, rundir.Error, rundir.ProbeFailed, search.Failed, ""},
		{"it holds", ran(2, row("deliver.p50", "<=", 1, 5)), ran(2, row("deliver.p50", "<=", 1, 0.5)), rundir.Passed, rundir.ProbeHeld, search.Held, ""},
	} {
		s := testCampaign(t, "smoke")
		probe := rundir.Probe{Multiple: 1. / 64, Outcome: x.outcome, SeriesRun: rundir.SeriesRun{Verdict: x.verdict}}
		got := s.reported(search.Trial{Multiple: 1. / 64, Lowest: true}, &probe, []attempt{{1, x.first}, {1. / 64, x.lowest}})
		if strings.Contains(s.hopeless, "sync.p99 <=") {
			t.Errorf("%s: says %q of what was not missed at all rates", x.name, s.hopeless)
		}
		if got != x.want || !strings.Contains(s.hopeless, x.says) || (x.says == "") != (s.hopeless == "") || (got == search.Failed) != (probe.Outcome == rundir.ProbeFailed) && got != search.Unclear {
			t.Errorf("%s: outcome %v (%s), says %q", x.name, got, probe.Outcome, s.hopeless)
		}
		if x.says == "" {
			continue
		}
		a := search.Answer{Failed: 1. / 64, By: got, Done: true}
		text := s.answer(a, []rundir.Probe{probe}, 64).Text
		s.concludeSearch(a, []rundir.Probe{probe})
		verdict := map[search.Outcome]rundir.Verdict{search.Failed: rundir.Missed, search.Generator: rundir.Invalid}[got]
		if !strings.HasPrefix(text, "No rate that was tried was held: ") || !strings.Contains(text, x.says) || s.head.Verdict != verdict ||
			len(s.head.Reasons) != 1 || !strings.Contains(s.head.Reasons[0], x.says) {
			t.Errorf("%s: %s; %q; %s", x.name, s.head.Verdict, s.head.Reasons, text)
		}
	}
	// Above the lowest rate nothing is decided.
	s := testCampaign(t, "smoke")
	probe := rundir.Probe{Outcome: rundir.ProbeFailed, SeriesRun: rundir.SeriesRun{Verdict: rundir.Missed}}
	if got := s.reported(search.Trial{Multiple: 1}, &probe, []attempt{{1, ran(0, row("deliver.p50", "<=", 1, 5))}}); got != search.Failed || s.hopeless != "" {
		t.Errorf("%v, %q", got, s.hopeless)
	}
}

// The lowest rate of a search has messages enough in a short probe.
func TestLowest(t *testing.T) {
	for _, x := range []struct {
		set  []string
		want float64
	}{
		{nil, 0.016}, {[]string{"load.group_rate=200/s"}, 1. / 64}, {[]string{"load.group_rate=1/s", "load.direct_rate=1/s"}, 1}, {[]string{"load.group_rate=10/s", "load.direct_rate=0"}, 0.2},
	} {
		c := testCampaign(t, "smoke", append(x.set, "phases.measure=60s")...)
		c.options.series.probes.measure = 10 * time.Second
		if got := c.lowest(); math.Abs(got-x.want) > 1e-9 {
			t.Errorf("%v: %v, want %v", x.set, got, x.want)
		}
	}
}

// Of one seed, or of the first and what follows.
func TestSeeds(t *testing.T) {
	c := testCampaign(t, "smoke", "seed=7")
	if c.seed(0) != 7 || c.seed(2) != 9 {
		t.Error("seeds do not follow the first")
	}
	c.options.series.sameSeed = true
	if c.seed(2) != 7 {
		t.Error("-same-seed has another seed")
	}
}

func TestOutcome(t *testing.T) {
	c := testCampaign(t, "smoke")
	for _, x := range []struct {
		verdict rundir.Verdict
		code    int
		loaded  bool
		want    string
	}{
		{rundir.Passed, 0, true, rundir.ProbeHeld}, {rundir.Missed, 99, true, rundir.ProbeFailed}, {rundir.Broken, 4, true, rundir.ProbeFailed},
		{rundir.Invalid, 5, true, rundir.ProbeGenerator}, {rundir.Interrupted, 130, true, rundir.ProbeNone},
		{rundir.Error, ExitTarget, true, rundir.ProbeFailed}, {rundir.Error, ExitTarget, false, rundir.ProbeNone}, {rundir.Error, ExitError, true, rundir.ProbeNone},
	} {
		got := c.outcome(ran{SeriesRun: rundir.SeriesRun{Verdict: x.verdict}, code: x.code, loaded: x.loaded})
		if got != x.want {
			t.Errorf("%+v: %s", x, got)
		}
	}
	c.options.targets = []string{"http://h:1"}
	if got := c.outcome(ran{SeriesRun: rundir.SeriesRun{Verdict: rundir.Error}, code: ExitTarget, loaded: true}); got != rundir.ProbeNone {
		t.Errorf("a target that was lost is loaded again: %s", got)
	}
}

// The answer in words, and the verdict.
func TestAnswer(t *testing.T) {
	full := []rundir.Limit{{Resource: "database CPU", Value: 1.9, Bound: 2, Unit: "cores", Used: 0.95}, {Resource: limits.GeneratorLate, Value: 12, Bound: 10, Unit: "ms", Used: 1.2}}
	busy := append([]rundir.Limit{{Resource: limits.OtherCPU, Value: 1.6, Bound: 2, Unit: "cores", Used: 0.8}}, full...)
	idle := []rundir.Limit{{Resource: "database CPU", Value: 0.5, Bound: 2, Unit: "cores", Used: 0.25}}
	probe := func(m float64, outcome string, v rundir.Verdict, l []rundir.Limit) rundir.Probe {
		return rundir.Probe{Multiple: m, Outcome: outcome, Limits: l, SeriesRun: rundir.SeriesRun{Verdict: v, Reasons: []string{"because"}}}
	}
	for _, c := range []struct {
		name    string
		a       search.Answer
		probes  []rundir.Probe
		says    []string
		verdict rundir.Verdict
	}{
		{"nothing yet", search.Answer{}, nil, []string{"Nothing is known"}, rundir.Interrupted},
		{"confirmed", search.Answer{Held: 1.5, Confirmed: true, Failed: 1.56, By: search.Failed, Done: true}, []rundir.Probe{probe(1.56, rundir.ProbeFailed, rundir.Missed, full[:1])},
			[]string{"Holds 187.5 messages/s", "Limiting: database CPU, 1.9 of 2 cores (95 %)."}, rundir.Passed},
		{"the generator", search.Answer{Held: 1.5, Confirmed: true, Failed: 1.56, By: search.Generator, Done: true},
			[]rundir.Probe{probe(1.56, rundir.ProbeGenerator, rundir.Invalid, full)},
			[]string{"the generator could not drive", "Limiting: generator lateness, 12 of 10 ms (120 %); full, too: database CPU, 1.9 of 2 cores (95 %)."}, rundir.Passed},
		{"others", search.Answer{Held: 1.5, Confirmed: true, Failed: 1.56, By: search.Failed, Done: true}, []rundir.Probe{probe(1.56, rundir.ProbeFailed, rundir.Missed, busy)},
			[]string{"Limiting: database CPU", "no part of the run took 1.60 of 2 cores"}, rundir.Passed},
		{"nothing was full", search.Answer{Held: 1, Confirmed: true, Failed: 1.05, By: search.Failed, Done: true}, []rundir.Probe{probe(1.05, rundir.ProbeFailed, rundir.Missed, idle)},
			[]string{"Holds 125 messages/s (1.000 × the scenario's 125/s), confirmed", "Does not hold 131.2 messages/s (1.050 ×", "None of the resources", "database CPU, 0.5 of 2 cores (25 %)"}, rundir.Passed},
		{"none held", search.Answer{Failed: 0.02, By: search.Failed, Done: true}, []rundir.Probe{probe(0.02, rundir.ProbeFailed, rundir.Missed, nil)},
			[]string{"No rate that was tried was held", "not known"}, rundir.Missed},
		{"the generator drives none", search.Answer{Failed: 0.02, By: search.Generator, Done: true}, nil, nil, rundir.Invalid},
		{"interrupted", search.Answer{Held: 1}, []rundir.Probe{probe(1.5, rundir.ProbeNone, rundir.Interrupted, nil)}, []string{"Held 125 messages/s", "not confirmed"}, rundir.Interrupted},
		{"at the highest", search.Answer{Held: 64, Confirmed: true, Done: true}, nil, []string{"-search-highest asked for no more"}, rundir.Passed},
		{"a promise", search.Answer{Held: 1, Confirmed: true, Failed: 1.05, By: search.Failed, Done: true}, []rundir.Probe{probe(1.05, rundir.ProbeFailed, rundir.Broken, nil)}, nil, rundir.Broken},
		{"an error", search.Answer{Held: 1}, []rundir.Probe{probe(1.5, rundir.ProbeNone, rundir.Error, nil)}, nil, rundir.Error},
	} {
		s := testCampaign(t, "smoke")
		text := s.answer(c.a, c.probes, 64).Text
		for _, want := range c.says {
			if !strings.Contains(text, want) {
				t.Errorf("%s: %q does not say %q", c.name, text, want)
			}
		}
		s.concludeSearch(c.a, c.probes)
		if s.head.Verdict != c.verdict || s.head.Complete != c.a.Done || (s.head.Verdict != rundir.Passed) != (len(s.head.Reasons) > 0) {
			t.Errorf("%s: verdict %s, reasons %q", c.name, s.head.Verdict, s.head.Reasons)
		}
	}
	s := testCampaign(t, "smoke")
	if text := s.answer(search.Answer{Held: 6, Confirmed: true, Done: true}, nil, 5.99).Text; !strings.Contains(text, "population") {
		t.Errorf("%q does not say that the population is the limit", text)
	}
}

func TestConclude(t *testing.T) {
	run := func(v rundir.Verdict, counted bool) rundir.SeriesRun {
		return rundir.SeriesRun{Verdict: v, Counted: counted, Reasons: []string{string(v)}}
	}
	for _, c := range []struct {
		runs     []rundir.SeriesRun
		verdict  rundir.Verdict
		complete bool
		says     string
	}{
		{[]rundir.SeriesRun{run(rundir.Passed, true), run(rundir.Passed, true)}, rundir.Passed, true, ""},
		{[]rundir.SeriesRun{run(rundir.Missed, true), run(rundir.Invalid, false)}, rundir.Invalid, true, "1 of 2 runs do not count"},
		{[]rundir.SeriesRun{run(rundir.Interrupted, false)}, rundir.Interrupted, false, "1 of 2 runs"},
	} {
		s := testCampaign(t, "smoke")
		s.conclude(2, c.runs)
		if said := strings.Join(s.head.Reasons, "; "); s.head.Verdict != c.verdict || s.head.Complete != c.complete || !strings.Contains(said, c.says) || (c.says == "") != (said == "") {
			t.Errorf("%+v: %+v", c, s.head)
		}
	}
}

// -explain tells which runs there would be, and makes none.
func TestExplainSeries(t *testing.T) {
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"-repeat", "3", "-seed", "7"}, "series      3 runs, seeds 7 to 9; loaded for 1m0s in all"},
		{[]string{"-ab", "devices.ack_every=1,8", "-same-seed"}, "variant B   8: devices.ack_every=8\nseries      4 pairs, ABBA, seed 1 in all; loaded for 2m40s in all"},
		{[]string{"-search", "-search-highest", "2"}, "search      from 125 messages/s, up to 250 (2.000 times) if need be; short probes load for 20s and more, a confirmation for 20s"},
		{[]string{"-ab", "old=http://h:1,new=http://h:2", "-admin", "old=http://h:3,new=http://h:4"}, "variant A   old: http://h:1\n"},
		{[]string{"-ab", "one: | two: delivery.mode=push"}, "series      4 pairs, A/A (both variants are the same), seeds 1 to 4"},
	} {
		var out, say bytes.Buffer
		code := Run(context.Background(), Program{Args: append([]string{"-scenario", "smoke", "-explain"}, c.args...), Stdout: &out, Stderr: &say})
		if code != ExitPassed || !strings.Contains(out.String(), c.says) {
			t.Errorf("%q: exit %d, %s\n%s", c.args, code, say.String(), out.String())
		}
	}
}

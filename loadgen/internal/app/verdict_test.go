package app

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"imbench/loadgen/internal/population"
	"imbench/loadgen/internal/scenario"
	"imbench/reports/rundir"
)

func criteria(t *testing.T, yaml string) []scenario.Criterion {
	t.Helper()
	sc, err := scenario.Parse("test.yaml", []byte("name: test\ncriteria:\n"+yaml))
	if err != nil {
		t.Fatal(err)
	}
	return sc.Criteria
}

func TestJudge(t *testing.T) {
	const p99 = "  - {metric: send.intended.p99, max: 100ms}\n"
	const rate = "  - {metric: achieved_rate, min: 99%}\n"
	good := func() *rundir.Summary {
		return &rundir.Summary{Offered: 100, AchievedShare: 1, Metrics: map[string]rundir.Metric{"send.intended": {Count: 100, P99: 20}}}
	}
	for _, c := range []struct {
		name     string
		criteria string
		change   func(*rundir.Summary)
		o        outcome
		want     rundir.Verdict
		reason   string
	}{
		{"all met", p99 + rate, nil, outcome{sendLimitMS: 100}, rundir.Passed, ""},
		{"too slow", p99, func(s *rundir.Summary) { s.Metrics["send.intended"] = rundir.Metric{Count: 1, P99: 101} }, outcome{}, rundir.Missed, "1 of 1 criteria missed: send.intended.p99"},
		{"exactly at the limit", p99, func(s *rundir.Summary) { s.Metrics["send.intended"] = rundir.Metric{Count: 1, P99: 100} }, outcome{}, rundir.Passed, ""},
		{"no samples never pass", p99, func(s *rundir.Summary) { s.Metrics["send.intended"] = rundir.Metric{} }, outcome{}, rundir.Missed, "no data: nothing was measured of send.intended.p99; 1 of 1 criteria"},
		{"nothing offered is no data", rate, func(s *rundir.Summary) { s.Offered = 0 }, outcome{}, rundir.Missed, "no data: nothing was measured of achieved_rate"},
		{"late generator", p99, func(s *rundir.Summary) { s.Generator.LateP99MS = 10.1 }, outcome{sendLimitMS: 100}, rundir.Invalid, "started its sends late"},
		{"late without a send criterion", rate, func(s *rundir.Summary) { s.Generator.LateP99MS = 10.1 }, outcome{}, rundir.Passed, ""},
		{"a dropped sample", p99, func(s *rundir.Summary) { s.Generator.Dropped = 1 }, outcome{}, rundir.Invalid, "dropped 1 samples"},
		{"held up by a quota", rate, func(s *rundir.Summary) { s.Generator.ThrottledShare = 0.06 }, outcome{}, rundir.Invalid, "6 % of the window"},
		{"no processor left", rate, func(s *rundir.Summary) { s.Generator.CPUCores, s.Generator.CPULimit = 1.95, 2 }, outcome{}, rundir.Invalid, "1.95 of the 2 cores"},
		{"a limit that is not known", rate, func(s *rundir.Summary) { s.Generator.CPUCores = 9 }, outcome{}, rundir.Passed, ""},
		{"unread frames", p99, func(s *rundir.Summary) { s.Generator.UnreadMeanMS = new(10.1) }, outcome{sendLimitMS: 100}, rundir.Invalid, "10.1 ms unread"},
		{"few unread frames", p99, func(s *rundir.Summary) { s.Generator.UnreadMeanMS = new(9.9) }, outcome{sendLimitMS: 100}, rundir.Passed, ""},
		{"lost wins over late", p99, func(s *rundir.Summary) { s.Generator.Dropped, s.Ledger.Lost = 1, 2 }, outcome{}, rundir.Broken, "2 lost"},
		{"broken wins over interrupted", p99, func(s *rundir.Summary) { s.Ledger.Leaked = 1 }, outcome{interrupted: true}, rundir.Broken, "1 leaked"},
		{"interrupted wins over missed", p99, func(s *rundir.Summary) { s.Metrics = nil }, outcome{interrupted: true}, rundir.Interrupted, "interrupted"},
		{"an error wins over all", p99, func(s *rundir.Summary) { s.Ledger.Lost = 1 }, outcome{err: errors.New("lost it")}, rundir.Error, "lost it; a delivery promise was broken: 1 lost"},
		{"an error is the reason for what is missing", p99, func(s *rundir.Summary) {
			s.Metrics, s.Generator.Dropped = nil, 1
			s.Faults = []rundir.Fault{{Fault: "kill-gateway 1", Error: "no such process"}}
		}, outcome{err: errors.New("lost it"), interrupted: true}, rundir.Error, "^lost it$"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := good()
			if c.change != nil {
				c.change(s)
			}
			judge(s, criteria(t, c.criteria), c.o)
			if s.Verdict != c.want {
				t.Errorf("verdict %q, want %q (reasons %q)", s.Verdict, c.want, s.Reasons)
			}
			if !regexp.MustCompile(c.reason).MatchString(strings.Join(s.Reasons, "; ")) {
				t.Errorf("reasons %q do not say %q", s.Reasons, c.reason)
			}
			if c.want == rundir.Passed && len(s.Reasons) > 0 {
				t.Errorf("passed, with reasons %q", s.Reasons)
			}
		})
	}
}

func TestExitCodes(t *testing.T) {
	for v, want := range map[rundir.Verdict]int{rundir.Passed: 0, rundir.Error: 1, rundir.Broken: 4, rundir.Invalid: 5, rundir.Aborted: 6,
		rundir.Missed: 99, rundir.Interrupted: 130} {
		if got := exitCode(v); got != want {
			t.Errorf("%s exits %d, want %d", v, got, want)
		}
	}
}

func TestWrongFlags(t *testing.T) {
	for _, c := range []struct {
		args string
		want string
	}{
		{"", "-scenario is missing"},
		{"-scenari baseline", "flag provided but not defined: -scenari"},
		{"baseline", `unexpected argument "baseline"`},
		{"-scenario basline", `did you mean "baseline"?`},
		{"-scenario baseline -seed x", "want a whole number"},
		{"-scenario baseline -set load.group_rat=1", `did you mean "load.group_rate"?`},
		{"-scenario baseline -set population.group_size=10000", "group_size"},
		{"-scenario baseline -target 127.0.0.1:80", "want http://host:port"},
		{"-scenario baseline -target http://127.0.0.1:80/v1/ws -admin http://127.0.0.1:81", `leave the path "/v1/ws" out`},
		{"-scenario baseline -target http://127.0.0.1:80", "needs -admin URL"},
		{"-scenario baseline -admin http://127.0.0.1:80", "-admin goes with -target"},
		{"-scenario baseline -target http://127.0.0.1:80 -admin http://127.0.0.1:81", "no admin token"},
		{"-scenario baseline -ca /none/x", "go with -target"},
		{"-scenario baseline -target http://127.0.0.1:80 -admin http://127.0.0.1:81 -ca /none/x", "-ca: open /none/x"},
		{"-scenario smoke -prometheus http://127.0.0.1:9090", "-prometheus and -prometheus-queries go together"},
		{"-scenario smoke -prometheus 127.0.0.1 -prometheus-queries x", "want http://host:port"},
		{"-scenario smoke -prometheus http://127.0.0.1:9090 -prometheus-queries /none/x", "-prometheus-queries: open /none/x"},
		{"-scenario smoke -prometheus http://127.0.0.1:9090 -prometheus-queries x -quiet 1ms", "-quiet 1ms: want 1s to 1h"},
		{"-check", "-check needs -target URL"},
		{"-check -target http://127.0.0.1:80", "needs -admin URL"},
		{"-cleanup list", "through a gateway's admin listener\n"}, // -population would be of no help
		{"-cleanup list -admin http://127.0.0.1:81 -scenario smoke", "-cleanup runs nothing"},
		{"-cleanup list -admin http://127.0.0.1:81 -owner=", "-owner must be"},
		{"-scenario baseline -out /proc/none", "-out /proc/none"},
		{"-scenario smoke -out /tmp -cpuprofile /none/x", "-cpuprofile: open /none/x"},
	} {
		t.Run(c.args, func(t *testing.T) {
			var out, errs strings.Builder
			code := Run(t.Context(), Program{Args: strings.Fields(c.args), Stdout: &out, Stderr: &errs})
			if code != ExitUsage {
				t.Errorf("exit %d, want %d", code, ExitUsage)
			}
			if !strings.Contains(errs.String(), c.want) {
				t.Errorf("said %q, want %q in it", errs.String(), c.want)
			}
			if strings.Count(errs.String(), "\n") > 6 || out.Len() > 0 {
				t.Errorf("stderr %q, stdout %q: want one clear error", errs.String(), out.String())
			}
		})
	}
}

func TestUnreachableTarget(t *testing.T) {
	var out, errs strings.Builder
	args := strings.Fields("-scenario smoke -target http://127.0.0.1:1 -admin http://127.0.0.1:1 -out " + t.TempDir())
	code := Run(t.Context(), Program{Args: args, Env: []string{"IM_ADMIN_TOKEN=x"}, Stdout: &out, Stderr: &errs})
	if code != ExitTarget || !strings.Contains(errs.String(), "http://127.0.0.1:1/admin/v1/info does not answer") {
		t.Errorf("exit %d and %q, want %d naming the URL", code, errs.String(), ExitTarget)
	}
}

// smokePlan is what smoke runs with.
func smokePlan(t *testing.T) (*scenario.Scenario, *population.Population, *population.Plan) {
	t.Helper()
	sc, err := scenario.Load("smoke")
	if err != nil {
		t.Fatal(err)
	}
	pop, err := population.Build(sc, sc.Seed, "r00000000")
	if err != nil {
		t.Fatal(err)
	}
	plan, err := population.NewPlan(pop, sc, sc.Seed)
	if err != nil {
		t.Fatal(err)
	}
	return sc, pop, plan
}

// The plan is counted again with the run's latencies: a slow acknowledgement is hinted in vain more often, pushes are
// what they were.
func TestRecountUsesTheRunsLatencies(t *testing.T) {
	sc, pop, plan := smokePlan(t)
	before, _, err := predict(sc, pop, plan)
	if err != nil {
		t.Fatal(err)
	}
	hints := func(list []rundir.Prediction, name string) float64 {
		for _, p := range list {
			if p.Name == name && p.Planned != nil {
				return *p.Planned
			}
		}
		t.Fatalf("nothing is planned for %s", name)
		return 0
	}
	slow := recount(sc, plan, before.Predictions, map[string]rundir.Metric{rundir.Ack: {Count: 1, Mean: 900}})
	same := recount(sc, plan, before.Predictions, nil)
	if a, b, c := hints(before.Predictions, "frames.hint"), hints(same, "frames.hint"), hints(slow, "frames.hint"); a != b || c <= a {
		t.Errorf("hints before %g, with no latencies %g, with slow acknowledgements %g", a, b, c)
	}
	if a, b := hints(before.Predictions, "frames.event"), hints(slow, "frames.event"); a != b {
		t.Errorf("pushes before %g, with slow acknowledgements %g", a, b)
	}
}

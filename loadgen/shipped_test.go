package main

import (
	"context"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"imbench/loadgen/internal/app"
	"imbench/loadgen/internal/scenario"
	"imbench/model/capacity"
	"imbench/reports/rundir"
	"imbench/server/local"
)

// smallCrowd makes the people of a shipped scenario fit into a test; shortly makes it last some two seconds.
var (
	smallCrowd = []string{"population.users=60", "population.two_device_users=30", "population.connected_devices=45",
		"population.directs_per_user=3", "load.direct_rate=40/s", "load.active_directs=10"}
	shortly = []string{"phases.warmup=500ms", "phases.measure=1500ms", "phases.tail=300ms", "phases.settle=60s",
		"devices.ack_delay=300ms", "server.grace=1s", "server.sweep=200ms"}
	smallGroups = []string{"population.groups_per_user=2", "population.group_size=10", "load.group_rate=40/s", "load.active_groups=4"}
)

// dryRuns are the shipped scenarios without faults, and what makes them small. Those with faults are in faults_test.go.
var dryRuns = map[string][][]string{
	"baseline":         {smallCrowd, shortly, smallGroups},
	"smoke":            {smallCrowd, shortly, smallGroups, {"load.fetch_rate=40/s", "load.convs_rate=20/s"}},
	"push-vs-hint":     {smallCrowd, shortly, smallGroups, {"delivery.mode=pull", "devices.reading_share=0.4"}},
	"ack-batching":     {smallCrowd, shortly, smallGroups, {"devices.ack_every=2"}},
	"group-size":       {smallCrowd, shortly, {"population.groups[0].size=20", "population.groups[0].count=6", "population.groups[0].hint_above=10", "load.active_groups=4"}},
	"hot-conversation": {smallCrowd, shortly, {"population.group_size=20", "load.group_rate=100/s"}},
	"big-group-burst": {shortly, {"population.users=60", "population.two_device_users=30", "population.connected_devices=45", "population.group_size=60",
		"load.stages[0].for=500ms", "load.stages[1].for=1s"}},
	"soak": {smallCrowd, shortly, {"population.groups_per_user=2", "population.group_size=10", "population.groups[0].size=20", "population.groups[0].count=3",
		"population.groups[1].size=40", "population.groups[1].count=2", "delivery.hint_above=30", "load.group_rate=80/s", "load.active_groups=4",
		"load.stages[0].for=1s", "load.stages[1].for=1s", "devices.churn=5/s"}},
	"read-storm": {smallCrowd, shortly, smallGroups, {"devices.read_debounce=300ms", "load.stages[0].for=1s", "load.stages[1].for=1s"}},
	"seed-08":    {shortly[4:], {"delivery.mode=pull", "devices.reading_share=0.2"}},
}

// Every shipped scenario runs through on real gateways, and does what its plan says. Criteria are for machines with
// nothing else to do.
func TestShippedDryRuns(t *testing.T) {
	t.Parallel()
	for _, name := range scenario.Names() {
		sc, err := scenario.Load(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, here := dryRuns[name]; here == (len(sc.Faults) > 0) {
			t.Errorf("%s is to be dry-run here, or if it has faults in faults_test.go", name)
		}
	}
	stack, err := local.Start(t.Context(), local.Config{Gateways: 1}) // for its database: each run starts gateways of its own
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stack.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	lanes := make(chan struct{}, 2) // more gateways than these take all of the database's connections
	for name, sets := range dryRuns {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lanes <- struct{}{}
			defer func() { <-lanes }()
			args := []string{"-db", stack.DatabaseURL, "-set", "server.gateways=1"}
			for _, set := range slices.Concat(sets...) {
				args = append(args, "-set", set)
			}
			s := dryRun(t, shipped(t, name), args...)
			if name == "read-storm" && (s.Metrics[rundir.Read].Count == 0) {
				t.Errorf("nobody told what he had read: %+v", s.Metrics[rundir.Read])
			}
			if name == "soak" && s.Reconnects == 0 {
				t.Error("nobody came and went")
			}
			if fetch, convs := s.Metrics[rundir.Fetch], s.Metrics[rundir.Convs]; name == "smoke" && (fetch.Count == 0 || fetch.P50 <= 0 || convs.Count == 0 || fetch.Censored+convs.Censored != 0) {
				t.Errorf("fetch %+v, convs %+v", fetch, convs)
			}
		})
	}
}

// dryRun runs a scenario and holds it against its plan: everything sent, everything delivered, and as many pushes as the
// plan has, give or take what a gateway turns into hints when a machine is so busy that its queues fill.
func dryRun(t *testing.T, yaml string, args ...string) rundir.Summary {
	t.Helper()
	r := start(t, yaml, args...)
	code := r.wait()
	s, _ := r.summary()
	late := s.Verdict == rundir.Invalid && code == app.ExitInvalid && strings.Contains(s.Reasons[0], "started its sends late") // as on a busy machine
	if !late && (s.Verdict != rundir.Passed && s.Verdict != rundir.Missed || code != app.ExitPassed && code != app.ExitMissed) {
		t.Fatalf("exit %d, verdict %s, reasons %q\n%s", code, s.Verdict, s.Reasons, r.log.String())
	}
	if l := s.Ledger; l.Broken() || l.Expected == 0 || l.Delivered != l.Expected || !l.Exported || !l.Settled {
		t.Errorf("ledger %+v", l)
	}
	if s.Done != s.Offered || s.Offered == 0 {
		t.Errorf("%d of %d sends done", s.Done, s.Offered)
	}
	most := map[string]float64{capacity.Messages: 0, capacity.EventRows: 0.001, capacity.PushFrames: 0.05, capacity.PushBytes: 0.05,
		rundir.FetchRate: 0, rundir.ConvsRate: 0}
	for _, p := range s.Predictions {
		if strings.HasPrefix(p.Note, "not compared") { // churn
			continue
		}
		if p.Measured == nil || p.Planned == nil {
			t.Errorf("%s: measured %v, planned %v: want both", p.Name, p.Measured, p.Planned)
		} else if limit, fixed := most[p.Name]; fixed && math.Abs(*p.Measured-*p.Planned) > limit**p.Planned+1e-9 {
			t.Errorf("%s: measured %v, planned %v", p.Name, *p.Measured, *p.Planned)
		}
	}
	return s
}

// The shortest run with hardly any load ends in order: nothing was sent, so that the criterion has no data and is missed, and
// the summary is whole.
func TestShortestRun(t *testing.T) {
	t.Parallel()
	r := start(t, tiny, "-set", "load.group_rate=1e-6/s", "-set", "load.direct_rate=0", "-set", "phases.warmup=0s", "-set", "phases.measure=200ms", "-set", "phases.tail=0s")
	code := r.wait()
	s, _ := r.summary()
	if code != app.ExitMissed || s.Verdict != rundir.Missed || len(s.Criteria) != 1 || s.Criteria[0].Result != rundir.NoData || s.Criteria[0].Value != nil {
		t.Errorf("exit %d, verdict %s, criteria %+v\n%s", code, s.Verdict, s.Criteria, r.log.String())
	}
	if s.Offered != 0 || s.Ledger.Broken() || !s.Ledger.Settled || strings.Contains(r.json.String(), "NaN") {
		t.Errorf("offered %d, ledger %+v", s.Offered, s.Ledger)
	}
}

// The example of scenarios/README.md runs as it stands, and passes or misses on latency alone.
func TestReadmeExample(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../scenarios/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok1 := strings.Cut(string(text), "<!-- example -->\n```yaml\n")
	yaml, _, ok2 := strings.Cut(rest, "```\n<!-- /example -->")
	if !ok1 || !ok2 {
		t.Fatal("scenarios/README.md has no example between its marks")
	}
	s := dryRun(t, strings.Replace(yaml, "name: lunch\n", "name: tiny\n", 1))
	if len(s.Criteria) != 2 || s.Criteria[0].Result != rundir.Met || s.Metrics[rundir.Read].Count == 0 {
		t.Errorf("criteria %+v, read reports %+v", s.Criteria, s.Metrics[rundir.Read])
	}
}

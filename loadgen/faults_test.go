package main

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"imbench/loadgen/internal/app"
	"imbench/reports/rundir"
	"imbench/scenarios"
	"imbench/server/local"
)

// small makes a shipped scenario fit into a test: a few people for a few seconds, its faults early in the window.
var small = []string{
	"population.users=60", "population.two_device_users=30", "population.connected_devices=45", "population.groups_per_user=2",
	"population.group_size=10", "population.directs_per_user=3",
	"load.group_rate=40/s", "load.direct_rate=60/s", "load.active_groups=4", "load.active_directs=10",
	"devices.ack_delay=500ms", "server.grace=1s", "server.sweep=200ms",
	"phases.warmup=1s", "phases.tail=500ms", "phases.settle=60s",
}

// aboveThePlan is how far a count may exceed the plan. A device that was cut off between its send and the reply gets its own
// event as any other one, and that is a delivery which the plan does not have: a few in runs as small as these.
var aboveThePlan = map[string]float64{"messages": 0.001, "deliveries_per_message": 0.02}

// Each shipped scenario with faults runs through on the real stack: every fault is done, what it took away comes back, and
// nobody misses anything. Criteria are for machines with nothing else to do.
func TestShippedFaults(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		set  []string
		away int64 // at least
	}{
		"gateway-crash":    {[]string{"phases.measure=6s", "faults[0].at=1s", "faults[0].restart_after=2s"}, 15},
		"rolling-drain":    {[]string{"phases.measure=16s", "faults[0].at=1s", "faults[0].restart_after=10ms", "faults[0].gap=10ms", "server.drain=1s"}, 10},
		"reconnect-storm":  {[]string{"phases.measure=4s", "faults[0].at=1s", "server.admission=50/s", "criteria[2].max=10s"}, 20},
		"database-restart": {[]string{"phases.measure=9s", "faults[0].at=1s", "faults[1].at=5s", "faults[1].restart_after=1s"}, 0},
		"slow-receivers":   {[]string{"phases.measure=4s", "faults[0].at=1s", "faults[0].for=1s", "faults[0].share=0.5"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var args []string
			for _, s := range append(append([]string(nil), small...), c.set...) {
				args = append(args, "-set", s)
			}
			r := start(t, shipped(t, name), args...)
			code := r.wait()
			s, _ := r.summary()
			if s.Verdict != rundir.Passed && s.Verdict != rundir.Missed || code != app.ExitPassed && code != app.ExitMissed {
				t.Fatalf("exit %d, verdict %s, reasons %q\n%s", code, s.Verdict, s.Reasons, r.log.String())
			}
			if l := s.Ledger; l.Broken() || l.Expected == 0 || l.Delivered != l.Expected || !l.Exported || !l.Settled {
				t.Errorf("ledger %+v", l)
			}
			if s.Done != s.Offered {
				t.Errorf("%d of %d sends done", s.Done, s.Offered)
			}
			if len(s.Faults) == 0 {
				t.Error("no faults in the summary")
			}
			for _, f := range s.Faults {
				if f.Error != "" || f.TookS == nil || f.HealedS == nil || f.Away < c.away {
					t.Errorf("fault %+v, want it done, healed, and %d away", f, c.away)
				}
			}
			for _, p := range s.Predictions {
				if compared := p.PlanError != nil; compared != (p.Name == "messages" || p.Name == "deliveries_per_message") {
					t.Errorf("%s: plan error %v, note %q", p.Name, p.PlanError, p.Note)
				} else if most := aboveThePlan[p.Name]; compared && (*p.PlanError > most || *p.PlanError < -0.001) {
					t.Errorf("%s: %v, planned %v", p.Name, *p.Measured, *p.Planned)
				}
			}
			for _, want := range []string{"begins", "ends", "healed"} {
				if !hasEvent(t, onlyRun(t, r.out), want) {
					t.Errorf("events.ndjson has no fault line that says %q", want)
				}
			}
		})
	}
}

// shipped is a scenario that comes with loadgen, under the name that start knows.
func shipped(t *testing.T, name string) string {
	t.Helper()
	b, err := scenarios.FS.ReadFile(name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Replace(string(b), "name: "+name+"\n", "name: tiny\n", 1)
}

func hasEvent(t *testing.T, dir, text string) bool {
	t.Helper()
	d, err := rundir.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	events, _, err := d.Events()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if e.Kind == "fault" && strings.HasPrefix(e.Detail, text) {
			return true
		}
	}
	return false
}

// Faults excuse nothing: a database that forgets a confirmed message in the middle of one breaks the run.
func TestFaultsDoNotHideALoss(t *testing.T) {
	t.Parallel()
	stack, err := local.Start(t.Context(), local.Config{Gateways: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := stack.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	// The populations' messages of the last second of the load, which only the settle phase follows.
	forget := strings.Replace(tiny, "phases:", "faults:\n  - {at: 500ms, do: kill-gateway, gateway: 1, restart_after: 500ms}\n  - {at: 600ms, do: cut-devices}\nphases:", 1)
	r := start(t, forget, "-db", stack.DatabaseURL)
	r.until(`"phase":"settle"`)
	conn, err := pgx.Connect(t.Context(), stack.DatabaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	tag, err := conn.Exec(t.Context(), `DELETE FROM events WHERE (conv_id, seq) = (SELECT conv_id, seq FROM events WHERE kind = 'msg' ORDER BY created_at DESC LIMIT 1)`)
	if err != nil || tag.RowsAffected() != 1 {
		t.Fatalf("%v, %v", tag, err)
	}
	code := r.wait()
	s, _ := r.summary()
	if code != app.ExitBroken || s.Verdict != rundir.Broken || !s.Ledger.Broken() {
		t.Errorf("exit %d, verdict %s, ledger %+v\n%s", code, s.Verdict, s.Ledger, r.log.String())
	}
	if len(s.Faults) != 2 {
		t.Errorf("faults %+v", s.Faults)
	}
}

// A gateway that stays away does not keep the log from being compared, and a command is run with what it needs to know.
func TestGatewayThatStaysAway(t *testing.T) {
	t.Parallel()
	out := t.TempDir() + "/said"
	r := start(t, strings.Replace(tiny, "phases:", "faults:\n  - {at: 200ms, do: kill-gateway, gateway: 1}\n  - {at: 300ms, do: command, command: 'echo $IMBENCH_RUN $IMBENCH_TARGETS > "+out+"'}\nphases:", 1))
	code := r.wait()
	s, _ := r.summary()
	if code != app.ExitPassed || !s.Ledger.Exported || s.Ledger.Delivered != s.Ledger.Expected {
		t.Errorf("exit %d, reasons %q, ledger %+v\n%s", code, s.Reasons, s.Ledger, r.log.String())
	}
	b, err := os.ReadFile(out)
	if err != nil || !strings.Contains(string(b), "/tiny-") || strings.Count(string(b), "http://127.0.0.1:") != 2 {
		t.Errorf("the command was told %q, %v", b, err)
	}
}

// Ctrl-C ends a fault that is under way, and leaves nothing running.
func TestCtrlCInAFault(t *testing.T) {
	t.Parallel()
	r := start(t, strings.Replace(strings.Replace(tiny, "measure: 2s", "measure: 10m", 1), "phases:",
		"faults:\n  - {at: 100ms, do: crash-database, restart_after: 5m}\n  - {at: 100ms, do: kill-gateway, gateway: 1, restart_after: 5m}\n  - {at: 200ms, do: command, command: 'echo here >&2; sleep 50'}\nphases:", 1))
	r.until(`"phase":"measure"`)
	children := stackProcesses(t, r.cmd.Process.Pid)
	deadline := time.Now().Add(time.Minute)
	for !hasEvent(t, onlyRun(t, r.out), "the database ended") && time.Now().Before(deadline) {
		r.until(`"phase":"measure"`)
	}
	if err := r.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code := r.wait(); code != app.ExitInterrupted {
		t.Errorf("exit %d\n%s", code, r.log.String())
	}
	gone(t, children)
	if s, _ := r.summary(); s.Verdict != rundir.Interrupted || s.Ledger.Lost != 0 {
		t.Errorf("verdict %s, %q, %d lost", s.Verdict, s.Reasons, s.Ledger.Lost)
	}
}

// A network that delays, drops and throttles loses nothing for good, and its process is watched as the others are.
func TestNetworkFaults(t *testing.T) {
	t.Parallel()
	r := start(t, strings.Replace(tiny, "phases:", `faults:
  - {at: 0s, do: delay-network, latency: 40ms, jitter: 20ms, share: 0.5, for: 1500ms}
  - {at: 200ms, do: throttle-network, throughput: 20000, gateway: 1, for: 500ms}
  - {at: 500ms, do: drop-network, gateway: 2, for: 700ms}
phases:`, 1))
	code := r.wait()
	s, _ := r.summary()
	if code != app.ExitPassed || !s.Ledger.Settled || s.Ledger.Delivered != s.Ledger.Expected || s.Done != s.Offered {
		t.Fatalf("exit %d, reasons %q, ledger %+v\n%s", code, s.Reasons, s.Ledger, r.log.String())
	}
	if len(s.Faults) != 3 {
		t.Fatalf("faults %+v", s.Faults)
	}
	for _, f := range s.Faults {
		if f.Error != "" || f.HealedS == nil || f.Detail == "0 connections" {
			t.Errorf("fault %+v", f)
		}
	}
	// Every message to the second gateway that was due in the first half of the drop waited for its end.
	if m := s.Metrics[rundir.SendIntended]; m.Max < 350 {
		t.Errorf("the longest send took %v ms, though the network dropped all for 700", m.Max)
	}
	if !slices.ContainsFunc(s.Processes, func(p rundir.ProcessUse) bool { return p.Role == "network" && p.PID > 0 }) {
		t.Errorf("the network is not among the processes: %+v", s.Processes)
	}
}

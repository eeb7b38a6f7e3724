package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"imbench/loadgen/internal/clock"
	"imbench/loadgen/internal/netfault"
	"imbench/loadgen/internal/sample"
	"imbench/loadgen/internal/scenario"
	"imbench/reports/rundir"
)

// stage is a stack and devices that note what is done to them and when.
type stage struct {
	mu     sync.Mutex
	start  time.Time
	notes  []string
	fails  error
	ready  atomic.Int64
	due    atomic.Int64
	behind atomic.Int64
}

func (s *stage) note(format string, args ...any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notes = append(s.notes, fmt.Sprintf("%v ", time.Since(s.start).Round(time.Millisecond))+fmt.Sprintf(format, args...))
	return s.fails
}

func (s *stage) KillGateway(i int) error { return s.note("kill %d", i) }
func (s *stage) DrainGateway(_ context.Context, i int, _ time.Duration) error {
	time.Sleep(2 * time.Second) // virtual: the stage is only used in a bubble
	return s.note("drained %d", i)
}
func (s *stage) StartGateway(_ context.Context, i int) error { return s.note("start %d", i) }
func (s *stage) Kill(i int, sig os.Signal) error             { return s.note("%v %d", sig, i) }
func (s *stage) StopDatabase(crash bool) error               { return s.note("stop db %v", crash) }
func (s *stage) StartDatabase(context.Context) error         { return s.note("start db") }
func (s *stage) CutListeners(context.Context) (int, error)   { return 2, s.note("cut") }
func (s *stage) Cut(_ context.Context, n int, share float64) (int, error) {
	_ = s.note("cut %d %v", n, share)
	return 7, nil
}
func (s *stage) Freeze(_ context.Context, n int, share float64, _ time.Duration) (int, error) {
	_ = s.note("freeze %d %v", n, share)
	return 3, nil
}

// watch is a crowd on the stage.
func (s *stage) watch() *watch {
	return &watch{ready: s.ready.Load, due: func() (int64, clock.Time) { return s.due.Load(), clock.Now() }, heads: func() []int64 { return []int64{1} },
		behind: func([]int64) int64 { return s.behind.Load() }}
}

func (s *stage) Set(number, gateway int, h *netfault.Harm) (int, error) {
	if h == nil {
		return 0, s.note("harm %d over", number)
	}
	return 5, s.note("harm %d %d %+v", number, gateway, *h)
}

// play runs faults in virtual time and returns what was done and what became of them.
func play(t *testing.T, s *stage, limit time.Duration, yaml string) []rundir.Fault {
	t.Helper()
	sc, err := scenario.Parse("f.yaml", []byte("server: {gateways: 3}\nfaults:\n"+yaml))
	if err != nil {
		t.Fatal(err)
	}
	s.start = time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	j := &injector{faults: sc.Faults, gateways: 3, stack: s, devices: s, network: s, event: func(string, string) {}, restarted: func() {}, ctx: ctx,
		heal: &healing{total: 10, crowd: s.watch()}}
	j.begin(ctx, clock.Now())
	j.wait()
	j.heal.settle(t.Context())
	return j.heal.results()
}

func TestNetworkIsHarmedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stage{}
		s.ready.Store(10)
		got := play(t, s, 20*time.Second, `
  - {at: 1s, do: delay-network, latency: 80ms, jitter: 20ms, for: 3s}
  - {at: 2s, do: drop-network, gateway: 2, for: 500ms}
  - {at: 5s, do: throttle-network, throughput: 2000, share: 0.1, for: 1s}
  - {at: 15s, do: drop-network, share: 0.5, for: 30s}
`)
		want := []string{"1s harm 0 -1 {Latency:80ms Jitter:20ms Drop:false Rate:0 Share:0}", "2s harm 1 1 {Latency:0s Jitter:0s Drop:true Rate:0 Share:0}",
			"2.5s harm 1 over", "4s harm 0 over", "5s harm 2 -1 {Latency:0s Jitter:0s Drop:false Rate:2000 Share:0.1}", "6s harm 2 over",
			"15s harm 3 -1 {Latency:0s Jitter:0s Drop:true Rate:0 Share:0.5}", "20s harm 3 over"}
		if !slices.Equal(s.notes, want) {
			t.Errorf("done\n%q, want\n%q", s.notes, want)
		}
		if got[0].Fault != "delay-network by 80ms ± 20ms for 3s" || *got[0].TookS != 3 || got[1].Fault != "drop-network 2 for 500ms" ||
			got[2].Fault != "throttle-network 10 % to 2000 B/s for 1s" || got[2].Detail != "5 connections" || got[3].Error == "" {
			t.Errorf("results %+v", got)
		}
	})
}

func TestFaultsHappenInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stage{}
		s.ready.Store(10)
		got := play(t, s, time.Minute, `
  - {at: 30s, do: crash-database, restart_after: 3s}
  - {at: 1s, do: kill-gateway, gateway: 2, restart_after: 5s}
  - {at: 7s, do: restart-gateway, gateway: rolling, restart_after: 1s, gap: 500ms}
  - {at: 40s, do: stop-gateway, gateway: all}
  - {at: 41s, do: continue-gateway, gateway: all}
  - {at: 42s, do: cut-devices, share: 0.5}
  - {at: 43s, do: freeze-devices, for: 2s}
  - {at: 50s, do: cut-listeners}
  - {at: 51s, do: command, command: "echo hello; echo there"}
`)
		want := []string{"1s kill 1", "6s start 1", "9s drained 0", "10s start 0", "12.5s drained 1", "13.5s start 1", "16s drained 2",
			"17s start 2", "30s stop db true", "33s start db", "40s stopped", "41s continued", "42s cut 5 0.5", "43s freeze 6 0", "50s cut"}
		var done []string
		for _, n := range s.notes {
			if strings.HasPrefix(n, "40s stopped") || strings.HasPrefix(n, "41s continued") {
				n = n[:strings.LastIndexByte(n, ' ')] // in any order
				n = strings.TrimSuffix(n, " (signal)")
			}
			if len(done) == 0 || done[len(done)-1] != n {
				done = append(done, n)
			}
		}
		if !slices.Equal(done, want) {
			t.Errorf("done\n%q, want\n%q", done, want)
		}
		if len(got) != 9 || got[0].Fault != "crash-database, back after 3s" || *got[1].TookS != 5 || *got[2].TookS != 10 || *got[6].TookS != 2 ||
			got[5].Detail != "7 connections cut" || got[8].Detail != "hello there" {
			t.Errorf("results %+v", got)
		}
		for _, f := range got {
			if f.Error != "" || f.HealedS == nil || f.BackS != nil {
				t.Errorf("%+v: want healed, and nobody away", f)
			}
		}
	})
}

// Healing is told in the order in which it happens: devices, sends, deliveries.
func TestHealing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stage{}
		s.ready.Store(10)
		s.behind.Store(4)
		begun := clock.Now()
		var sends *watch
		at := func(d time.Duration, do func()) { time.AfterFunc(d, do) }
		at(1100*time.Millisecond, func() { s.ready.Store(5) })
		at(2*time.Second, func() { s.ready.Store(10); s.due.Store(3) })
		at(3*time.Second, func() {
			sends.Send(sample.Send{Intended: begun})
			sends.Send(sample.Send{Intended: clock.Now()}) // these two were not due when the devices came back
			sends.Send(sample.Send{Intended: clock.Now()})
		})
		at(4*time.Second, func() { sends.Send(sample.Send{Intended: begun}) })
		at(5*time.Second, func() { sends.Send(sample.Send{Intended: begun}) })
		at(7*time.Second, func() { s.behind.Store(0) })
		s.start = time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		sends = s.watch()
		heal := &healing{total: 10, crowd: sends}
		j := &injector{faults: []scenario.Fault{{At: time.Second, Do: scenario.KillGateway, Gateway: "1", RestartAfter: 20 * time.Second}},
			gateways: 3, stack: s, devices: s, event: func(string, string) {}, restarted: func() {}, heal: heal}
		j.begin(ctx, clock.Now())
		j.wait()
		f := heal.results()[0]
		near := func(what string, got *float64, want float64) {
			if got == nil || *got < want || *got > want+0.25 {
				t.Errorf("%s: %v, want %v", what, got, want)
			}
		}
		near("all back", f.BackS, 1)
		near("healed", f.HealedS, 6)
		near("took", f.TookS, 20)
		if f.Away != 5 || f.Behind != 4 {
			t.Errorf("%d away, %d behind, want 5 and 4", f.Away, f.Behind)
		}
		if m := healMetric([]rundir.Fault{f}); m.Count != 1 || m.Max != 1000**f.HealedS || m.P50 != m.Max {
			t.Errorf("metric %+v", m)
		}
		if m := healMetric([]rundir.Fault{f, {}}); m.Count != 2 || m.Censored != 1 || m.Max != unhealedMS {
			t.Errorf("one that did not heal: %+v", m)
		}
	})
}

// What cannot be done is told, makes the run invalid, and what did not end before the run did is told as that.
func TestFaultsThatFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stage{fails: errors.New("no such process")}
		got := play(t, s, 10*time.Second, "  - {at: 1s, do: kill-gateway, gateway: 1}\n  - {at: 2s, do: command, command: 'echo so sorry; exit 3'}\n  - {at: 3s, do: freeze-devices, for: 30s}\n  - {at: 20s, do: cut-devices}\n")
		if len(got) != 3 || got[0].Error != "no such process" || got[1].Error != "exit status 3: so sorry" || got[2].Error != "the run ended before it was over" {
			t.Errorf("results %+v", got)
		}
		sum := &rundir.Summary{Faults: got[:1]}
		judge(sum, nil, outcome{})
		if sum.Verdict != rundir.Invalid || !strings.Contains(sum.Reasons[0], "kill-gateway 1: no such process") {
			t.Errorf("verdict %s, %q", sum.Verdict, sum.Reasons)
		}
		sum.Ledger.Lost = 1
		if judge(sum, nil, outcome{}); sum.Verdict != rundir.Broken {
			t.Errorf("a loss beside a fault: verdict %s", sum.Verdict)
		}
	})
}

// What cannot be done to a target, or to someone's database, is refused before anything is touched.
func TestFaultsThatAreRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f.yaml")
	for _, c := range []struct {
		fault, want string
		args        []string
	}{
		{"{at: 1s, do: kill-gateway, gateway: 1}", "faults[0] of f: kill-gateway can be done to the embedded stack only; with -target there are", []string{"-target", "http://h:1"}},
		{"{at: 1s, do: cut-listeners}", "embedded stack only", []string{"-target", "http://h:1"}},
		{"{at: 1s, do: restart-database}", "needs the private PostgreSQL", []string{"-db", "postgres://h/db"}},
		{"{at: 1s, do: cut-devices}", "", []string{"-target", "http://h:1"}},
		{"{at: 1s, do: drop-network, for: 1s}", "embedded stack only", []string{"-target", "http://h:1"}},
		{"{at: 1s, do: command, command: 'true'}", "say -allow-commands", []string{"-target", "http://h:1"}},
		{"{at: 1s, do: command, command: 'true'}", "", []string{"-target", "http://h:1", "-allow-commands"}},
		{"{at: 1s, do: kill-gateway, gateway: 1}", "", []string{"-db", "postgres://h/db"}},
	} {
		if err := os.WriteFile(file, []byte("faults: ["+c.fault+"]\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		var out, say bytes.Buffer
		code := Run(t.Context(), Program{Args: append([]string{"-scenario", file, "-explain"}, c.args...), Stdout: &out, Stderr: &say})
		if c.want == "" && (code != ExitPassed || !strings.Contains(out.String(), "faults      at 1s of the measured window: ")) {
			t.Errorf("%s %v: exit %d, %s", c.fault, c.args, code, say.String())
		}
		if c.want != "" && (code != ExitUsage || !strings.Contains(say.String(), c.want) || strings.Count(say.String(), "\n") != 1) {
			t.Errorf("%s %v: exit %d, %q, want %q", c.fault, c.args, code, say.String(), c.want)
		}
	}
}

// -check says which faults of the scenario a run against the target would be refused for, each of them.
func TestCheckTellsOfFaults(t *testing.T) {
	for _, c := range []struct {
		scenario string
		commands bool
		failed   int
		says     []string
	}{
		{"smoke", false, 0, nil},
		{"database-restart", false, 2, []string{"FAIL  faults       faults[0] of database-restart: restart-database can be done to the embedded stack only", "faults[1] of database-restart: crash-database can be done to the embedded stack only", "would be refused"}},
		{"slow-receivers", false, 0, []string{"ok    faults       ", " of slow-receivers can be done beside this target"}},
		{"hook", false, 2, []string{"faults[0] of hook runs a command of its own beside a target (true): say -allow-commands", "faults[1] of hook: kill-gateway"}},
		{"hook", true, 1, []string{"faults[1] of hook: kill-gateway"}},
	} {
		name := c.scenario
		if name == "hook" {
			name = filepath.Join(t.TempDir(), "hook.yaml")
			if err := os.WriteFile(name, []byte("faults: [{at: 1s, do: command, command: 'true'}, {at: 2s, do: kill-gateway, gateway: 1, restart_after: 1s}]\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		sc, err := scenario.Load(name)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		k := &checker{out: &out, sc: sc, options: options{targets: []string{"http://h:1"}, allowCommands: c.commands}}
		k.faults()
		if k.failed != c.failed || (len(c.says) == 0) != (out.Len() == 0) {
			t.Errorf("%s: %d failed, want %d:\n%s", c.scenario, k.failed, c.failed, out.String())
		}
		for _, want := range c.says {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: does not say %q:\n%s", c.scenario, want, out.String())
			}
		}
	}
}

// Two workers, each of which knows of its own devices only, heal as one: the sends of both must be confirmed, and what the first
// committed is owed to the devices of the second.
func TestWorkersHealTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := &stage{}, &stage{}
		a.ready.Store(6)
		b.ready.Store(4)
		a.due.Store(1)
		b.due.Store(1)
		wa, wb := a.watch(), b.watch()
		wa.heads = func() []int64 { return []int64{5, 2} }
		wb.heads = func() []int64 { return []int64{3, 4} }
		var asked []int64
		wb.behind = func(heads []int64) int64 { asked = heads; return b.behind.Load() }
		b.behind.Store(2)
		begun := clock.Now()
		after := func(d time.Duration, do func()) { time.AfterFunc(d, do) }
		after(1100*time.Millisecond, func() { b.ready.Store(1) })
		after(2*time.Second, func() { b.ready.Store(4) })
		after(3*time.Second, func() { wa.Send(sample.Send{Intended: begun}) })
		after(5*time.Second, func() { wb.Send(sample.Send{Intended: begun}) })
		after(6*time.Second, func() { b.behind.Store(0) })
		heal := &healing{total: 10, crowd: both{wa, wb}}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		j := &injector{faults: []scenario.Fault{{At: time.Second, Do: scenario.CutDevices}}, gateways: 3, devices: a, event: func(string, string) {},
			restarted: func() {}, heal: heal, shared: true}
		j.begin(ctx, clock.Now())
		j.wait()
		f := heal.results()[0]
		if f.Away != 3 || f.Behind != 2 || f.BackS == nil || f.HealedS == nil || *f.BackS < 1 || *f.BackS > 1.25 || *f.HealedS < 5 || *f.HealedS > 5.5 {
			t.Errorf("%+v, want 3 away, 2 behind, back after 1 s and healed after 5", f)
		}
		if !slices.Equal(asked, []int64{5, 4}) {
			t.Errorf("the second worker was asked for %v, want the largest heads of both", asked)
		}
	})
}

// both are the crowds of two workers without the way to them.
type both [2]*watch

func (b both) sum(each func(w *watch) fleetAnswer) (sum fleetAnswer, err error) {
	for _, w := range b {
		if err := sum.add(each(w)); err != nil {
			return sum, err
		}
	}
	return sum, nil
}

func (b both) Stand(ctx context.Context, n int) (ready, open int64, err error) {
	a, err := b.sum(func(w *watch) (a fleetAnswer) { a.N, a.Open, _ = w.Stand(ctx, n); return a })
	return a.N, a.Open, err
}

func (b both) Mark(ctx context.Context, n int) error {
	return errors.Join(b[0].Mark(ctx, n), b[1].Mark(ctx, n))
}

func (b both) Heads(ctx context.Context) ([]int64, error) {
	a, err := b.sum(func(w *watch) (a fleetAnswer) { a.Heads, _ = w.Heads(ctx); return a })
	return a.Heads, err
}

func (b both) Behind(ctx context.Context, n int, heads []int64) (int64, error) {
	a, err := b.sum(func(w *watch) (a fleetAnswer) { a.N, _ = w.Behind(ctx, n, heads); return a })
	return a.N, err
}

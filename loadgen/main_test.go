package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"imbench/loadgen/internal/app"
	"imbench/reports/rundir"
	"imbench/server/local"
)

// The test binary is three programs: the tests, loadgen itself (asLoadgen), and the gateways that loadgen starts.
const asLoadgen = "IMBENCH_TEST_LOADGEN"

func TestMain(m *testing.M) {
	local.Child()
	if spec := os.Getenv(asTokens); spec != "" {
		printTokens(spec)
	}
	if os.Getenv(asLoadgen) != "" {
		main()
	}
	flag.Parse()
	if flag.Lookup("test.parallel").DefValue == flag.Lookup("test.parallel").Value.String() {
		// These tests wait for runs of some seconds, of which each takes a small part of a core.
		if err := flag.Set("test.parallel", "4"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// tiny is a run of a few seconds through every room.
const tiny = `
name: tiny
description: a few seconds through every room
population: {users: 60, two_device_users: 30, connected_devices: 45, groups_per_user: 2, group_size: 10, directs_per_user: 3}
load: {group_rate: 40/s, direct_rate: 60/s, active_groups: 4, active_directs: 10}
devices: {ack_delay: 500ms, loss: 0.1, connect_rate: 500/s}
server: {grace: 1s, sweep: 200ms}
phases: {warmup: 1s, measure: 2s, tail: 500ms, settle: 10s}
criteria:
  - {metric: achieved_rate, min: 1}
`

// run is loadgen as a process of its own.
type run struct {
	t    *testing.T
	cmd  *exec.Cmd
	out  string
	log  bytes.Buffer
	line chan string // standard error, line by line; closed at its end
	json bytes.Buffer
}

func start(t *testing.T, scenario string, args ...string) *run {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "tiny.yaml")
	if err := os.WriteFile(file, []byte(scenario), 0o644); err != nil {
		t.Fatal(err)
	}
	r := &run{t: t, out: filepath.Join(dir, "runs"), line: make(chan string, 1000)}
	r.cmd = exec.Command(os.Args[0], append([]string{"-scenario", file, "-out", r.out, "-json"}, args...)...)
	r.cmd.Env = append(os.Environ(), asLoadgen+"=1")
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	r.cmd.Stdout = &r.json
	pipe, err := r.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.cmd.Process.Kill() })
	go func() {
		defer close(r.line)
		for sc := bufio.NewScanner(pipe); sc.Scan(); {
			fmt.Fprintln(&r.log, sc.Text())
			r.line <- sc.Text()
		}
	}()
	return r
}

// until reads standard error up to a line with the text.
func (r *run) until(text string) {
	r.t.Helper()
	limit := time.After(2 * time.Minute)
	for {
		select {
		case l, ok := <-r.line:
			if !ok {
				r.t.Fatalf("ended without saying %q:\n%s", text, r.log.String())
			}
			if strings.Contains(l, text) {
				return
			}
		case <-limit:
			r.t.Fatalf("never said %q", text)
		}
	}
}

// wait gives the exit code.
func (r *run) wait() int {
	r.t.Helper()
	for range r.line { // drained, so that the process can end
	}
	err := r.cmd.Wait()
	if err != nil && r.cmd.ProcessState == nil {
		r.t.Fatal(err)
	}
	return r.cmd.ProcessState.ExitCode()
}

// summary reads the one run directory back.
func (r *run) summary() (rundir.Summary, rundir.Manifest) {
	r.t.Helper()
	d, err := rundir.Open(onlyRun(r.t, r.out))
	if err != nil {
		r.t.Fatalf("%v\n%s", err, r.log.String())
	}
	s, err := d.Summary()
	if err != nil {
		r.t.Fatal(err)
	}
	return s, d.Manifest()
}

// stackProcesses finds the processes whose parent is pid, with their command lines.
func stackProcesses(t *testing.T, pid int) map[int]string {
	t.Helper()
	found := map[int]string{}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(stats) == 0 {
		t.Fatalf("no /proc: %v", err)
	}
	for _, f := range stats {
		b, err := os.ReadFile(f)
		if err != nil {
			continue // it ended
		}
		fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
		if len(fields) < 2 || fields[1] != strconv.Itoa(pid) {
			continue
		}
		id, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		cmd, _ := os.ReadFile(filepath.Join(filepath.Dir(f), "cmdline"))
		found[id] = string(bytes.ReplaceAll(cmd, []byte{0}, []byte{' '}))
	}
	return found
}

// gone waits until none of the processes exists any more.
func gone(t *testing.T, pids map[int]string) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for pid, cmd := range pids {
		for syscall.Kill(pid, 0) == nil {
			if time.Now().After(deadline) {
				t.Errorf("process %d is still there: %s", pid, cmd)
				break
			}
			<-tick.C
		}
	}
}

func TestARunPassesAndItsCountsAreThePlans(t *testing.T) {
	files := t.TempDir()
	r := start(t, tiny, "-calibrate", "-junit", files+"/junit.xml", "-markdown", files+"/pr.md", "-benchstat", files+"/bench.txt")
	code := r.wait()
	s, m := r.summary()
	for name, want := range map[string]string{"junit.xml": `failures="0" errors="0" skipped="0"`, "pr.md": ": PASSED", "bench.txt": "BenchmarkTiny/latency=deliver "} {
		if b, err := os.ReadFile(filepath.Join(files, name)); err != nil || !strings.Contains(string(b), want) {
			t.Errorf("%s: %v, want %q in\n%s", name, err, want, b)
		}
	}
	if c := s.Calibration; c == nil || c.MixSendsPerS <= 0 || c.FramesPerS <= 0 || c.FloorSends == 0 {
		t.Errorf("calibration %+v", c)
	}
	if code != app.ExitPassed || s.Verdict != rundir.Passed {
		t.Fatalf("exit %d, verdict %s, reasons %q\n%s", code, s.Verdict, s.Reasons, r.log.String())
	}
	var printed rundir.Summary
	if err := json.Unmarshal(r.json.Bytes(), &printed); err != nil || printed.Run != s.Run {
		t.Errorf("-json printed something else than the summary: %v", err)
	}
	if l := s.Ledger; l.Broken() || l.Expected == 0 || l.Delivered != l.Expected || !l.Exported {
		t.Errorf("ledger %+v", l)
	}
	if c := s.Counted; c == nil || c.Server == nil || *c.Server != c.Ours || c.Ours < s.Done || c.Note != "" {
		t.Errorf("the server and we counted %+v", c)
	}
	// The plan fixes these. On a machine so busy that a gateway's queue is half full, it pushes a little less and hints.
	tolerance := map[string]float64{"messages": 0, "frames.event": 0.05, "bytes.event": 0.05, "deliveries_per_message": 0.05}
	for _, p := range s.Predictions {
		if p.Measured == nil || p.Planned == nil {
			t.Errorf("%s: measured %v, planned %v: want both", p.Name, p.Measured, p.Planned)
		} else if most, ok := tolerance[p.Name]; ok && math.Abs(*p.Measured-*p.Planned) > most**p.Planned {
			t.Errorf("%s: measured %v, planned %v: the plan fixes it within %v", p.Name, *p.Measured, *p.Planned, most)
		}
	}
	if m.Population.Digest == "" || m.Arrivals.Digest == "" || m.Postgres.Version == "" || m.Window == nil {
		t.Errorf("the manifest lacks something: %+v", m)
	}
	for _, f := range []string{rundir.CountersFile, rundir.LatencyFile, rundir.ProcessesFile, rundir.ServerFile, rundir.EventsFile,
		rundir.LedgerFile, rundir.PredictionsFile, rundir.SummaryTextFile, rundir.ScenarioFile, rundir.PercentilesFile(rundir.Deliver)} {
		if st, err := os.Stat(filepath.Join(r.out, "latest", f)); err != nil || st.Size() == 0 {
			t.Errorf("%s is missing or empty: %v", f, err)
		}
	}
}

func TestCtrlCKeepsWhatThereIs(t *testing.T) {
	t.Parallel()
	long := strings.Replace(tiny, "measure: 2s", "measure: 10m", 1)
	for _, c := range []struct{ phase, text string }{
		{"provisioning", "creating 60 users"},
		{"warm-up", `"phase":"warmup"`},
		{"measuring", `"phase":"measure"`},
	} {
		t.Run(c.phase, func(t *testing.T) {
			t.Parallel()
			r := start(t, long)
			r.until(c.text)
			children := stackProcesses(t, r.cmd.Process.Pid)
			if len(children) < 3 {
				t.Errorf("children %v: want two gateways and a database", children)
			}
			if err := r.cmd.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
			if code := r.wait(); code != app.ExitInterrupted {
				t.Errorf("exit %d, want %d\n%s", code, app.ExitInterrupted, r.log.String())
			}
			s, _ := r.summary()
			if s.Verdict != rundir.Interrupted || s.Ledger.Lost != 0 {
				t.Errorf("verdict %s with %d lost, want interrupted with none", s.Verdict, s.Ledger.Lost)
			}
			if s.WindowS > 300 {
				t.Errorf("a window of %g s, of which only a little was measured", s.WindowS)
			}
			gone(t, children)
		})
	}
}

func TestKilledLoadgenLeavesNothing(t *testing.T) {
	r := start(t, strings.Replace(tiny, "measure: 2s", "measure: 10m", 1))
	r.until(`"phase":"measure"`)
	children := stackProcesses(t, r.cmd.Process.Pid)
	if err := r.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	r.wait()
	gone(t, children)
	d, err := rundir.Open(onlyRun(t, r.out))
	if err != nil {
		t.Fatal(err)
	}
	if d.Finished() {
		t.Error("a killed run calls itself finished")
	}
}

func onlyRun(t *testing.T, out string) string {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(out, "tiny-*"))
	if err != nil || len(dirs) != 1 {
		t.Fatalf("runs %v, %v: want one", dirs, err)
	}
	return dirs[0]
}

func TestDatabaseGoneInMidRun(t *testing.T) {
	t.Parallel()
	r := start(t, strings.Replace(tiny, "measure: 2s", "measure: 10m", 1))
	r.until(`"phase":"measure"`)
	children := stackProcesses(t, r.cmd.Process.Pid)
	for pid, cmd := range children {
		if strings.Contains(cmd, "postgres") && strings.Contains(cmd, "-D") {
			if err := syscall.Kill(pid, syscall.SIGQUIT); err != nil {
				t.Fatal(err)
			}
		}
	}
	if code := r.wait(); code != app.ExitTarget {
		t.Errorf("exit %d, want %d\n%s", code, app.ExitTarget, r.log.String())
	}
	if s, _ := r.summary(); s.Verdict != rundir.Error || !strings.Contains(strings.Join(s.Reasons, " "), "postgres") || s.Ledger.Lost != 0 {
		t.Errorf("verdict %s, reasons %q, %d lost: want an error that names postgres", s.Verdict, s.Reasons, s.Ledger.Lost)
	}
	gone(t, children)
}

func TestTargetIsNoGateway(t *testing.T) {
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	t.Setenv("IM_ADMIN_TOKEN", "x")
	r := start(t, tiny, "-target", other.URL, "-admin", other.URL)
	if code := r.wait(); code != app.ExitTarget || !strings.Contains(r.log.String(), "is not a gateway's admin listener") {
		t.Errorf("exit %d, want %d and a sentence:\n%s", code, app.ExitTarget, r.log.String())
	}
}

func TestTargetAndWrongToken(t *testing.T) {
	stack, err := local.Start(t.Context(), local.Config{Gateways: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := stack.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	target := []string{"-target", strings.Join(stack.Targets, ","), "-admin", stack.AdminURLs[0]}

	t.Setenv("IM_ADMIN_TOKEN", "wrong")
	r := start(t, tiny, append(target, "-allow-environment", "embedded")...)
	if code := r.wait(); code != app.ExitUsage || !strings.Contains(r.log.String(), "refuses the admin token") {
		t.Errorf("wrong token: exit %d, want %d\n%s", code, app.ExitUsage, r.log.String())
	}
	t.Setenv("IM_ADMIN_TOKEN", stack.AdminToken)
	r = start(t, strings.Replace(tiny, "name: tiny", "name: tiny\nallow_environments: [staging]", 1), target...)
	if code := r.wait(); code != app.ExitUsage || !strings.Contains(r.log.String(), "environment not allowed") {
		t.Errorf("foreign environment: exit %d, want %d\n%s", code, app.ExitUsage, r.log.String())
	}
	// A population is created, driven and removed again on a target that stays, for a run and for each of two in pairs.
	own := strings.NewReplacer("grace: 1s, sweep: 200ms", "grace: 4s, sweep: 1s") // as the target has them
	r = start(t, own.Replace(tiny), target...)
	if code := r.wait(); code != app.ExitPassed {
		t.Errorf("exit %d, want passed\n%s", code, r.log.String())
	}
	r = start(t, own.Replace(brief), "-ab", "one="+stack.Targets[0]+",two="+stack.Targets[1], "-admin", "one="+stack.AdminURLs[0]+",two="+stack.AdminURLs[1], "-repeat", "2")
	if code := r.wait(); code != app.ExitPassed {
		t.Errorf("exit %d, want passed\n%s", code, r.log.String())
	}
	comparedTargets(r, stack.Targets)
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, stack.AdminURLs[0]+"/admin/v1/populations", nil)
	req.Header.Set("Authorization", "Bearer "+stack.AdminToken)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var left struct{ Populations []any }
	if err := json.NewDecoder(resp.Body).Decode(&left); err != nil || len(left.Populations) != 0 {
		t.Errorf("populations left on the target: %v (%v)", left, err)
	}
}

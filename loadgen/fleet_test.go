package main

import (
	"bufio"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"imbench/loadgen/internal/app"
	"imbench/reports/rundir"
)

// shared is tiny for runs that several processes drive.
var shared = strings.Replace(tiny, "settle: 10s", "settle: 60s", 1)

// workersOf are the children of a process that are workers.
func workersOf(t *testing.T, pid int) map[int]string {
	t.Helper()
	all := stackProcesses(t, pid)
	maps.DeleteFunc(all, func(_ int, cmd string) bool { return !strings.Contains(cmd, " -worker") })
	return all
}

// checkShared holds a run of two workers to what a run in one process is held to.
func checkShared(t *testing.T, r *run, code int) {
	t.Helper()
	s, m := r.summary()
	if code != app.ExitPassed || s.Verdict != rundir.Passed {
		t.Fatalf("exit %d, verdict %s, reasons %q\n%s", code, s.Verdict, s.Reasons, r.log.String())
	}
	if l := s.Ledger; l.Broken() || l.Expected == 0 || l.Delivered != l.Expected || !l.Exported || !l.Settled {
		t.Errorf("ledger %+v", l)
	}
	for _, p := range s.Predictions {
		if p.Name == "messages" && (p.Measured == nil || p.Planned == nil || *p.Measured != *p.Planned) {
			t.Errorf("messages: measured %v, planned %v", p.Measured, p.Planned)
		}
	}
	d, err := rundir.Open(onlyRun(t, r.out))
	if err != nil {
		t.Fatal(err)
	}
	counters, _, err := d.Counters()
	if err != nil {
		t.Fatal(err)
	}
	var offered, done int64
	for _, c := range counters {
		offered, done = offered+c.Offered, done+c.Done
	}
	if offered != m.Arrivals.Messages || done != offered {
		t.Errorf("counters.ndjson: %d offered, %d done; the plan has %d", offered, done, m.Arrivals.Messages)
	}
	lines, _, err := d.Processes()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"worker-1", "worker-2"} {
		if !slices.ContainsFunc(lines, func(l rundir.ProcessLine) bool { return l.Role == name && l.RSSBytes > 0 && l.CPUSec > 0 }) {
			t.Errorf("%s is not in processes.ndjson", name)
		}
		if !slices.ContainsFunc(m.Hosts, func(h rundir.Host) bool { return h.Role == name && h.CPUs > 0 }) {
			t.Errorf("%s is not among the hosts %+v", name, m.Hosts)
		}
		if !slices.ContainsFunc(s.Processes, func(p rundir.ProcessUse) bool { return p.Role == name && p.PID != r.cmd.Process.Pid }) {
			t.Errorf("%s is not among the processes %+v", name, s.Processes)
		}
	}
	if !slices.ContainsFunc(s.Notes, func(n string) bool { return strings.Contains(n, "CLOCK_MONOTONIC") }) {
		t.Errorf("no word on the clocks: %q", s.Notes)
	}
}

// Two processes drive one run, and all that is counted adds up to what one would have counted.
func TestWorkers(t *testing.T) {
	t.Parallel()
	r := start(t, shared, "-workers", "2", "-calibrate", "-set", "load.fetch_rate=20/s", "-set", "load.convs_rate=10/s")
	r.until(`"phase":"warmup"`)
	children := workersOf(t, r.cmd.Process.Pid)
	if len(children) != 2 {
		t.Errorf("workers %v", children)
	}
	checkShared(t, r, r.wait())
	gone(t, children)
	s, _ := r.summary()
	if c := s.Calibration; c == nil {
		t.Errorf("no calibration: %q", s.Notes)
	} else if len(c.Workers) != 2 || c.Workers[0].Name != "worker-1" || c.FloorSends == 0 || c.Workers[0].MixSendsPerS+c.Workers[1].MixSendsPerS != c.MixSendsPerS || c.Workers[1].FloorP99MS <= 0 {
		t.Errorf("calibration %+v", *c)
	}
	planned := 0
	for _, p := range s.Predictions {
		if p.Name == rundir.FetchRate || p.Name == rundir.ConvsRate {
			if planned++; p.Measured == nil || p.Planned == nil || *p.Measured != *p.Planned {
				t.Errorf("%s: %v, planned %v", p.Name, p.Measured, p.Planned)
			}
		}
	}
	if planned != 2 {
		t.Errorf("%d of the two kinds of requests are in the predictions", planned)
	}
}

// Faults are done to a run of two workers as to one in one process: to gateway and network by the coordinator, to the devices by
// who holds them; each heals, and nothing is lost.
func TestWorkersFaults(t *testing.T) {
	t.Parallel()
	r := start(t, strings.Replace(strings.Replace(shared, "measure: 2s", "measure: 3s", 1), "phases:", `faults:
  - {at: 100ms, do: cut-devices, share: 0.5}
  - {at: 200ms, do: kill-gateway, gateway: 1, restart_after: 500ms}
  - {at: 1s, do: delay-network, latency: 20ms, for: 500ms}
  - {at: 1500ms, do: freeze-devices, for: 300ms}
phases:`, 1), "-workers", "2")
	code := r.wait()
	s, _ := r.summary()
	if code != app.ExitPassed || s.Ledger.Broken() || !s.Ledger.Settled || s.Ledger.Delivered != s.Ledger.Expected || s.Done != s.Offered {
		t.Fatalf("exit %d, reasons %q, ledger %+v\n%s", code, s.Reasons, s.Ledger, r.log.String())
	}
	if len(s.Faults) != 4 {
		t.Fatalf("faults %+v", s.Faults)
	}
	for _, f := range s.Faults {
		if f.Error != "" || f.TookS == nil || f.HealedS == nil {
			t.Errorf("fault %+v, want it done and healed", f)
		}
	}
	var cut int
	if _, err := fmt.Sscanf(s.Faults[0].Detail, "%d connections cut", &cut); err != nil || cut < 12 || cut > 33 { // half of 45, evenly drawn
		t.Errorf("the first fault says %q", s.Faults[0].Detail)
	}
	if s.Faults[1].Away < 15 || s.Faults[3].Detail != "45 devices read nothing for 300ms" {
		t.Errorf("faults %+v", s.Faults)
	}
}

// A worker that dies makes the run invalid, and is named; nothing that it had does count as lost.
func TestKilledWorker(t *testing.T) {
	t.Parallel()
	r := start(t, strings.Replace(shared, "measure: 2s", "measure: 10m", 1), "-workers", "2")
	for range 4 { // a second of it has been told
		r.until(`"phase":"measure"`)
	}
	children := stackProcesses(t, r.cmd.Process.Pid)
	for pid := range workersOf(t, r.cmd.Process.Pid) {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		defer func() {
			s, _ := r.summary()
			if why := strings.Join(s.Reasons, " "); !strings.Contains(why, fmt.Sprintf("(process %d on ", pid)) || !strings.Contains(why, "was lost: it ended: signal: killed") {
				t.Errorf("reasons %q do not name process %d", s.Reasons, pid)
			}
		}()
		break
	}
	code := r.wait()
	s, _ := r.summary()
	if code != app.ExitInvalid || s.Verdict != rundir.Invalid || s.Ledger.Broken() || s.Ledger.Delivered == 0 || s.Done == 0 {
		t.Errorf("exit %d, verdict %s, reasons %q, ledger %+v\n%s", code, s.Verdict, s.Reasons, s.Ledger, r.log.String())
	}
	gone(t, children)
}

// Workers that were there before are found through a NATS server, serve one run after another, and end when their
// coordinator is killed in mid-run.
func TestFleet(t *testing.T) {
	t.Parallel()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true, Username: "imbench", Password: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	defer s.Shutdown()
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the NATS server does not start")
	}
	url := "nats://imbench:secret@" + s.Addr().String()
	var workers []*run
	for range 2 {
		w := &run{t: t, line: make(chan string, 1000), cmd: exec.Command(os.Args[0], "-worker", "-fleet", url)}
		w.cmd.Env = append(os.Environ(), asLoadgen+"=1")
		pipe, err := w.cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := w.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = w.cmd.Process.Kill() })
		go func() {
			defer close(w.line)
			for sc := bufio.NewScanner(pipe); sc.Scan(); {
				fmt.Fprintln(&w.log, sc.Text())
				w.line <- sc.Text()
			}
		}()
		workers = append(workers, w)
	}
	r := start(t, shared, "-workers", "2", "-fleet", url)
	checkShared(t, r, r.wait())
	if _, m := r.summary(); strings.Contains(strings.Join(m.Command, " "), "secret") {
		t.Errorf("the password stands in the manifest: %q", m.Command)
	}
	r = start(t, strings.Replace(shared, "measure: 2s", "measure: 10m", 1), "-workers", "2", "-fleet", url)
	r.until(`"phase":"measure"`)
	children := stackProcesses(t, r.cmd.Process.Pid)
	if err := r.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	// How soon is a matter of internal/fleet's TestSilence, in virtual time; without that their load would go on for ten minutes.
	for _, w := range workers {
		if code := w.wait(); code != app.ExitTarget || !strings.Contains(w.log.String(), "the coordinator is gone") {
			t.Errorf("exit %d, want %d\n%s", code, app.ExitTarget, w.log.String())
		}
	}
	r.wait()
	gone(t, children)
}

// Flags that make no sense together are refused with a sentence before anything is started.
func TestFleetFlags(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-workers", "0"}, "-workers 0: want 1 to 64 processes"},
		{[]string{"-workers", "46"}, "-workers 46: there are only 45 devices to share"},
		{[]string{"-fleet", "http://127.0.0.1:4222"}, "want nats://"},
		{[]string{"-fleet", "nats://127.0.0.1:1"}, "no NATS server at nats://127.0.0.1:1"},
	} {
		r := start(t, tiny, c.args...)
		if code := r.wait(); code != app.ExitUsage || !strings.Contains(r.log.String(), c.want) {
			t.Errorf("%q: exit %d, want %d and %q:\n%s", c.args, code, app.ExitUsage, c.want, r.log.String())
		}
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-worker"}, "-worker needs -fleet"},
		{[]string{"-worker", "-fleet", "nats://127.0.0.1:1", "-scenario", "smoke"}, "-scenario, -target and -admin go there"},
		{[]string{"-worker", "-fleet", "nats://127.0.0.1:1", "-json"}, "-json does not go with -worker"},
	} {
		if code, _, log := loadgen(t, c.args...); code != app.ExitUsage || !strings.Contains(log, c.want) {
			t.Errorf("%q: exit %d, want %d and %q:\n%s", c.args, code, app.ExitUsage, c.want, log)
		}
	}
}

package record

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	const tail = " 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 1 0 777 1000 50 99 1 1"
	tests := []struct {
		name, in string
		want     stat
		bad      bool
	}{
		{"plain", "12 (postgres) S 1 12 12" + tail, stat{state: 'S', cpu: 300 * time.Millisecond, waited: 700 * time.Millisecond, start: 777}, false},
		{"a name with parentheses and spaces", "12 (a) S (b c) R 1 12 12" + tail, stat{state: 'R', cpu: 300 * time.Millisecond, waited: 700 * time.Millisecond, start: 777}, false},
		{"zombie", "12 (x) Z 1 12 12" + tail, stat{state: 'Z', cpu: 300 * time.Millisecond, waited: 700 * time.Millisecond, start: 777}, false},
		{"empty", "", stat{}, true},
		{"short", "12 (x) S 1 2 3", stat{}, true},
		{"no number", "12 (x) S 1 12 12 0 -1 4194560 1 2 3 4 ten 20 30 40 20 0 1 0 777", stat{}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseStat([]byte(tt.in))
			if (err != nil) != tt.bad || got != tt.want {
				t.Errorf("%+v %v, want %+v", got, err, tt.want)
			}
		})
	}
}

// fakeProc writes one process into a directory that looks like /proc. Times are in hundredths of a second.
func fakeProc(t *testing.T, proc string, pid int, own, waited, start int, anonKB, sharedKB int, children ...int) {
	t.Helper()
	dir := filepath.Join(proc, strconv.Itoa(pid))
	task := filepath.Join(dir, "task", strconv.Itoa(pid))
	if err := os.MkdirAll(task, 0o755); err != nil {
		t.Fatal(err)
	}
	list := ""
	for _, c := range children {
		list += strconv.Itoa(c) + " "
	}
	for name, text := range map[string]string{
		filepath.Join(dir, "stat"):      fmt.Sprintf("%d (p) S 1 1 1 0 -1 0 0 0 0 0 %d 0 %d 0 20 0 1 0 %d 0 0 0", pid, own, waited, start),
		filepath.Join(dir, "status"):    fmt.Sprintf("Name:\tp\nRssAnon:\t%8d kB\nRssFile:\t%8d kB\nRssShmem:\t 0 kB\n", anonKB, sharedKB),
		filepath.Join(task, "children"): list,
	} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTreeUsage(t *testing.T) {
	proc := t.TempDir()
	fakeProc(t, proc, 10, 100, 5000, 7, 1000, 400, 11, 12, 99) // 99 has ended meanwhile
	fakeProc(t, proc, 11, 200, 0, 8, 2000, 500, 13)
	fakeProc(t, proc, 12, 300, 30, 9, 3000, 300)
	fakeProc(t, proc, 13, 1, 0, 9, 10, 0)
	got, err := readUsage(proc, 10, true)
	if err != nil {
		t.Fatal(err)
	}
	// Children that ended are in the postmaster's "waited for"; pages that the tree shares count once, by the largest.
	want := usage{cpu: (100 + 5000 + 200 + 300 + 30 + 1) * 10 * time.Millisecond, rss: (1000 + 2000 + 3000 + 10 + 500) << 10, processes: 4, start: 7}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got, err = readUsage(proc, 10, false); err != nil || got.processes != 1 || got.rss != 1400<<10 || got.cpu != time.Second {
		t.Errorf("the process alone: %+v %v", got, err)
	}
	if _, err := readUsage(proc, 77, true); !errors.Is(err, errGone) {
		t.Errorf("%v", err)
	}
}

// On the real thing: a child's CPU time is counted while it lives and stays counted after it ended.
func TestRealTree(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Logf("no /proc here (%v): only the parser is tested", err)
		return
	}
	before, err := readUsage("/proc", os.Getpid(), true)
	if err != nil || before.rss == 0 || before.start == 0 {
		t.Fatalf("%+v %v", before, err)
	}
	cmd := exec.Command("sh", "-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo done; read x")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	during, err := readUsage("/proc", os.Getpid(), true)
	if err != nil || during.processes != before.processes+1 || during.cpu <= before.cpu {
		t.Errorf("before %+v, during %+v, %v", before, during, err)
	}
	in.Close()
	if err := cmd.Wait(); err == nil {
		t.Log("read saw the end of its input as a line")
	}
	after, err := readUsage("/proc", os.Getpid(), true)
	if err != nil || after.processes != before.processes || after.cpu < during.cpu {
		t.Errorf("during %+v, after %+v, %v", during, after, err)
	}
}

func TestWatch(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Logf("no /proc here: %v", err)
		return
	}
	cmd := exec.Command("sh", "-c", "read x")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var p procs
	p.init([]Process{{Role: "child", PID: cmd.Process.Pid}, {Role: "self", PID: os.Getpid()}})
	now := time.Now()
	if lines := p.look(now, true); len(lines) != 2 || lines[0].Gone || lines[0].RSSBytes == 0 {
		t.Errorf("%+v", lines)
	}
	in.Close()
	_ = cmd.Wait() // read fails at the end of its input: any status will do
	lines := p.look(now.Add(time.Second), true)
	if len(lines) != 2 || !lines[0].Gone || lines[1].Gone {
		t.Errorf("%+v", lines)
	}
	if lines = p.look(now.Add(2*time.Second), true); len(lines) != 1 {
		t.Errorf("an ended process is told again: %+v", lines)
	}
	if use := p.use(); len(use) != 2 || use[1].RSSMaxBytes == 0 || use[1].CPUCores < 0 {
		t.Errorf("%+v", use)
	}
}

// CPU time never goes back, even if a child slips between two readings; another process with the same pid is not ours.
func TestReadingsNeverGoBack(t *testing.T) {
	p := procs{proc: t.TempDir(), list: []*watched{{Process: Process{Role: "postgres", PID: 10, Tree: true}}}}
	at := time.Now()
	for i, step := range []struct {
		own, start int
		cpu        float64
		gone       bool
	}{{500, 7, 5, false}, {300, 7, 5, false}, {600, 7, 6, false}, {900, 8, 6, true}} {
		fakeProc(t, p.proc, 10, step.own, 0, step.start, 10, 0)
		lines := p.look(at.Add(time.Duration(i)*time.Second), true)
		if len(lines) != 1 || lines[0].CPUSec != step.cpu || lines[0].Gone != step.gone {
			t.Errorf("step %d: %+v", i, lines)
		}
	}
	if use := p.use(); use[0].CPUCores != 0.5 {
		t.Errorf("%+v", use)
	}
}

func TestSpan(t *testing.T) {
	var s span
	at := time.Now()
	if s.add(at, time.Second); s.cores() != 0 {
		t.Error("a rate out of one reading")
	}
	s.add(at.Add(4*time.Second), 3*time.Second)
	if s.cores() != 0.5 {
		t.Errorf("%v", s.cores())
	}
}

package app

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"imbench/model/capacity"
	"imbench/reports/internal/page"
	"imbench/reports/rundir"
)

func run(args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = Run(Program{Args: args, Stdout: &out, Stderr: &err, Revision: "r1"})
	return code, out.String(), err.String()
}

// oneLine says whether what a user is told is one line.
func oneLine(s string) bool { return strings.Count(s, "\n") == 1 }

// makeRun leaves a run directory; verdict "" leaves it unfinished.
func makeRun(t *testing.T, dir string, started time.Time, verdict rundir.Verdict) {
	t.Helper()
	w, err := rundir.Create(dir, rundir.Manifest{Scenario: "smoke", Started: started}, []byte("name: smoke\n"))
	if err != nil {
		t.Fatal(err)
	}
	if verdict == "" {
		err = w.Close()
	} else {
		err = w.Finish(rundir.Summary{Verdict: verdict}, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestUsage(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, c := range []struct{ args, want string }{
		{"-frobnicate", "-frobnicate"}, {"-run", "-run"}, {"runs/x", `unexpected argument "runs/x"`}, {"-model-only -run x", "exclude each other"},
		{"-run x -run y", "a page is of one run"}, {"-run=", "names no directory"},
	} {
		code, stdout, stderr := run(strings.Fields(c.args)...)
		if code != ExitUsage || stdout != "" || !oneLine(stderr) || !strings.Contains(stderr, c.want) {
			t.Errorf("%s: exit %d, stdout %q, stderr %q", c.args, code, stdout, stderr)
		}
	}
	if code, stdout, _ := run("-help"); code != ExitOK || !strings.Contains(stdout, "-model-only") {
		t.Errorf("-help: exit %d, %q", code, stdout)
	}
	if code, stdout, _ := run("-version"); code != ExitOK || stdout != "r1\n" {
		t.Errorf("-version: exit %d, %q", code, stdout)
	}
	if left, err := os.ReadDir("."); err != nil || len(left) > 0 {
		t.Errorf("wrong flags left %v, %v", left, err)
	}
}

func TestNoRun(t *testing.T) {
	t.Chdir(t.TempDir())
	for range 2 { // without runs/, and with an empty one
		code, _, stderr := run()
		if code != ExitError || !oneLine(stderr) || !strings.Contains(stderr, "make baseline") {
			t.Errorf("exit %d, %q", code, stderr)
		}
		if err := os.MkdirAll("runs", 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat("reports"); err == nil {
		t.Error("a page was made of nothing")
	}
}

func TestRefused(t *testing.T) {
	t.Chdir(t.TempDir())
	makeRun(t, "going", time.Now(), "")
	makeRun(t, "tomorrow", time.Now(), rundir.Passed)
	if err := os.WriteFile("tomorrow/manifest.json", []byte(`{"format":2}`), 0o644); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{"going": "not finished", "tomorrow": "it is 2, this program reads 1", "nowhere": "not a run directory"} {
		code, _, stderr := run("-run", dir)
		if code != ExitError || !oneLine(stderr) || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit %d, %q", dir, code, stderr)
		}
	}
}

func TestChoose(t *testing.T) {
	t.Chdir(t.TempDir())
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	makeRun(t, "runs/a-new", noon.Add(time.Hour), rundir.Passed)
	makeRun(t, "runs/b-old", noon, rundir.Missed)
	makeRun(t, "runs/c-going", noon.Add(2*time.Hour), "")
	if err := os.MkdirAll("runs/notes", 0o755); err != nil {
		t.Fatal(err)
	}
	want := func(dir, name string) {
		t.Helper()
		r, err := choose(dir)
		if err != nil || r.Manifest().Run != name {
			t.Errorf("choose(%q) = %v, %v; want %s", dir, r, err, name)
		}
	}
	want("", "a-new")
	want("runs/b-old", "b-old")
	if err := os.Symlink("b-old", "runs/latest"); err != nil {
		t.Fatal(err)
	}
	want("", "b-old")
	if err := os.Remove("runs/latest"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("c-going", "runs/latest"); err != nil {
		t.Fatal(err)
	}
	want("", "a-new")
}

// fake is a page without the work of drawing.
func fake(run *page.Run, _ capacity.Inputs, _ string) (page.Page, error) {
	return page.Page{HTML: []byte("page of " + run.Manifest.Run), Figures: []page.Figure{{Name: "latency-spectrum", PNG: []byte("png")}},
		Problems: []error{errors.New("a figure could not be drawn")}}, nil
}

func TestRunBecomesAPage(t *testing.T) {
	t.Chdir(t.TempDir())
	makeRun(t, "runs/smoke-1", time.Now(), rundir.Passed)
	var stdout, stderr bytes.Buffer
	code := Run(Program{Stdout: &stdout, Stderr: &stderr, build: fake})
	index := filepath.Join("reports", "out", "index.html")
	if code != ExitOK || stdout.String() != "report of smoke-1, verdict passed: "+index+"\n" || stderr.String() != "reports: a figure could not be drawn\n" {
		t.Fatalf("exit %d, %q, %q", code, stdout.String(), stderr.String())
	}
	if b, err := os.ReadFile(index); err != nil || string(b) != "page of smoke-1" {
		t.Errorf("%q, %v", b, err)
	}
	if b, err := os.ReadFile(filepath.Join("reports", "out", "figures", "latency-spectrum.png")); err != nil || string(b) != "png" {
		t.Errorf("%q, %v", b, err)
	}
}

func TestModelAlone(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.MkdirAll("out/figures", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"mine.png", "latency-spectrum.png"} { // the second is from an earlier report
		if err := os.WriteFile(filepath.Join("out/figures", name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if code, _, stderr := run("-out", "out", "-model-only"); code != ExitOK || stderr != "" {
		t.Fatalf("exit %d, %q", code, stderr)
	}
	list, err := os.ReadDir("out/figures")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	if got := strings.Join(names, " "); got != "mine.png push-hint-bytes.png utilization.png" {
		t.Errorf("figures of an earlier run, or a missing file: %s", got)
	}
	if b, err := os.ReadFile("out/index.html"); err != nil || !bytes.Contains(b, []byte("Capacity by the model alone")) {
		t.Errorf("not the model's page: %v", err)
	}
}

func TestOutputCannotBeWritten(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("out", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := run("-model-only", "-out", "out"); code != ExitError || !oneLine(stderr) || !strings.Contains(stderr, "out") {
		t.Errorf("exit %d, %q", code, stderr)
	}
}

// Who gives the directory of a series is told what to give instead.
func TestSeriesIsNoRun(t *testing.T) {
	dir := t.TempDir()
	makeRun(t, filepath.Join(dir, "smoke-1"), time.Now(), rundir.Passed)
	if err := os.WriteFile(filepath.Join(dir, rundir.RepeatFile), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, _, stderr := run("-run", dir)
	if code != ExitError || !oneLine(stderr) || !strings.Contains(stderr, "is a series of runs; give -run one of them, such as "+filepath.Join(dir, "smoke-1")) {
		t.Errorf("exit %d, %q", code, stderr)
	}
}

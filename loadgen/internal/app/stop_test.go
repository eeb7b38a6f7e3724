package app

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"imbench/reports/rundir"
)

// A process number alone is no identity.
func TestWhyGone(t *testing.T) {
	here := thisProcess()
	if here.Start == "" {
		t.Skip("no /proc")
	}
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	other := func(change func(p *rundir.Process)) *rundir.Process {
		p := here
		change(&p)
		return &p
	}
	for name, c := range map[string]struct {
		p    *rundir.Process
		want string
	}{
		"itself":             {&here, ""},
		"not said":           {nil, ""},
		"another machine":    {other(func(p *rundir.Process) { p.Host, p.Start = "elsewhere", "1" }), ""},
		"the number again":   {other(func(p *rundir.Process) { p.Start = "1" }), "is gone"},
		"ended":              {other(func(p *rundir.Process) { p.PID = ended.Process.Pid }), "is gone"},
		"before the restart": {other(func(p *rundir.Process) { p.Boot = "x" }), "started again"},
	} {
		if got := whyGone(c.p, here); got != c.want && (c.want == "" || !strings.Contains(got, c.want)) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestStopWhatCannotBe(t *testing.T) {
	out := t.TempDir()
	create := func(name string, p rundir.Process) *rundir.Writer {
		w, err := rundir.Create(filepath.Join(out, name), rundir.Manifest{Started: time.Now(), Process: &p}, []byte("name: x\n"))
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	if err := create("done", thisProcess()).Finish(rundir.Summary{Verdict: rundir.Missed}, nil); err != nil {
		t.Fatal(err)
	}
	gone := thisProcess()
	gone.Start = "1"
	create("crashed", gone)
	if err := os.Symlink("done", filepath.Join(out, "latest")); err != nil {
		t.Fatal(err)
	}
	for run, c := range map[string]struct {
		code int
		say  string
	}{
		"latest":                      {ExitPassed, "done has ended already: missed"}, // and not "latest has"
		"done":                        {ExitPassed, "done has ended already: missed"},
		filepath.Join(out, "done"):    {ExitPassed, "done has ended already: missed"},
		"crashed":                     {ExitTarget, "crashed does not go on: its process"},
		"nothing":                     {ExitUsage, "-stop: "},
		filepath.Join(out, "nothing"): {ExitUsage, "want a run directory, or its name under -out"},
	} {
		var stdout, stderr bytes.Buffer
		code := Run(t.Context(), Program{Args: []string{"-stop", run, "-out", out}, Env: os.Environ(), Stdout: &stdout, Stderr: &stderr})
		if said := stdout.String() + stderr.String(); code != c.code || !strings.Contains(said, c.say) {
			t.Errorf("%s: exit %d, %q; want %d and %q", run, code, said, c.code, c.say)
		}
	}
	if _, err := os.Stat(filepath.Join(out, "crashed", "stop")); err == nil {
		t.Error("a run that does not go on was asked to stop")
	}
}

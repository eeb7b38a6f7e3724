package app

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"imbench/reports/rundir"
)

// JUnit and Markdown hold all runs so far, benchstat's file grows; what cannot be written is said before the run.
func TestOutputs(t *testing.T) {
	dir := t.TempDir()
	name := func(s string) string { return filepath.Join(dir, s) }
	if err := os.WriteFile(name("bench.txt"), []byte("old\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	o := outputOptions{junit: name("a.xml"), markdown: name("a.md"), benchstat: name("bench.txt"), runs: new([]rundir.Run)}
	if err := o.check(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(name("a.xml")); err == nil {
		t.Error("the check leaves a file behind")
	}
	for _, run := range []string{"one", "two"} {
		s := rundir.Summary{Run: run, Scenario: "x", Verdict: rundir.Passed, Offered: 5}
		if err := o.write(rundir.Run{Summary: s}); err != nil {
			t.Fatal(err)
		}
	}
	for file, want := range map[string][]string{"a.xml": {`<testsuite name="one"`, `<testsuite name="two"`}, "a.md": {"### one: PASSED", "### two: PASSED"},
		"bench.txt": {"old\n", "BenchmarkX/load 5"}} {
		b, err := os.ReadFile(name(file))
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range want {
			if strings.Count(string(b), w) != map[bool]int{true: 2, false: 1}[strings.HasPrefix(w, "Bench")] {
				t.Errorf("%s: %q is not there as often as it should:\n%s", file, w, b)
			}
		}
	}
	if left, _ := filepath.Glob(name(".*")); len(left) != 0 {
		t.Errorf("left over: %v", left)
	}
	o = outputOptions{junit: name("none/a.xml")}
	if err := o.check(); err == nil || !strings.Contains(err.Error(), "-junit "+o.junit+": cannot be written: no such file or directory") {
		t.Errorf("a folder that is not there: %v", err)
	}
	if err := put("/dev/full", true, func(w io.Writer) error { _, err := w.Write([]byte("x")); return err }); err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("a full disk: %v", err)
	}
}

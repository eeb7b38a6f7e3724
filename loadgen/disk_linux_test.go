package main

import (
	"strings"
	"syscall"
	"testing"

	"imbench/loadgen/internal/app"
	"imbench/reports/rundir"
)

// A disk that becomes full in mid-run ends the load with a sentence that names the file; what was written before can be
// read, and the run has no verdict.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	disk := t.TempDir()
	if err := syscall.Mount("none", disk, "tmpfs", 0, "size=160k"); err != nil {
		t.Skipf("a small disk needs more rights than this user has: %v", err)
	}
	defer func() {
		if err := syscall.Unmount(disk, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	r := start(t, strings.Replace(tiny, "measure: 2s", "measure: 10m", 1), "-out", disk)
	code := r.wait()
	if said := r.log.String(); code != app.ExitError || !strings.Contains(said, "no space left on device") || !strings.Contains(said, "the run stays unfinished") {
		t.Errorf("exit %d\n%s", code, said)
	}
	d, err := rundir.Open(onlyRun(t, disk))
	if err != nil {
		t.Fatal(err)
	}
	lines, torn, err := d.Counters()
	if d.Finished() || torn || err != nil || len(lines) == 0 {
		t.Errorf("finished %v, %d lines, torn %v, %v", d.Finished(), len(lines), torn, err)
	}
}

// A disk that becomes full with the last files: what is printed does not call a run passed that was not kept, and says why once.
func TestFullDiskAtTheEnd(t *testing.T) {
	t.Parallel()
	disk := t.TempDir()
	if err := syscall.Mount("none", disk, "tmpfs", 0, "size=116k"); err != nil {
		t.Skipf("a small disk needs more rights than this user has: %v", err)
	}
	defer func() {
		if err := syscall.Unmount(disk, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	r := start(t, tiny, "-out", disk)
	code := r.wait()
	s, said := r.json.String(), r.log.String()
	if code != app.ExitError || !strings.Contains(s, `"verdict": "error"`) || strings.Count(said, "no space left on device") != 1 {
		t.Errorf("exit %d\n%s\n%.300s", code, said, s)
	}
}

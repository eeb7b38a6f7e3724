package rundir

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// tight is a disk with room for so many bytes.
type tight struct {
	room *int
	f    *os.File
}

func (d tight) Write(b []byte) (int, error) {
	n := min(len(b), *d.room)
	*d.room -= n
	wrote, err := d.f.Write(b[:n])
	if err == nil && n < len(b) {
		err = &os.PathError{Op: "write", Path: d.f.Name(), Err: syscall.ENOSPC}
	}
	return wrote, err
}
func (d tight) Truncate(n int64) error { return d.f.Truncate(n) }
func (d tight) Sync() error            { return nil }
func (d tight) Close() error           { return d.f.Close() }

// Wherever the disk becomes full, there is one error that names the file, no file has half a line, and the run stays
// unfinished.
func TestFullDisk(t *testing.T) {
	for room := 0; room < 9_000; room += 331 {
		left := room
		dir := filepath.Join(t.TempDir(), "run")
		w, err := create(dir, testManifest(), []byte("name: x\n"), func(path string) (file, error) {
			f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o644)
			return tight{&left, f}, err
		})
		var first error
		if err != nil {
			first = err
		} else {
			for i := range 3 {
				at := began.Add(time.Duration(i) * time.Second)
				for _, err := range []error{w.Counters(CounterLine{At: at}), w.Latency(Ack, at, at, histogram(5e6))} {
					if first == nil {
						first = err
					} else if !errors.Is(err, first) {
						t.Fatalf("room %d: another error after the first: %v", room, err)
					}
				}
			}
			if err := w.Finish(testSummary(), nil); first == nil {
				first = err
			} else if !errors.Is(err, first) {
				t.Fatalf("room %d: Finish gives %v after %v", room, err, first)
			}
		}
		if first == nil {
			if room < 3000 {
				t.Fatalf("room %d was enough", room)
			}
			continue
		}
		var we *WriteError
		if !errors.As(first, &we) || !errors.Is(first, syscall.ENOSPC) || !strings.Contains(first.Error(), we.File) {
			t.Fatalf("room %d: %v", room, first)
		}
		for _, name := range []string{CountersFile, LatencyFile} {
			if b, err := os.ReadFile(filepath.Join(dir, name)); err == nil && len(b) > 0 && b[len(b)-1] != '\n' {
				t.Fatalf("room %d: %s ends in half a line", room, name)
			}
		}
		if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) != 0 {
			t.Fatalf("room %d: left over: %v", room, left)
		}
		if r, err := Open(dir); err == nil && r.Finished() {
			t.Fatalf("room %d: finished in spite of %v", room, first)
		} else if err == nil {
			if list, torn, err := r.Counters(); err != nil || torn || we.File == CountersFile && int64(len(list)) != we.Lines {
				t.Fatalf("room %d: %d lines kept, %v said %d (%v)", room, len(list), we.File, we.Lines, err)
			}
		}
	}
}

// unsynced is a file whose bytes the disk refuses when they are flushed.
type unsynced struct{ *os.File }

func (unsynced) Sync() error { return syscall.EIO }

// What the disk refuses at the last moment is found before the run is called finished.
func TestFlushFails(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	w, err := create(dir, testManifest(), nil, func(path string) (file, error) {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o644)
		if filepath.Base(path) == CountersFile {
			return unsynced{f}, err
		}
		return f, err
	})
	must(t, err, w.Counters(CounterLine{At: began}))
	if err := w.Finish(testSummary(), nil); !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), CountersFile) {
		t.Errorf("%v", err)
	}
	if r, err := Open(dir); err != nil || r.Finished() {
		t.Errorf("finished, or unreadable: %v", err)
	}
}

func TestFullDiskSentence(t *testing.T) {
	err := &WriteError{Dir: "runs/x", File: CountersFile, Lines: 12, Err: &os.PathError{Op: "write", Path: "/p", Err: syscall.ENOSPC}}
	want := "cannot write runs/x/counters.ndjson: no space left on device; its first 12 lines and the other files are kept, " +
		"the run stays unfinished"
	if err.Error() != want {
		t.Errorf("%v", err)
	}
}

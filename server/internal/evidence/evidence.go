// Package evidence runs the named checks: what a check expects stands beside what was observed, and beside a control, the
// same observation of a system that was broken on purpose. A check that has never been seen to fail proves nothing.
//
// A check is run by a test (Run, in `go test`), which fails when the check does, or when its control passes. With the
// variable IMBENCH_EVIDENCE set, each check also leaves a record in that directory; the command evidence/verify runs
// all of them, merges the records into a file a chapter, and prints the table of the checks and the matrix of what they
// prove. The catalogue knows every check, so that one that is missing shows.
//
// Run may be called from several tests at once.
package evidence

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// DirVar names the environment variable that says where the records go; unset, there are none.
const DirVar = "IMBENCH_EVIDENCE"

// Check is one named check. Observe describes what it saw in a line of text, which is compared with Expected; further
// lines are measurements that belong in the record and are not compared. It uses t for faults of the set-up only.
type Check struct {
	ID       string // as in the catalogue
	Expected string // "" for an observation: it is recorded and not judged
	Document string // the figure that the source documents name, if they name one
	Observe  func(t *testing.T) string
	Control  Control // an observation has none
	Postgres string  // the version, if it runs on a PostgreSQL of its own
	NotRun   string  // why it cannot be run on this machine; it is then recorded as not run
}

// Control is the same observation under which the check must fail.
type Control struct {
	Is      string // what is done to break it
	Observe func(t *testing.T) string
}

// Record is what a check leaves. Seconds are those of the check, without its control.
type Record struct {
	ID         string         `json:"id"`
	Invariants []string       `json:"invariants"`
	Expected   string         `json:"expected,omitempty"`
	Observed   string         `json:"observed"`
	Measured   []string       `json:"measured,omitempty"`
	Document   string         `json:"document,omitempty"`
	Judged     bool           `json:"judged"` // false for an observation
	Pass       bool           `json:"pass"`   // an observation passes when it was made
	Control    *ControlRecord `json:"control,omitempty"`
	NotRun     string         `json:"not_run,omitempty"` // why; there is nothing observed then
	Seconds    float64        `json:"seconds"`
	Postgres   string         `json:"postgres,omitempty"`
	Revision   string         `json:"revision,omitempty"`
}

// ControlRecord says what the broken system showed. Failed is as it should be: the check fails on it.
type ControlRecord struct {
	Is       string   `json:"is"`
	Observed string   `json:"observed"`
	Measured []string `json:"measured,omitempty"`
	Failed   bool     `json:"failed"`
}

// Good says whether the record is what `make verify` wants to see.
func (r *Record) Good() bool { return r.Pass && (r.Control == nil || r.Control.Failed) }

var postgresVersion atomic.Pointer[string]

// UsePostgres notes the version of the database that this process's checks run on, for their records.
func UsePostgres(version string) { postgresVersion.Store(&version) }

// Run runs a check and its control as the parallel subtest named by the check's id. The check's own subtest has ended,
// with all that it started, before the control's begins.
func Run(t *testing.T, c Check) {
	t.Run(c.ID, func(t *testing.T) {
		t.Parallel()
		if err := c.valid(); err != nil {
			t.Fatal(err)
		}
		r := Record{ID: c.ID, Expected: c.Expected, Document: c.Document, Judged: c.Expected != ""}
		if e, ok := find(c.ID); ok {
			r.Invariants = e.Proves
		}
		if v := postgresVersion.Load(); v != nil {
			r.Postgres = cmp.Or(c.Postgres, *v)
		}
		if r.NotRun = c.NotRun; c.NotRun == "" {
			c.run(t, &r)
		} else {
			t.Log("it is not run here: " + c.NotRun)
		}
		if err := r.save(os.Getenv(DirVar)); err != nil {
			t.Error(err)
		}
	})
}

func (c *Check) valid() error {
	e, ok := find(c.ID)
	switch {
	case !ok:
		return fmt.Errorf("%s is not in the catalogue", c.ID)
	case c.Observe == nil:
		return fmt.Errorf("%s observes nothing", c.ID)
	case e.Observation != (c.Expected == ""):
		return fmt.Errorf("%s: only what the catalogue calls an observation expects nothing", c.ID)
	case e.Observation != (c.Control.Observe == nil), e.Observation != (c.Control.Is == ""):
		return fmt.Errorf("%s: every check but an observation has a control", c.ID)
	}
	return nil
}

func (c *Check) run(t *testing.T, r *Record) {
	began := time.Now()
	seen, ok := observe(t, "check", c.Observe)
	r.Seconds = time.Since(began).Seconds()
	r.Observed, r.Measured = split(seen)
	r.Pass = ok && (!r.Judged || r.Observed == c.Expected)
	if ok && !r.Pass {
		t.Errorf("observed %q\nexpected %q", r.Observed, c.Expected)
	}
	if c.Control.Observe == nil {
		return
	}
	seen, ok = observe(t, "control", c.Control.Observe)
	r.Control = &ControlRecord{Is: c.Control.Is}
	r.Control.Observed, r.Control.Measured = split(seen)
	r.Control.Failed = ok && r.Control.Observed != c.Expected
	if ok && !r.Control.Failed {
		t.Errorf("the check passes although %s: %q", c.Control.Is, r.Control.Observed)
	}
}

// observe runs one half in a subtest of its own; false means that its set-up failed, and that it showed nothing.
func observe(t *testing.T, name string, f func(*testing.T) string) (seen string, ok bool) {
	seen = "nothing: the set-up failed"
	ok = t.Run(name, func(t *testing.T) { seen = f(t) })
	return seen, ok
}

func split(seen string) (first string, rest []string) {
	lines := strings.Split(seen, "\n")
	return lines[0], lines[1:]
}

// save writes the record into dir, if there is one, as a file that appears whole.
func (r *Record) save(dir string) error {
	if dir == "" {
		return nil
	}
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	name := filepath.Join(dir, r.ID+".json")
	if err := os.WriteFile(name+".part", text, 0o644); err != nil {
		return err
	}
	return os.Rename(name+".part", name)
}

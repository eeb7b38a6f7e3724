package page

import (
	"errors"
	"fmt"
	"os"

	"imbench/reports/internal/figure"
	"imbench/reports/rundir"
)

// Run is all that a report shows of a run directory.
type Run struct {
	Manifest  rundir.Manifest
	Summary   rundir.Summary
	Ledger    *rundir.Ledger // nil = the run left none
	Series    map[string]*rundir.Series
	Counters  []rundir.CounterLine
	Processes []rundir.ProcessLine
	Server    []rundir.ServerLine
	Events    []rundir.EventLine
	Scenario  []byte
	Torn      []string // files whose last line was incomplete
}

// Read reads a finished run. It fails with rundir.ErrUnfinished for any other, and for files that cannot be read.
func Read(r *rundir.Reader) (*Run, error) {
	run := &Run{Manifest: r.Manifest()}
	var err error
	if run.Summary, err = r.Summary(); err != nil {
		return nil, err
	}
	if run.Scenario, err = r.Scenario(); err != nil {
		return nil, err
	}
	ledger, err := r.Ledger()
	switch {
	case err == nil:
		run.Ledger = &ledger
	case !errors.Is(err, os.ErrNotExist):
		return nil, err
	}
	if run.Series, err = r.Histograms(); err != nil {
		return nil, fmt.Errorf("%s: %w", r.Dir(), err)
	}
	torn := func(name string, is bool, e error) {
		if is {
			run.Torn = append(run.Torn, name)
		}
		err = errors.Join(err, e)
	}
	var is bool
	var e error
	run.Counters, is, e = r.Counters()
	torn(rundir.CountersFile, is, e)
	run.Processes, is, e = r.Processes()
	torn(rundir.ProcessesFile, is, e)
	run.Server, is, e = r.Server()
	torn(rundir.ServerFile, is, e)
	run.Events, is, e = r.Events()
	torn(rundir.EventsFile, is, e)
	return run, err
}

// timeline is the axis of the figures over time.
func (r *Run) timeline() figure.Timeline {
	t := figure.Timeline{Started: r.Manifest.Started, Phases: r.Manifest.Phases}
	if r.Manifest.Window != nil {
		t.Window = *r.Manifest.Window
	}
	for _, f := range r.Summary.Faults {
		x := figure.Fault{Name: f.Fault, From: f.AtS, To: f.AtS}
		if f.TookS != nil {
			x.To += *f.TookS
		}
		if f.HealedS != nil {
			x.Healed = f.AtS + *f.HealedS
		}
		t.Faults = append(t.Faults, x)
	}
	return t
}

package app

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"imbench/loadgen/internal/clock"
	"imbench/loadgen/internal/fleet"
	"imbench/reports/rundir"
)

const (
	stopPoll  = 250 * time.Millisecond // how often a run looks whether it is to end, and -stop whether it has
	stopLimit = 2 * time.Minute        // the longest that -stop waits: a run that stops proves nothing, but still writes its results
)

// obeyStop gives a context that ends with an *ended when loadgen -stop asks for it; release ends the asking.
func (r *runner) obeyStop(ctx context.Context) (obeying context.Context, release func()) {
	obeying, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(stopPoll)
		defer tick.Stop()
		for {
			select {
			case <-obeying.Done():
				return
			case <-tick.C:
				if r.out.StopRequested() {
					r.event("stop", "loadgen -stop", "")
					cancel(&ended{rundir.Interrupted, "the run was stopped by loadgen -stop; what was measured up to then is kept"})
					return
				}
			}
		}
	}()
	return obeying, func() { cancel(nil); <-done }
}

// stop ends the run of another process, and waits until it has ended.
func stop(ctx context.Context, p Program, o options) (int, error) {
	d, err := openRun(o)
	if err != nil {
		return ExitUsage, &exitError{ExitUsage, fmt.Errorf("-stop: %w; want a run directory, or its name under -out", err)}
	}
	name := filepath.Base(d.Dir())
	if real, err := filepath.EvalSymlinks(d.Dir()); err == nil { // of runs/latest
		name = filepath.Base(real)
	}
	if d.Finished() {
		fmt.Fprintf(p.Stdout, "%s has ended already: %s\n", name, d.Manifest().Verdict)
		return ExitPassed, nil
	}
	gone := whyGone(d.Manifest().Process, thisProcess())
	if gone != "" && d.Manifest().Population.Brought != "" {
		return ExitTarget, fail(ExitTarget, "%s does not go on: %s; it created nothing that would have to be removed", name, gone)
	}
	if gone != "" {
		return ExitTarget, fail(ExitTarget, "%s does not go on: %s; loadgen -cleanup %s removes its population from a target", name, gone,
			d.Manifest().Population.Namespace)
	}
	if err := rundir.RequestStop(d.Dir()); err != nil {
		return ExitError, fmt.Errorf("-stop: %w", err)
	}
	return awaitEnd(ctx, p, d.Dir(), name)
}

// awaitEnd waits until a run is finished.
func awaitEnd(ctx context.Context, p Program, dir, name string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, stopLimit)
	defer cancel()
	defer sayElapsed(p.Stderr, "stopping "+name)()
	for {
		if d, err := rundir.Open(dir); err == nil && d.Finished() {
			fmt.Fprintf(p.Stdout, "%s has ended: %s\n", name, d.Manifest().Verdict)
			return ExitPassed, nil
		} else if err == nil {
			if gone := whyGone(d.Manifest().Process, thisProcess()); gone != "" {
				return ExitTarget, fail(ExitTarget, "%s broke off: %s", name, gone)
			}
		}
		if clock.Pause(ctx, stopPoll) != nil {
			return ExitTarget, fail(ExitTarget, "%s was asked to end and has not", name)
		}
	}
}

// openRun finds the directory that -stop names.
func openRun(o options) (*rundir.Reader, error) {
	d, err := rundir.Open(o.staging.stop)
	if err != nil && !strings.ContainsRune(o.staging.stop, filepath.Separator) {
		return rundir.Open(filepath.Join(o.out, o.staging.stop))
	}
	return d, err
}

// thisProcess is what a run directory says of who writes it.
func thisProcess() rundir.Process {
	p := rundir.Process{PID: os.Getpid(), Start: startOf(os.Getpid()), Boot: fleet.BootID()}
	p.Host, _ = os.Hostname()
	return p
}

// startOf is when a process began, in the system's ticks since the boot; "" if there is none, or no way to know.
func startOf(pid int) string {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return ""
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:]) // the name before it may hold spaces
	if len(fields) < 20 {
		return ""
	}
	return string(fields[19]) // field 22 of proc(5)
}

// whyGone says why the process that wrote a directory is not there any more; "" if it is, or if that cannot be known here.
func whyGone(p *rundir.Process, here rundir.Process) string {
	switch {
	case p == nil || p.Host != here.Host || here.Start == "":
		return "" // another machine, or a system without /proc
	case p.Boot != here.Boot:
		return "the machine was started again since"
	case startOf(p.PID) != p.Start:
		return fmt.Sprintf("its process, %d, is gone", p.PID)
	}
	return ""
}

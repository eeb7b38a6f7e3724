package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"imbench/loadgen/internal/driver"
	"imbench/loadgen/protocol"
	"imbench/reports/rundir"
)

// finish proves, judges, writes and prints.
func (r *runner) finish(ctx context.Context, result driver.Result, runErr error) (int, error) {
	led, err := r.prove(ctx, result, runErr)
	if err != nil {
		runErr = errors.Join(runErr, err)
	}
	measured, err := r.rec.Finish()
	if err != nil {
		runErr = errors.Join(runErr, err)
	}
	s := rundir.Summary{Run: filepath.Base(r.dir), Scenario: r.scenario.Name, NominalAck: float64(r.scenario.Devices.AckEvery), Ledger: led.LedgerSummary}
	measured.Fill(&s)
	s.Counted.Ours, s.Counted.Unresolved = s.Counted.Ours+led.Committed, led.Unresolved
	s.Counted.Explain()
	r.tellBrought(&s, led)
	s.Predictions = compare(recount(r.scenario, r.plan, r.predictions.Predictions, measured.Metrics), measured.Measured)
	r.tellFaults(&s, measured)
	r.tellCalibration(&s)
	r.askPrometheus(ctx, &s)
	s.Notes = append(s.Notes, led.Notes...)
	if planned := r.scenario.Phases.Measure; s.WindowS > 0 && s.WindowS < planned.Seconds() {
		measured := time.Duration(s.WindowS * float64(time.Second)).Round(100 * time.Millisecond)
		s.Notes = append(s.Notes, fmt.Sprintf("measured %v of the %v that were planned; planned figures are those of the whole", measured, planned))
	}
	r.shared.tell(&s)
	var early *ended
	if errors.As(runErr, &early) {
		runErr = nil
	}
	judge(&s, r.scenario.Criteria, outcome{err: runErr, early: early, interrupted: result.Interrupted && runErr == nil, settled: result.Settled, lost: r.shared.lost, sendLimitMS: sendLimit(r.scenario.Criteria)})
	code := exitCode(s.Verdict)
	if s.Verdict == rundir.Error {
		code = errorExit(runErr)
	}
	if err := errors.Join(r.out.Ledger(led), r.out.Finish(s, func(m *rundir.Manifest) { r.complete(m, result) })); err != nil && runErr == nil {
		runErr = first(err) // the writer says the same of each file after the one that failed
		code = ExitError
		s.Verdict, s.Reasons = rundir.Error, []string{runErr.Error()} // what is printed must not pass what was not kept
	}
	if err := r.options.outputs.write(r.told(s)); err != nil && runErr == nil {
		runErr, code = err, ExitError
	}
	r.link()
	r.onEnd(s.Verdict, code)
	if r.summary = &s; r.series != nil {
		return code, runErr
	}
	return code, errors.Join(runErr, r.print(s))
}

// told is the run as other tools are told of it.
func (r *runner) told(s rundir.Summary) rundir.Run {
	s.Run, s.Scenario = filepath.Base(r.dir), r.scenario.Name
	return rundir.Run{Manifest: r.out.Current(), Summary: s}
}

// errorExit: a target that was lost or does not let all devices in is 3, too few ports for the devices 2, anything else 1.
func errorExit(err error) int {
	var target *driver.TargetError
	var connect *driver.ConnectError
	var ee *exitError
	var ports *protocol.PortsError
	switch {
	case errors.As(err, &ee):
		return ee.code
	case errors.As(err, &ports):
		return ExitUsage // as with open files: more is asked for than this machine has
	}
	if errors.As(err, &target) || errors.As(err, &connect) {
		return ExitTarget
	}
	return ExitError
}

// print shows the result: a table for a person, or the summary as JSON and nothing else.
func (r *runner) print(s rundir.Summary) error {
	if r.options.json {
		b, err := json.MarshalIndent(s, "", "  ")
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(r.program.Stdout, "%s\n", b)
		return err
	}
	if err := rundir.RenderSummary(r.program.Stdout, s, textWidth(r.program.Stdout)); err != nil {
		return err
	}
	_, err := fmt.Fprintf(r.program.Stdout, "\n%s\n", r.dir)
	return err
}

// link points runs/latest at this run; a file system without symbolic links does without.
func (r *runner) link() {
	latest := filepath.Join(r.options.out, "latest")
	aside := latest + ".part"
	_ = os.Remove(aside)
	if os.Symlink(filepath.Base(r.dir), aside) == nil {
		_ = os.Rename(aside, latest)
	}
}

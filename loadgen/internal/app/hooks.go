package app

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"imbench/reports/rundir"
)

// hookEnv is what the commands of -on-start and -on-end are told besides this process's own environment.
func (r *runner) hookEnv() []string {
	return []string{
		"IMBENCH_RUN=" + r.dir,
		"IMBENCH_RUN_ID=" + fmt.Sprintf("%08x", r.runID),
		"IMBENCH_SCENARIO=" + r.scenario.Name,
		"IMBENCH_NAMESPACE=" + r.pop.Namespace,
		"IMBENCH_TARGETS=" + strings.Join(r.env.targets, ","),
	}
}

// onStart runs the command of -on-start before the load. One that fails keeps the load from beginning: an alert that is not
// silenced wakes someone.
func (r *runner) onStart(ctx context.Context) error {
	line := r.options.staging.onStart
	if line == "" {
		return nil
	}
	said, err := shell(ctx, r.hookEnv(), line)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fail(ExitError, "-on-start failed, so no load was made: %v", err)
	}
	r.event("command", "-on-start", said)
	return nil
}

// onEnd runs the command of -on-end once the run directory is complete, also after Ctrl-C. What it fails with is told and
// changes nothing.
func (r *runner) onEnd(verdict rundir.Verdict, code int) {
	line := r.options.staging.onEnd
	if line == "" {
		return
	}
	env := append(r.hookEnv(), "IMBENCH_VERDICT="+string(verdict), "IMBENCH_EXIT="+strconv.Itoa(code))
	if _, err := shell(context.Background(), env, line); err != nil {
		r.say("loadgen: -on-end failed: %v", err)
	}
}

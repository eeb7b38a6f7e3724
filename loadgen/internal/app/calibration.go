package app

import (
	"context"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"time"

	"imbench/loadgen/internal/calibrate"
	"imbench/model/capacity"
	"imbench/reports/rundir"
)

const (
	// A run shorter than this is a trial, whose latencies nobody quotes: it is not calibrated unless that is asked for.
	calibrateFrom = 30 * time.Second
	// Above this share of what the generator can do at most, a run carries a note.
	nearCeiling = 0.7
)

// calibrateFlag is -calibrate: yes, no, or not given.
type calibrateFlag struct{ given, value bool }

func (c *calibrateFlag) define(fs *flag.FlagSet) {
	fs.Var(c, "calibrate", "measure for some three seconds before the run what the generator itself can do (default: for runs of "+
		"at least 30 s; -calibrate=false never)")
}

// String implements flag.Value.
func (c *calibrateFlag) String() string { return "" }

// Set implements flag.Value.
func (c *calibrateFlag) Set(s string) (err error) {
	c.given = true
	if c.value, err = strconv.ParseBool(s); err != nil {
		return fmt.Errorf("want true or false")
	}
	return nil
}

// IsBoolFlag lets -calibrate stand alone.
func (c *calibrateFlag) IsBoolFlag() bool { return true }

// calibrate measures the generator before anything else runs. That it could not is no reason not to run; it is noted.
func (r *runner) calibrate(ctx context.Context) {
	if !r.calibrates() {
		return
	}
	r.say("calibrating the generator against a null server%s", r.shared.each())
	cfg := calibrate.Config{Rate: float64(r.scenario.Load.GroupRate+r.scenario.Load.DirectRate) * modelFactor(r.scenario), BodyBytes: r.scenario.Load.BodyBytes}
	for _, p := range r.predictions.Predictions {
		if p.Name == capacity.Deliveries {
			cfg.Fanout = p.Predicted
			if p.Planned != nil {
				cfg.Fanout = *p.Planned
			}
		}
	}
	run := calibrate.Run
	if r.shared.fleet != nil {
		run = r.shared.calibrate
	}
	c, err := run(ctx, cfg)
	if err != nil {
		r.calibrationNote = fmt.Sprintf("the generator could not be calibrated: %v", err)
		r.say("%s", r.calibrationNote)
		return
	}
	r.calibrated(&c.Calibration)
}

func (r *runner) calibrates() bool {
	if c := r.options.calibrate; c.given {
		return c.value
	}
	return r.scenario.Phases.Measure >= calibrateFrom
}

// calibrated keeps what was found.
func (r *runner) calibrated(c *rundir.Calibration) {
	r.calibration = c
	if c.OfferedShare > nearCeiling {
		r.calibrationNote = fmt.Sprintf("the run's rate is %.0f %% of what the generator can do on this machine, %.0f messages a second with %d receivers each: its latencies have a part in the result",
			100*c.OfferedShare, c.MixSendsPerS, c.Fanout)
		return
	}
	var near []string
	for _, w := range c.Workers { // some may be slower than the others
		if w.OfferedShare > nearCeiling {
			near = append(near, fmt.Sprintf("the share of %s is %.0f %% of what it can do, %.0f messages a second with %d receivers each: its latencies have a part in the result",
				w.Name, 100*w.OfferedShare, w.MixSendsPerS, c.Fanout))
		}
	}
	r.calibrationNote = strings.Join(near, "; ")
}

// tellCalibration puts it into the summary.
func (r *runner) tellCalibration(s *rundir.Summary) {
	s.Calibration = r.calibration
	if r.calibrationNote != "" {
		s.Notes = append(s.Notes, r.calibrationNote)
	}
}

package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"time"

	"imbench/loadgen/internal/driver"
	"imbench/loadgen/internal/limits"
	"imbench/loadgen/internal/scenario"
	"imbench/loadgen/internal/series"
	"imbench/reports/rundir"
)

// campaign is a series of runs: what -repeat, -ab and -search have in common. It belongs to one goroutine.
//
// Each run has an embedded stack of its own, started afresh and removed after it: the runs are then independent, which the
// intervals assume, and none finds the dead rows, the larger tables or the warm caches of the one before. That costs one to
// three seconds of the half minute and more that a run takes. A target stays as it is, and each run's population is removed
// from it.
type campaign struct {
	program Program
	options options
	base    *scenario.Scenario // with the command line's settings
	dir     string
	head    rundir.SeriesHead
	codes   map[rundir.Verdict]int // exit code of the last run with that verdict
	file    string
	text    func(io.Writer, int) error
	doc     func() any

	hopeless string // of a search: why no rate holds; empty = not known
}

// runSeries makes the runs that the flags ask for, and says what came of them.
func runSeries(ctx context.Context, p Program, o options, sc *scenario.Scenario) (int, error) {
	c := &campaign{program: p, options: o, base: sc, codes: map[rundir.Verdict]int{}}
	switch {
	case o.series.search:
		return c.search(ctx)
	case o.series.ab != "":
		return c.compare(ctx)
	}
	return c.repeat(ctx)
}

// begin makes the series' directory.
func (c *campaign) begin(kind, file string, doc func() any, text func(io.Writer, int) error) error {
	if err := writable(c.options.out); err != nil {
		return err
	}
	now := time.Now().UTC()
	c.dir = filepath.Join(c.options.out, c.base.Name+"-"+kind+"-"+now.Format("20060102T150405Z"))
	if err := os.Mkdir(c.dir, 0o755); err != nil {
		return fail(ExitError, "the directory of the series: %w", err)
	}
	c.head = rundir.SeriesHead{Format: rundir.SeriesFormat, Kind: kind, Scenario: c.base.Name, Started: now, Revision: c.program.Revision,
		Command: append([]string{"loadgen"}, withoutPasswords(c.program.Args)...)}
	c.file, c.doc, c.text = file, doc, text
	return c.save()
}

// save writes the document as it stands, so that a series that dies leaves what it had.
func (c *campaign) save() error { return rundir.WriteSeries(c.dir, c.file, c.doc()) }

// end completes the document and prints the result.
func (c *campaign) end() (int, error) {
	now := time.Now().UTC()
	c.head.Ended = &now
	err := c.save()
	if c.options.json {
		b, jerr := json.MarshalIndent(c.doc(), "", "  ")
		if jerr == nil {
			_, jerr = fmt.Fprintf(c.program.Stdout, "%s\n", b)
		}
		err = errors.Join(err, jerr)
	} else {
		err = errors.Join(err, c.text(c.program.Stdout, textWidth(c.program.Stdout)))
		_, perr := fmt.Fprintf(c.program.Stdout, "%s\n", c.dir)
		err = errors.Join(err, perr)
	}
	code := exitCode(c.head.Verdict)
	if known, ok := c.codes[c.head.Verdict]; ok {
		code = known
	}
	if err != nil && !readerGone(err) && code == ExitPassed {
		code = ExitError
	}
	return code, err
}

func (c *campaign) say(format string, args ...any) {
	fmt.Fprintf(c.program.Stderr, format+"\n", args...)
}

// vary is the scenario with further settings, checked as -set checks them.
func (c *campaign) vary(o options, set ...string) (*scenario.Scenario, error) {
	all := slices.Clone(o.set)
	if o.seed.set {
		all = append(all, seedSetting(o.seed.value))
	}
	sc, err := c.base.Again(append(all, set...)...)
	if err != nil {
		return nil, &exitError{ExitUsage, err}
	}
	return sc, checkUsage(errors.Join(checkFaults(sc, o), spare(sc, o), checkShared(sc, o)))
}

func checkUsage(err error) error {
	if err == nil {
		return nil
	}
	return &exitError{ExitUsage, err}
}

func seedSetting(seed uint64) string { return "seed=" + strconv.FormatUint(seed, 10) }

// seed is that of the i-th run, or pair, from 0.
func (c *campaign) seed(i int) uint64 {
	if c.options.series.sameSeed {
		return c.base.Seed
	}
	return c.base.Seed + uint64(i)
}

// ran is one run of the series.
type ran struct {
	rundir.SeriesRun
	code    int
	loaded  bool            // the load had begun
	summary *rundir.Summary // nil if there is nothing to judge
	watch   *seriesWatch
	told    map[string]any // a gateway's limits, as it told them
	plan    string         // digest of the arrivals
}

// one makes a run. Its error is told and is in the verdict and its reasons; only a mistake of the caller's comes back.
func (c *campaign) one(ctx context.Context, o options, sc *scenario.Scenario, settings []string) (ran, error) {
	o.out = c.dir
	r := &runner{program: c.program, options: o, scenario: sc, series: &seriesWatch{}}
	code, err := r.run(ctx)
	var ee *exitError
	if errors.As(err, &ee) {
		code = ee.code
	} else if err != nil && code == ExitPassed {
		code = ExitError
	}
	x := ran{SeriesRun: rundir.SeriesRun{Seed: sc.Seed, Settings: settings, Verdict: rundir.Error}, code: code, loaded: r.series.loaded,
		summary: r.summary, watch: r.series}
	if r.plan != nil {
		x.plan = r.plan.Digest()
	}
	if r.env != nil {
		x.told = r.env.info.Limits
	}
	if r.dir != "" {
		x.Run = filepath.Base(r.dir)
	}
	switch {
	case err != nil && (ctx.Err() != nil || code == ExitInterrupted): // Ctrl-C, or loadgen -stop before the load
		x.Verdict, x.Reasons = rundir.Interrupted, []string{err.Error()}
	case err != nil:
		x.Reasons = []string{err.Error()}
	default:
		x.Verdict, x.Reasons, x.Counted = r.summary.Verdict, r.summary.Reasons, series.Counted(r.summary.Verdict)
	}
	c.codes[x.Verdict] = code
	debug.FreeOSMemory() // the next run begins with the memory that a first one has
	if code == ExitUsage {
		return x, err
	}
	return x, nil
}

// stops says whether a series ends with a run of this verdict: Ctrl-C, an error, or a target that asked for mercy.
func stops(v rundir.Verdict) bool {
	return v == rundir.Interrupted || v == rundir.Error || v == rundir.Aborted
}

// report tells how a run ended while the series goes on.
func (c *campaign) report(x ran, what string) {
	text := fmt.Sprintf("%s: %s", what, x.Verdict)
	if s := x.summary; s != nil && s.Offered > 0 {
		m := s.Metrics[rundir.SendIntended]
		text += fmt.Sprintf(", %.4g of %.4g messages/s, send p99 %.4g ms, deliver p99 %.4g ms", s.AchievedRate, s.OfferedRate, m.P99, s.Metrics[rundir.Deliver].P99)
	}
	c.say("%s", text)
	for _, reason := range x.Reasons {
		c.say("  %s", reason)
	}
}

// conclude sets the verdict of a series from its runs'.
func (c *campaign) conclude(wanted int, runs []rundir.SeriesRun) {
	var verdicts []rundir.Verdict
	uncounted := 0
	for i, x := range runs {
		verdicts = append(verdicts, x.Verdict)
		if !x.Counted {
			uncounted++
		}
		if x.Verdict != rundir.Passed {
			for _, reason := range x.Reasons {
				c.head.Reasons = append(c.head.Reasons, fmt.Sprintf("run %d: %s", i+1, reason))
			}
		}
	}
	c.head.Verdict, c.head.Complete = series.Worst(verdicts...), len(runs) == wanted
	if len(runs) < wanted {
		c.head.Reasons = append(c.head.Reasons, fmt.Sprintf("%d of %d runs were made", len(runs), wanted))
	}
	if uncounted > 0 {
		c.head.Reasons = append(c.head.Reasons, fmt.Sprintf("%d of %d runs do not count, and their figures are left out: they were not driven to their end honestly", uncounted, len(runs)))
	}
}

// seriesWatch looks at the machine at both ends of a run's measured window. Its methods do nothing on nil.
type seriesWatch struct {
	loaded   bool
	from, to limits.Look // none if it could not be read
}

// phase is told by the runner, one call at a time.
func (w *seriesWatch) phase(p driver.Phase) {
	if w == nil {
		return
	}
	switch p {
	case driver.Warmup:
		w.loaded = true
	case driver.Measure:
		w.from, _ = limits.Machine() // where there is no /proc/stat the figure is left out
	case driver.Tail:
		w.to, _ = limits.Machine()
	}
}

package app

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"imbench/loadgen/internal/behavior"
	"imbench/loadgen/internal/clock"
	"imbench/loadgen/internal/driver"
	"imbench/loadgen/internal/ledger"
	"imbench/loadgen/internal/population"
	"imbench/loadgen/internal/record"
	"imbench/loadgen/internal/scenario"
	"imbench/loadgen/protocol"
	"imbench/reports/rundir"
)

// runner is one run from the flags to the verdict. It belongs to one goroutine.
type runner struct {
	program  Program
	options  options
	scenario *scenario.Scenario

	profile *os.File // of -cpuprofile

	runID  uint32
	pop    *population.Population
	plan   *population.Plan
	env    *environment
	tokens map[string]string // of a population of the run's own

	brought brought // of one that was there before

	predictions rundir.Predictions
	expected    population.Expected

	dir    string
	out    *rundir.Writer
	rec    *record.Recorder
	ledger *ledger.Ledger
	live   driver.Counters
	reach  reached
	hands  driver.Control
	faults *injector // nil without faults
	watch  *watch    // nil without faults, or with workers

	calibration     *rundir.Calibration // nil = there was none
	calibrationNote string

	status *status
	phases []rundir.Phase
	// The measured window; 0 = not reached yet.
	windowFrom, windowTo clock.Time

	series  *seriesWatch    // nil for a run that stands alone; one of a series prints no summary
	summary *rundir.Summary // as it was written; nil before, and if there is nothing to judge

	loadFrom atomic.Int64 // clock.Time; 0 = no load now

	shared fleetRun // with workers
}

// say tells a person what takes time. Standard output is kept for the result.
func (r *runner) say(format string, args ...any) {
	w := r.program.Stderr
	if r.status != nil && r.status.terminal != nil {
		w = r.status.terminal // what is drawn makes room
	}
	fmt.Fprintf(w, format+"\n", args...)
}

// run plans, opens the environment, drives, and judges.
func (r *runner) run(ctx context.Context) (code int, err error) {
	if err := writable(r.options.out); err != nil {
		return ExitUsage, err
	}
	profile, err := profileFile(r.options.cpuProfile)
	if err != nil {
		return ExitUsage, err
	}
	r.profile = profile
	if err := r.prepare(); err != nil {
		return ExitUsage, err
	}
	err = r.gather(ctx)
	defer r.shared.release()
	if err != nil {
		return r.early(ctx, err)
	}
	if !r.options.brought.given() { // it needs the plan, which is to come
		r.calibrate(ctx)
	}
	r.env, err = openEnvironment(ctx, r.program, r.options, r.scenario)
	defer func() {
		if cerr := r.env.close(); cerr != nil && err == nil {
			code, err = ExitError, fmt.Errorf("stopping the embedded stack: %w", cerr)
		}
	}()
	if err != nil {
		return r.early(ctx, err)
	}
	if r.options.brought.given() {
		defer r.brought.release()
		if err := r.bring(ctx); err != nil {
			return r.early(ctx, err)
		}
		r.calibrate(ctx)
	}
	if err := r.createRunDir(); err != nil {
		return ExitError, err
	}
	r.say("results go to %s", r.dir) // the name that -stop takes
	defer r.removePopulation()
	ctx, release := r.obeyStop(ctx)
	defer release()
	if err := r.begin(ctx); err != nil {
		code, err := r.early(ctx, err)
		return code, r.abandon(ctx, err)
	}
	return r.drive(ctx)
}

// begin does what comes right before the load.
func (r *runner) begin(ctx context.Context) error {
	if !r.pop.Brought {
		if err := r.provision(ctx); err != nil {
			return err
		}
	}
	return r.onStart(ctx)
}

// prepare makes the plan; nothing outside this process is touched.
func (r *runner) prepare() error {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	r.runID = binary.BigEndian.Uint32(b[:])
	if r.options.brought.given() {
		return nil // who takes part is to be asked for
	}
	var err error
	if r.pop, err = population.Build(r.scenario, r.scenario.Seed, fmt.Sprintf("r%08x", r.runID)); err != nil {
		return &exitError{ExitUsage, err}
	}
	if r.plan, err = population.NewPlan(r.pop, r.scenario, r.scenario.Seed); err != nil {
		return &exitError{ExitUsage, err}
	}
	if n := r.expectedMessages(); n > 1e6 {
		r.say("planning about %.1f million messages", n/1e6)
	}
	if err := driver.CheckFiles(r.ownFiles()); err != nil {
		return &exitError{ExitUsage, err}
	}
	r.predictions, r.expected, err = predict(r.scenario, r.pop, r.plan)
	if err != nil {
		return &exitError{ExitUsage, err}
	}
	return nil
}

// expectedMessages is about how many the plan has.
func (r *runner) expectedMessages() float64 {
	l, all := r.scenario.Load, r.scenario.Phases.LoadTime()
	return float64(l.GroupRate+l.DirectRate) * l.MeanFactor(0, all) * all.Seconds()
}

// early names the end of a run before any load: Ctrl-C, or what went wrong.
func (r *runner) early(ctx context.Context, err error) (int, error) {
	var early *ended
	if ctx.Err() != nil && (context.Cause(ctx) == context.Canceled || errors.As(context.Cause(ctx), &early)) {
		return ExitInterrupted, fail(ExitInterrupted, "interrupted before the load began; nothing was measured")
	}
	return ExitError, err
}

// abandon closes a run directory in which there is nothing to judge: an error or an interruption before the load.
func (r *runner) abandon(ctx context.Context, err error) error {
	s := rundir.Summary{Verdict: rundir.Error, Reasons: []string{err.Error()}, Metrics: map[string]rundir.Metric{}}
	if ctx.Err() != nil {
		s.Verdict = rundir.Interrupted
	}
	err = errors.Join(err, r.out.Finish(s, nil), r.options.outputs.write(r.told(s)))
	r.onEnd(s.Verdict, errorExit(err))
	return err
}

func (r *runner) createRunDir() error {
	now := time.Now().UTC()
	r.dir = filepath.Join(r.options.out, r.scenario.Name+"-"+now.Format("20060102T150405Z"))
	src, err := r.scenario.Bytes()
	if r.pop.Brought {
		src, err = r.brought.source, nil
	}
	if err != nil {
		return err
	}
	for n := 2; ; n++ { // two runs in one second
		r.out, err = rundir.Create(r.dir, r.manifest(now), src)
		if !errors.Is(err, rundir.ErrExists) || n > 9 {
			break
		}
		r.dir = fmt.Sprintf("%s-%d", filepath.Join(r.options.out, r.scenario.Name+"-"+now.Format("20060102T150405Z")), n)
	}
	if err != nil {
		return err
	}
	return r.out.Predictions(r.predictions)
}

// provision creates the population and fetches the tokens of the devices that will connect.
func (r *runner) provision(ctx context.Context) error {
	r.say("creating %s, %s and %s as %s", many(len(r.pop.Users), "user"), many(len(r.pop.Devices), "device"), many(len(r.pop.Convs), "conversation"), r.pop.Namespace)
	r.event("phase", "provision", "")
	counts, err := r.env.admin.Provision(ctx, r.pop, r.options.staging.owner, r.lease())
	if err != nil {
		return &exitError{adminExit(err), err}
	}
	r.say("created in %.1f s: %s, %s", counts.Seconds, many(int(counts.Events), "event"), many(int(counts.Cursors), "cursor"))
	if r.env.stack != nil {
		if err := r.env.stack.Quieten(ctx); err != nil {
			return err
		}
	}
	var ids []string
	for _, d := range r.pop.Devices {
		if d.Connected {
			ids = append(ids, d.ID)
		}
	}
	if r.tokens, err = r.env.admin.Tokens(ctx, ids, r.lease()); err != nil {
		return &exitError{adminExit(err), err}
	}
	return r.out.Manifest(func(m *rundir.Manifest) { m.Population.CursorRows = int(counts.Cursors) })
}

// lease is how long the population may stay if this process dies: the run and an hour.
func (r *runner) lease() time.Duration {
	return r.scenario.Phases.LoadTime() + r.scenario.Phases.Settle + time.Hour
}

// removePopulation leaves a target, or a database that was there before, as it was found. A private database goes as a whole.
func (r *runner) removePopulation() {
	if r.options.keep || r.pop.Brought || r.env.stack != nil && r.options.database == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), cleanupLimit)
	defer cancel()
	r.say("removing the population %s", r.pop.Namespace)
	admin, err := r.env.liveAdmin(ctx)
	if err == nil {
		defer admin.Close()
		_, err = admin.Remove(ctx, r.pop.Namespace)
	}
	if err != nil && !errors.Is(err, population.ErrNoPopulation) {
		r.say("loadgen: the population %s was not removed (loadgen -cleanup does it later): %v", r.pop.Namespace, err)
	}
}

func (r *runner) event(kind, name, detail string) {
	// A failed write is remembered by the writer and told at the end of the run.
	_ = r.out.Event(rundir.EventLine{At: time.Now(), Kind: kind, Name: name, Detail: detail})
}

// drive runs the load with everything that watches it, and finishes the run directory.
func (r *runner) drive(ctx context.Context) (int, error) {
	limit := sendLimit(r.scenario.Criteria)
	r.rec = record.New(r.shared.record(record.Config{Out: r.out, LateLimit: time.Duration(limit / 10 * float64(time.Millisecond)),
		Live:   r.live.Totals,
		Unread: r.hands.Unread, Sockets: r.scenario.Population.ConnectedDevices,
		Processes: append([]record.Process{{Role: "loadgen", PID: os.Getpid()}}, r.env.processes()...),
		Scrapes:   r.env.scrapes(), Via: r.env.via}))
	r.ledger = ledger.New(r.pop, r.ledgerConfig())
	r.status = newStatus(r.program.Stderr, r.program.Env, r.scenario.Population.ConnectedDevices, float64(r.scenario.Load.GroupRate+r.scenario.Load.DirectRate))
	r.status.live, r.status.rec = r.figures(), r.rec
	stopMetrics, err := r.serveMetrics()
	if err != nil {
		return ExitError, r.abandon(ctx, err)
	}
	defer stopMetrics()

	load, lost := context.WithCancelCause(ctx)
	r.reach.begin(r.env.allowed, lost)
	r.brought.lost = lost
	watch, stopWatching := context.WithCancel(context.Background())
	watched := make(chan error, 4)
	go func() { r.watchAborts(watch, lost); watched <- nil }()
	go func() { r.env.watch(watch, lost); watched <- nil }()
	go func() { r.status.run(watch); watched <- nil }()
	go func() {
		err := r.rec.Run(watch)
		r.shared.recorded()
		if err != nil {
			lost(fmt.Errorf("%w", err)) // a full disk ends the load: what cannot be kept need not be measured
		}
		watched <- err
	}()
	r.planFaults(load)
	stopProfile, err := startProfile(r.profile)
	if err != nil {
		lost(err)
	}
	result, err := r.driveDevices(load)
	stopProfile()
	if cause := context.Cause(load); load.Err() != nil && cause != context.Canceled {
		err = cause // the stack or the disk went away; that is why the driver ended
	}
	lost(nil)
	if r.faults != nil {
		r.faults.wait()
	}
	stopWatching()
	for range cap(watched) {
		if werr := <-watched; werr != nil && err == nil {
			err = werr
		}
	}
	return r.finish(ctx, result, err)
}

// reads says whether a device follows a conversation: always if it is pushed, by the devices' own decision if it is hinted.
func (r *runner) reads(device, conv int32) bool {
	c, sc := &r.pop.Convs[conv], r.scenario
	return !c.Hinted(sc.Delivery) || behavior.Reads(sc.Seed, device, conv, c.ReadBy(sc.Devices.ReadingShare))
}

func (r *runner) driverConfig() driver.Config {
	sc := r.scenario
	cfg := driver.Config{
		Wire: protocol.NewGateway(r.env.wire), Population: r.pop, Arrivals: r.plan.Arrivals,
		Targets: r.env.targets, Tokens: func(device int32) string { return r.tokens[r.pop.Devices[device].ID] },
		Sink: r.sink(), Seed: sc.Seed, RunID: r.runID,
		BodySize: r.plan.BodySize, Churn: r.plan.Churn, Fetches: r.plan.Fetches, Lists: r.plan.Lists, Device: deviceConfig(sc),
		ConnectRate: float64(sc.Devices.ConnectRate),
		Warmup:      sc.Phases.Warmup, Measure: sc.Phases.Measure, Tail: sc.Phases.Tail, Settle: sc.Phases.Settle,
		LostAfter: r.lostAfter(),
		Welcomed:  r.reach.welcome, OnPhase: r.onPhase, Counters: &r.live, Control: &r.hands,
	}
	if r.pop.Brought {
		cfg.Arrivals = population.Keyed(r.plan.Arrivals, r.runID)
		cfg.Tokens, cfg.Renew = r.options.brought.source.Token, r.brought.renew
	}
	return cfg
}

// measures says what is measured: rates are those of this time.
func (r *runner) measures(from, to clock.Time) {
	r.windowFrom, r.windowTo = from, to
	r.rec.SetWindow(from, to)
}

// onPhase is told by the driver, one call at a time.
func (r *runner) onPhase(p driver.Phase, at clock.Time) {
	sc := r.scenario.Phases
	length := map[driver.Phase]time.Duration{driver.Warmup: sc.Warmup, driver.Measure: sc.Measure, driver.Tail: sc.Tail, driver.Settle: sc.Settle}[p]
	switch {
	case p == driver.Measure:
		r.measures(at, at.Add(sc.Measure))
	case at < r.windowTo: // the run is cut short
		r.measures(r.windowFrom, max(at, r.windowFrom))
	}
	if p == driver.Warmup {
		r.rec.LoadBegins()
	}
	r.loadPhase(p, at)
	if r.faults != nil {
		r.faults.phase(p, at)
	}
	if p == driver.Warmup && r.env.stack == nil && r.shared.fleet == nil {
		r.say("%s", r.reach.say())
	}
	r.status.enter(p, length)
	r.series.phase(p)
	r.event("phase", string(p), "")
	now := r.out.Now().Sub(r.out.Started()).Seconds() + at.Sub(clock.Now()).Seconds()
	if n := len(r.phases); n > 0 {
		r.phases[n-1].To = now
	}
	r.phases = append(r.phases, rundir.Phase{Name: string(p), From: now})
}

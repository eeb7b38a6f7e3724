package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"imbench/loadgen/internal/clock"
	"imbench/loadgen/internal/driver"
	"imbench/loadgen/internal/fleet"
	"imbench/loadgen/internal/ledger"
	"imbench/loadgen/internal/population"
	"imbench/loadgen/internal/record"
	"imbench/loadgen/internal/sample"
)

// orphanLimit is how long a worker may take to end its load when its coordinator is gone, beyond the three seconds in which
// it finds out.
const orphanLimit = 1500 * time.Millisecond

// worker is the command of -worker: it drives shares of runs until it is interrupted, or its coordinator is gone.
func worker(ctx context.Context, p Program, o options) (int, error) {
	if envValue(p.Env, "GOMAXPROCS") == "" {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(runtime.NumCPU() + spareThreads))
	}
	w := &fleetWorker{program: p, options: o}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	child := fleet.WatchParent(cancel, 2*orphanLimit)
	w.quiet = child
	m := fleet.Member{Revision: p.Revision, Host: thisHost()}
	err := fleet.Serve(ctx, fleet.WorkerConfig{URL: o.fleet.url, Once: child, Member: m, Obey: w.obey, Say: w.say}, w.work)
	switch {
	case errors.Is(err, fleet.ErrCoordinatorGone):
		return ExitTarget, fail(ExitTarget, "%w; the load has been ended", err)
	case err != nil:
		return ExitUsage, &exitError{ExitUsage, err}
	case w.interrupted:
		return ExitInterrupted, nil
	}
	return ExitPassed, nil
}

// fleetWorker drives one share after another; it belongs to one goroutine, but for what carries out orders (obey).
type fleetWorker struct {
	program     Program
	options     options
	interrupted bool
	quiet       bool // of a child only what went wrong is of interest, and is told by its coordinator
	present     atomic.Pointer[present]
}

func (w *fleetWorker) say(format string, args ...any) {
	if !w.quiet {
		fmt.Fprintf(w.program.Stderr, format+"\n", args...)
	}
}

// work drives a worker's share of a run and hands over what it saw.
func (w *fleetWorker) work(load context.Context, body []byte, s *fleet.Session) error {
	ended := make(chan struct{})
	defer close(ended)
	defer context.AfterFunc(load, func() { w.endOrphan(load, ended) })()
	var job fleetJob
	if err := decodeGob(body, &job); err != nil {
		return fmt.Errorf("a job that cannot be read: %w", err)
	}
	r, err := job.share(w.program, w.options)
	if err != nil {
		return w.result(s, driver.Result{Ended: driver.Connect}, nil, err)
	}
	load, refuse := context.WithCancelCause(load)
	defer refuse(nil)
	r.reach.begin(job.Allowed, refuse)
	share := &share{job: job, runner: r, session: s, worker: w}
	defer w.present.Store(nil)
	for _, d := range r.pop.Devices {
		if d.Connected {
			share.devices++
		}
	}
	w.say("%s of run %s: %d of %d devices of %s", job.Name, job.Namespace, share.devices, r.scenario.Population.ConnectedDevices, r.scenario.Name)
	result, err := share.drive(load)
	var refused *exitError
	if errors.As(context.Cause(load), &refused) {
		err = refused
	}
	w.interrupted = context.Cause(load) == context.Canceled
	if errors.Is(context.Cause(load), fleet.ErrCoordinatorGone) {
		return fleet.ErrCoordinatorGone
	}
	if share.ledger != nil {
		if err := s.Ledger(share.ledger.Export); err != nil {
			return fmt.Errorf("the ledger could not be handed over: %w", err)
		}
	}
	w.say("%s: ended in phase %s", job.Name, result.Ended)
	return w.result(s, result, r, err)
}

// endOrphan ends the process if its coordinator is gone and the load does not end in time.
func (w *fleetWorker) endOrphan(load context.Context, ended <-chan struct{}) {
	if !errors.Is(context.Cause(load), fleet.ErrCoordinatorGone) {
		return
	}
	late := time.NewTimer(orphanLimit)
	defer late.Stop()
	select {
	case <-ended:
	case <-late.C:
		w.say("loadgen: the coordinator is gone, and the load did not end in time")
		os.Exit(ExitTarget)
	}
}

// result hands over how the share ended. r is nil if there was none.
func (w *fleetWorker) result(s *fleet.Session, d driver.Result, r *runner, failed error) error {
	res := fleetResult{Ended: d.Ended, Interrupted: d.Interrupted, Settled: d.Settled, Unsettled: d.Unsettled, UnsettledDevices: d.UnsettledDevices,
		Final: d.Final, Failure: failureOf(failed)}
	if r != nil {
		res.Reached = r.reach.counts()
	}
	if failed != nil {
		w.say("loadgen: %v", failed)
	}
	b, err := encodeGob(res)
	if err != nil {
		return err
	}
	return s.Result(b)
}

// share is a worker's part of a run.
type share struct {
	job     fleetJob
	runner  *runner
	session *fleet.Session
	worker  *fleetWorker
	watch   *watch
	devices int
	rec     *record.Recorder
	ledger  *ledger.Ledger
	epoch   clock.Time // of this machine's clock
}

// drive runs the load, and tells once a second what was counted.
func (s *share) drive(load context.Context) (driver.Result, error) {
	r := s.runner
	limit := sendLimit(r.scenario.Criteria)
	s.rec = record.New(record.Config{LateLimit: time.Duration(limit / 10 * float64(time.Millisecond)), Live: r.live.Totals,
		Unread: r.hands.Unread, Sockets: s.devices, Processes: []record.Process{{Role: s.job.Name, PID: os.Getpid()}}})
	s.ledger = ledger.New(r.pop, ledger.Config{Reads: r.reads, Key: s.job.LedgerKey})
	s.watch = newWatch(&r.live, s.ledger)
	s.worker.present.Store(&present{hands{&r.hands}, s.watch})
	s.session.Status(r.live.Snapshot)
	epoch, err := s.session.Ready()
	if err != nil {
		return driver.Result{Ended: driver.Connect, Interrupted: load.Err() != nil}, s.unlessEnded(load, err)
	}
	s.epoch = epoch.Add(s.job.Ahead)
	telling, stop := context.WithCancel(context.Background())
	var told sync.WaitGroup
	var failed error
	told.Go(func() { failed = s.tell(telling) })
	result, err := driver.Run(load, s.config())
	stop()
	told.Wait()
	return result, errors.Join(err, failed)
}

// unlessEnded drops an error that only says that the load was ended.
func (s *share) unlessEnded(load context.Context, err error) error {
	if load.Err() != nil {
		return nil
	}
	return err
}

// tell cuts a part at each full second of the run's clock, and a last one when ctx has ended.
func (s *share) tell(ctx context.Context) error {
	for k := int64(0); ; k++ {
		wait := time.NewTimer(s.epoch.Add(time.Duration(k+1) * time.Second).Sub(clock.Now()))
		final := false
		select {
		case <-ctx.Done():
			wait.Stop()
			final = true
		case <-wait.C:
		}
		part, err := s.rec.Cut(time.Now(), final)
		if err != nil {
			return err
		}
		b, err := encodeGob(part)
		if err == nil {
			err = s.session.Part(k, b)
		}
		if err != nil || final {
			return err
		}
	}
}

// config is the driver's, as a run in one process has it, for this share.
func (s *share) config() driver.Config {
	r := s.runner
	c := r.driverConfig()
	c.Sink = sample.Tee{s.rec, s.ledger}
	if len(r.scenario.Faults) > 0 {
		c.Sink = sample.Tee{s.rec, s.ledger, s.watch}
	}
	c.Arrivals = func() population.Arrivals { return population.Only(r.plan.Arrivals(), r.pop) }
	own := func(of func() population.Arrivals) func() population.Arrivals {
		return func() population.Arrivals {
			if all := of(); all != nil {
				return population.Only(all, r.pop)
			}
			return nil
		}
	}
	c.Churn, c.Fetches, c.Lists = own(r.plan.Churn), own(r.plan.Fetches), own(r.plan.Lists)
	c.ConnectRate /= float64(s.job.Workers)
	c.Ahead = s.job.Ahead
	c.OnPhase = func(p driver.Phase, at clock.Time) {
		if p == driver.Measure {
			s.rec.SetWindow(at, at.Add(c.Measure))
		}
		s.session.Phase(p, at.Add(-s.job.Ahead))
	}
	c.Start = func(context.Context) (clock.Time, error) {
		at, err := s.session.Connected()
		return at.Add(s.job.Ahead), err
	}
	c.Agree = func(_ context.Context, heads []int64) ([]int64, error) { return s.session.Agree(heads) }
	c.Leave = func(context.Context) error { return s.session.Settled() }
	return c
}

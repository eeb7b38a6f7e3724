package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"time"

	"imbench/loadgen/internal/clock"
	"imbench/loadgen/internal/driver"
	"imbench/loadgen/internal/fleet"
	"imbench/loadgen/internal/ledger"
	"imbench/loadgen/internal/population"
	"imbench/loadgen/internal/record"
	"imbench/reports/rundir"
)

// fleetRun is a run whose devices are driven by workers. The zero value is a run in one process. It belongs to the goroutine
// of the run, but for ticks and written.
type fleetRun struct {
	fleet   *fleet.Fleet
	key     uint64
	ticks   chan time.Time // ends of seconds of which all parts have been absorbed
	written chan struct{}  // closed when nobody looks at ticks any more

	runner  *runner
	stopped context.Context // the load
	results map[string]fleetResult
	lost    *fleet.LostError
}

// gather finds the workers before anything else is started, if the run has any.
func (r *runner) gather(ctx context.Context) error {
	f := r.options.fleet
	if !f.shared() {
		return nil
	}
	cfg := fleet.Config{URL: f.url, Workers: f.workers, Run: r.pop.Namespace, Say: r.say}
	if f.url == "" {
		exe, err := os.Executable()
		if err != nil {
			return fail(ExitError, "a worker is this program started again, and it cannot be found: %w", err)
		}
		cfg.Child = func(url string) *exec.Cmd {
			cmd := exec.Command(exe, append([]string{"-worker"}, r.options.staging.certificates()...)...)
			cmd.Env = append(slices.Clone(r.program.Env), fleetEnv+"="+url)
			return cmd
		}
	}
	var err error
	r.shared.key = rand.Uint64() | 1
	r.shared.ticks, r.shared.written = make(chan time.Time), make(chan struct{})
	r.shared.runner, r.shared.results = r, map[string]fleetResult{}
	if r.shared.fleet, err = fleet.Gather(ctx, cfg); err != nil {
		return &exitError{ExitUsage, err}
	}
	if len(r.options.targets) == 0 {
		return away(r.shared.fleet.Members(), fleet.BootID())
	}
	return nil
}

// away refuses workers that cannot reach the embedded stack; boot is this machine's.
func away(members []fleet.Member, boot string) error {
	for _, m := range members {
		if m.Boot != "" && boot != "" && m.Boot != boot {
			return fail(ExitUsage, "%s is on another machine, and the embedded stack listens on this one's loopback only: give -target, or start the workers here (-workers without -fleet)", m)
		}
	}
	return nil
}

// certificates are the arguments by which a worker on this machine reaches the target as this process does.
func (s *stagingOptions) certificates() (args []string) {
	for flag, file := range map[string]string{"-ca": s.reach.CA, "-cert": s.reach.Cert, "-key": s.reach.Key} {
		if file != "" {
			args = append(args, flag, file)
		}
	}
	return args
}

// release lets the workers go.
func (f *fleetRun) release() {
	if f.fleet != nil {
		f.fleet.Close()
	}
}

// ownFiles is how many devices one process has to have files for.
func (r *runner) ownFiles() int {
	n, workers := r.scenario.Population.ConnectedDevices, r.options.fleet.workers
	if !r.options.fleet.shared() {
		return n
	}
	if r.options.fleet.url != "" {
		return 0 // another machine's limit is for the worker to check
	}
	return (n + workers - 1) / workers
}

// record changes what a recorder is told when it only absorbs what others count.
func (f *fleetRun) record(c record.Config) record.Config {
	if f.fleet != nil {
		c.Live, c.Unread, c.Ticks = nil, nil, f.ticks
	}
	return c
}

// hosts are the machines of the workers.
func (f *fleetRun) hosts() (list []rundir.Host) {
	if f.fleet == nil {
		return nil
	}
	for _, m := range f.fleet.Members() {
		m.Host.Role = m.Name
		list = append(list, m.Host)
	}
	return list
}

// figures are the live ones of the devices.
func (r *runner) figures() interface{ Snapshot() driver.Snapshot } {
	if r.shared.fleet != nil {
		return r.shared.fleet
	}
	return &r.live
}

// driveDevices runs the load, in this process or in the workers'.
func (r *runner) driveDevices(ctx context.Context) (driver.Result, error) {
	f := &r.shared
	if f.fleet == nil {
		return driver.Run(ctx, r.driverConfig())
	}
	for _, m := range f.fleet.Members() {
		r.event("worker", m.Name, fmt.Sprintf("process %d on %s, revision %s; %s", m.PID, m.Host.Name, m.Revision, m.Clock))
	}
	jobs, err := r.jobs()
	if err != nil {
		return driver.Result{Ended: driver.Connect}, err
	}
	f.stopped = ctx
	err = f.fleet.Run(ctx, jobs, f)
	result := f.merged(ctx)
	if errors.As(err, &f.lost) {
		r.event("error", f.lost.Member.Name, f.lost.Error())
		r.say("loadgen: %v; the others have been stopped", f.lost)
		err = nil
		result.Interrupted = false
		if result.Ended == driver.Finished {
			result.Ended = driver.Close
		}
		r.forgetLost()
	}
	return result, err
}

// jobs are what the workers are to do.
func (r *runner) jobs() ([][]byte, error) {
	src, err := r.scenario.Bytes()
	if err != nil {
		return nil, err
	}
	var jobs [][]byte
	members := r.shared.fleet.Members()
	for i, m := range members {
		j := fleetJob{Run: r.runID, Name: m.Name, Worker: i, Workers: len(members), Scenario: src, Seed: r.scenario.Seed, Namespace: r.pop.Namespace,
			Population: population.Digest(r.pop), Arrivals: r.plan.Digest(), Targets: r.env.targets, Allowed: r.env.allowed, Tokens: map[string]string{},
			Header: r.env.wire.Header, LedgerKey: r.shared.key, Ahead: m.Clock.Ahead}
		if r.env.wire.TLS != nil {
			j.ServerName = r.env.wire.TLS.ServerName
		}
		for _, d := range population.Share(r.pop, i, len(members), len(r.env.targets)).Devices {
			if d.Connected {
				j.Tokens[d.ID] = r.tokens[d.ID]
			}
		}
		b, err := encodeGob(j)
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, b)
	}
	return jobs, nil
}

// forgetLost takes the devices of workers that handed over nothing out of the ledger.
func (r *runner) forgetLost() {
	members := r.shared.fleet.Members()
	for i, m := range members {
		if _, ok := r.shared.results[m.Name]; ok {
			continue
		}
		own := population.Share(r.pop, i, len(members), len(r.env.targets))
		r.ledger.Forget(func(device int32) bool { return own.Devices[device].Connected })
	}
}

// each says to a person who does it.
func (f *fleetRun) each() string {
	if f.fleet == nil {
		return ""
	}
	return " each: all workers at once"
}

// settledLimit is how long the last look at faults may take, which devices wait for.
const settledLimit = 10 * time.Second

// Settled implements fleet.Sink.
func (f *fleetRun) Settled() {
	if f.runner.faults != nil {
		ctx, cancel := context.WithTimeout(f.stopped, settledLimit)
		defer cancel()
		f.runner.faults.heal.settle(ctx)
	}
}

// Starting implements fleet.Sink.
func (f *fleetRun) Starting() { f.runner.rec.LoadBegins() }

// Phase implements fleet.Sink.
func (f *fleetRun) Phase(p driver.Phase, at clock.Time) { f.runner.onPhase(p, at) }

// Second implements fleet.Sink.
func (f *fleetRun) Second(end clock.Time, parts []fleet.Part) error {
	at := time.Now().Add(end.Sub(clock.Now()))
	for _, p := range parts {
		var part record.Part
		if err := decodeGob(p.Body, &part); err != nil {
			return fmt.Errorf("a part of %s: %w", p.Member.Name, err)
		}
		part.Worker = p.Member.Name
		for i := range part.Processes {
			part.Processes[i].At = at // by this machine's clock
		}
		if err := f.runner.rec.Absorb(part); err != nil {
			return err
		}
	}
	select {
	case f.ticks <- at:
	case <-f.written:
	}
	return nil
}

// Ledger implements fleet.Sink.
func (f *fleetRun) Ledger(m fleet.Member, r io.Reader) error {
	if err := f.runner.ledger.Import(r); err != nil {
		return fmt.Errorf("%s: %w", m.Name, err)
	}
	return nil
}

// Result implements fleet.Sink.
func (f *fleetRun) Result(m fleet.Member, body []byte) error {
	var res fleetResult
	if err := decodeGob(body, &res); err != nil {
		return fmt.Errorf("the result of %s: %w", m.Name, err)
	}
	f.results[m.Name] = res
	f.runner.reach.add(res.Reached)
	switch {
	case res.Failure != nil:
		return res.Failure.error(m.String())
	case res.Interrupted && f.stopped.Err() == nil && f.lost == nil:
		return &fleet.LostError{Member: m, Why: "it was interrupted there"}
	}
	return nil
}

// merged is the result of all.
func (f *fleetRun) merged(ctx context.Context) driver.Result {
	all := driver.Result{Ended: driver.Finished, Settled: true, Interrupted: ctx.Err() != nil}
	members := f.fleet.Members()
	for _, m := range members {
		res, ok := f.results[m.Name]
		if !ok {
			res.Ended = driver.Connect
		}
		if before(res.Ended, all.Ended) {
			all.Ended = res.Ended
		}
		all.Settled = all.Settled && res.Settled
		all.UnsettledDevices += res.UnsettledDevices
		all.Unsettled = append(all.Unsettled, res.Unsettled[:min(len(res.Unsettled), max(0, 20-len(all.Unsettled)))]...)
		all.Final = all.Final.Plus(res.Final)
	}
	return all
}

// before says whether a run that ended in phase a got less far than one that ended in b.
func before(a, b driver.Phase) bool {
	return slices.Index(driver.Phases, a) < slices.Index(driver.Phases, b)
}

// recorded says that the recorder takes no more ticks.
func (f *fleetRun) recorded() {
	if f.written != nil {
		close(f.written)
	}
}

// ledgerConfig is that of the run's own ledger.
func (r *runner) ledgerConfig() ledger.Config {
	return ledger.Config{Reads: r.reads, Shared: r.pop.Brought, Key: r.shared.key}
}

// tell puts into the summary who drove the run, and how well their clocks agree.
func (f *fleetRun) tell(s *rundir.Summary) {
	if f.fleet == nil {
		return
	}
	common := 0
	for _, m := range f.fleet.Members() {
		if m.Clock.Common {
			common++
			continue
		}
		s.Notes = append(s.Notes, fmt.Sprintf("%s: %s against the coordinator's, corrected: latencies from and to its devices are that uncertain", m, m.Clock))
	}
	if common > 0 {
		s.Notes = append(s.Notes, fmt.Sprintf("%d workers on this machine drove the devices; their clocks are one (CLOCK_MONOTONIC)", common))
	}
}

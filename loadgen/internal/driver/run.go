package driver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"imbench/loadgen/internal/clock"
	"imbench/loadgen/internal/device"
	"imbench/loadgen/internal/pacer"
	"imbench/loadgen/internal/population"
	"imbench/loadgen/protocol"

	"golang.org/x/sys/unix"
)

const (
	fileMargin   = 256                    // open files beside the devices' connections
	poll         = 100 * time.Millisecond // how often a phase looks whether it is over
	connectGrace = 30 * time.Second       // beyond the time that connecting takes at the rate
	lostAfter    = 10 * time.Second
)

// runner is one run under way.
type runner struct {
	cfg     Config
	count   *Counters
	group   *device.Group
	devices []int32 // to be connected, in order
	sends   atomic.Pointer[pacer.Pacer]
	result  Result
}

func run(ctx context.Context, cfg Config) (Result, error) {
	r := &runner{cfg: cfg, count: cfg.Counters, result: Result{Ended: Connect}}
	if r.count == nil {
		r.count = &Counters{}
	}
	for i := range cfg.Population.Devices {
		if cfg.Population.Devices[i].Connected {
			r.devices = append(r.devices, int32(i))
		}
	}
	if len(r.devices) == 0 || len(cfg.Targets) == 0 || cfg.ConnectRate <= 0 {
		return r.result, errors.New("driver: no devices, no targets, or no connect rate")
	}
	if err := CheckFiles(len(r.devices)); err != nil {
		return r.result, err
	}
	if err := r.probe(ctx); err != nil {
		r.result.Interrupted = ctx.Err() != nil
		if r.result.Interrupted {
			err = nil
		}
		return r.result, err
	}
	var err error
	r.group, err = device.NewGroup(device.GroupConfig{Device: cfg.Device, Wire: cfg.Wire, Population: cfg.Population,
		Sink: cfg.Sink, Run: cfg.RunID, BodySize: cfg.BodySize, Tokens: cfg.Tokens, Renew: cfg.Renew, Counters: &r.count.device,
		Ahead: cfg.Ahead, Meanwhile: r.help, Welcomed: cfg.Welcomed})
	if err != nil {
		return r.result, err
	}
	if r.cfg.Control != nil {
		r.cfg.Control.group.Store(r.group)
	}
	err = r.phases(ctx)
	if err != nil || ctx.Err() != nil {
		n, which := r.group.Unsettled(20)
		r.result.Settled, r.result.Unsettled, r.result.UnsettledDevices = false, which, n
		r.result.Interrupted = ctx.Err() != nil
		r.tell(Close, clock.Now())
	} else {
		r.enter(Close)
	}
	r.group.Close()
	if err == nil && ctx.Err() == nil {
		r.enter(Finished)
	}
	r.result.Final = r.count.Snapshot()
	if r.result.Interrupted {
		err = nil
	}
	return r.result, err
}

// phases brings the run from connecting to settled; it returns early if ctx ends or the targets are lost.
func (r *runner) phases(ctx context.Context) error {
	r.enter(Connect)
	if err := r.connect(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	start := clock.Now().Add(poll) // far enough ahead for the first arrival not to be late
	if r.cfg.Start != nil {
		var err error
		if start, err = r.cfg.Start(ctx); err != nil || ctx.Err() != nil {
			return err
		}
	}
	r.result.LoadStart = start
	from := start.Add(r.cfg.Warmup)
	to := from.Add(r.cfg.Measure)
	plan := func() population.Arrivals { return &until{r.cfg.Arrivals(), to.Add(r.cfg.Tail).Sub(start)} }
	due := newDue(plan(), start)
	r.count.due.Store(due)
	loaded, stopLoad := context.WithCancel(ctx)
	paced := make(chan struct{})
	sends := pacer.New(loaded, plan(), start, r.arrive)
	r.sends.Store(sends)
	go func() {
		defer close(paced)
		sends.Run(r.cfg.Sleeper)
	}()
	beside := r.beside(loaded, start)
	defer func() { stopLoad(); due.stop(); <-paced; beside.Wait() }()

	r.enter(Warmup)
	// Measure is announced a little ahead, so that whoever is told is ready for the window's first arrival.
	if err := r.watch(ctx, from.Add(-poll)); err != nil || ctx.Err() != nil {
		return err
	}
	r.result.WindowFrom, r.result.WindowTo = from, to
	r.result.Ended = Measure
	r.tell(Measure, from)
	if err := r.watch(ctx, to); err != nil || ctx.Err() != nil {
		return err
	}
	r.enter(Tail)
	if err := r.watch(ctx, to.Add(r.cfg.Tail)); err != nil || ctx.Err() != nil {
		return err
	}
	<-paced
	beside.Wait()
	r.enter(Settle)
	return r.settle(ctx)
}

// beside starts what devices do besides sending, as long as the load lasts: they leave and come back, and ask for things.
func (r *runner) beside(ctx context.Context, start clock.Time) *sync.WaitGroup {
	var all sync.WaitGroup
	run := func(of func() population.Arrivals, s pacer.Sleeper, do func(a *population.Arrival, intended clock.Time)) {
		if of == nil {
			return
		}
		if plan := of(); plan != nil {
			all.Go(func() { pacer.Run(ctx, plan, start, s, do) })
		}
	}
	run(r.cfg.Churn, pacer.Timers{}, func(a *population.Arrival, _ clock.Time) { r.group.Leave(a.Device) })
	run(r.cfg.Fetches, r.cfg.Sleeper, r.group.Fetch) // their latencies count from the intended time: an exact sleeper
	run(r.cfg.Lists, r.cfg.Sleeper, r.group.List)
	return &all
}

func (r *runner) enter(p Phase) {
	r.result.Ended = p
	r.tell(p, clock.Now())
}

func (r *runner) tell(p Phase, at clock.Time) {
	if r.cfg.OnPhase != nil {
		r.cfg.OnPhase(p, at)
	}
}

// help starts the sends that are due, if the pacer has not come to it: a batch that the gateway commits wakes hundreds of
// devices at once, and the pacer's goroutine would have to wait for its turn behind them.
func (r *runner) help(now clock.Time) {
	if p := r.sends.Load(); p != nil {
		p.Help(now)
	}
}

// arrive starts one send; one goroutine at a time runs it.
func (r *runner) arrive(a *population.Arrival, intended clock.Time) {
	r.count.started(clock.Now().Sub(intended))
	r.group.Send(a, intended)
}

// until ends a plan at an offset.
type until struct {
	plan population.Arrivals
	end  time.Duration
}

// Next implements population.Arrivals.
func (u *until) Next() (population.Arrival, bool) {
	a, ok := u.plan.Next()
	return a, ok && a.At < u.end
}

// probe dials each target once, as a device does, before any load: a wrong one is named, with what it answered.
func (r *runner) probe(ctx context.Context) error {
	for i, target := range r.cfg.Targets {
		device := r.devices[i%len(r.devices)]
		token := r.cfg.Tokens(device)
		conn, err := r.dial(ctx, target, token)
		if protocol.TokenRefused(err) && r.cfg.Renew != nil && r.cfg.Renew(ctx, device, token) {
			conn, err = r.dial(ctx, target, r.cfg.Tokens(device))
		}
		if err != nil {
			return &TargetError{Target: target, Err: err}
		}
		conn.Close(1000)
		_ = conn.Serve(ignore)
	}
	return nil
}

func (r *runner) dial(ctx context.Context, target, token string) (protocol.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Device.DialTimeout)
	defer cancel()
	return r.cfg.Wire.Dial(ctx, target, token)
}

// connect starts the devices at the connect rate and waits until all are ready.
func (r *runner) connect(ctx context.Context) error {
	begun := clock.Now()
	gap := time.Duration(float64(time.Second) / r.cfg.ConnectRate)
	plan := population.Evenly(int64(len(r.devices)), gap)
	pacer.Run(ctx, plan, begun, pacer.Timers{}, func(a *population.Arrival, _ clock.Time) {
		r.group.Start(r.devices[a.Index], r.cfg.Targets[a.Index%int64(len(r.cfg.Targets))], r.cfg.Targets...)
	})
	limit := r.cfg.ConnectTimeout
	if limit == 0 {
		limit = gap*time.Duration(len(r.devices)) + connectGrace
	}
	return r.wait(ctx, begun.Add(limit), func() (bool, error) {
		if n := r.count.device.Ended.Load(); n > 0 {
			return false, r.connectError(fmt.Errorf("%d were told not to come back: %w", n, r.lastError()))
		}
		return r.count.device.Ready.Load() == int64(len(r.devices)), nil
	}, func() error { return r.connectError(r.lastError()) })
}

func (r *runner) connectError(last error) error {
	return &ConnectError{Connected: int(r.count.device.Ready.Load()), Wanted: len(r.devices), Last: last}
}

func (r *runner) lastError() error {
	if err := r.group.LastError(); err != nil {
		return err
	}
	return errors.New("the gateway did not answer")
}

// watch waits until a moment, and ends early with an error if the targets are lost.
func (r *runner) watch(ctx context.Context, end clock.Time) error {
	return r.wait(ctx, end, r.lost(), func() error { return nil })
}

// moreSettling is how often the time for settling begins again because sends that had waited were confirmed in it: what was
// committed last is to have as long to arrive as anything else. With it, settling ends in any case.
const moreSettling = 3

// settle waits until every device has all that it is owed and has said so; running out of time is no error.
func (r *runner) settle(ctx context.Context) error {
	lost := r.lost()
	var end clock.Time
	once := func() error {
		return r.wait(ctx, end, func() (bool, error) {
			n, _ := r.group.Unsettled(0)
			if n == 0 {
				return true, nil
			}
			return lost()
		}, func() error { return nil })
	}
	settled := func() (err error) {
		for more := 0; ; more++ {
			done := r.count.device.Done.Load()
			end = clock.Now().Add(r.cfg.Settle)
			err = once()
			if n, _ := r.group.Unsettled(0); err != nil || ctx.Err() != nil || n == 0 || more == moreSettling || r.count.device.Done.Load() == done {
				return err
			}
		}
	}
	err := settled()
	if r.cfg.Agree != nil && err == nil && ctx.Err() == nil {
		var heads []int64
		if heads, err = r.cfg.Agree(ctx, r.group.Heads()); err == nil {
			r.group.Raise(heads)
			lost = r.lost() // nothing was to be confirmed meanwhile
			err = settled()
		}
	}
	r.result.UnsettledDevices, r.result.Unsettled = r.group.Unsettled(20)
	r.result.Settled = r.result.UnsettledDevices == 0
	if r.cfg.Leave != nil && err == nil && ctx.Err() == nil {
		err = r.cfg.Leave(ctx)
	}
	return err
}

// lost makes a check that gives an error when there has been no connection, or no send that got through though some
// wait, for LostAfter: a gateway or the database behind it is gone.
func (r *runner) lost() func() (bool, error) {
	limit := r.cfg.LostAfter
	if limit == 0 {
		limit = lostAfter
	}
	d := &r.count.device
	done := d.Done.Load()
	connected, moved := clock.Now(), clock.Now()
	return func() (bool, error) {
		now := clock.Now()
		if d.Connected.Load() > 0 {
			connected = now
		}
		if n := d.Done.Load(); n != done || r.count.Snapshot().InFlight == 0 {
			done, moved = n, now
		}
		switch all := strings.Join(r.cfg.Targets, ", "); {
		case now.Sub(connected) > limit:
			return false, &TargetError{Target: all, Lost: true, Err: fmt.Errorf("no connection for %v: %w", limit, r.lastError())}
		case now.Sub(moved) > limit:
			return false, &TargetError{Target: all, Lost: true, Err: fmt.Errorf("no message was confirmed for %v", limit)}
		}
		return false, nil
	}
}

// wait asks check every now and then, until it says done or fails, ctx ends (nil), or the time is over (atEnd decides).
func (r *runner) wait(ctx context.Context, end clock.Time, check func() (bool, error), atEnd func() error) error {
	tick := time.NewTicker(poll)
	defer tick.Stop()
	last := time.NewTimer(end.Sub(clock.Now()))
	defer last.Stop()
	for {
		if done, err := check(); done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-last.C:
			return atEnd()
		case <-tick.C:
		}
	}
}

// FilesNeeded is how many open files a run with n connected devices needs.
func FilesNeeded(n int) int { return n + fileMargin }

// CheckFiles raises the limit of open files as far as it may; it returns a *FileLimitError if that is not enough for n
// connected devices.
func CheckFiles(n int) error {
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		return nil // a system without the limit
	}
	if lim.Cur < lim.Max {
		raised := lim
		raised.Cur = lim.Max
		if unix.Setrlimit(unix.RLIMIT_NOFILE, &raised) == nil {
			lim = raised
		}
	}
	if need := uint64(FilesNeeded(n)); need > lim.Cur {
		return &FileLimitError{Needed: need, Had: lim.Cur}
	}
	return nil
}

func ignore(*protocol.Frame) {}

// Package calibrate measures what the generator itself can do on this machine, before a run: how many sends it gets done and
// how many frames it receives when nothing but a null server (a process of its own, real sockets, our wire) stands against
// it, and which latency it shows at the run's rate when there is none to measure.
//
// What is measured goes through the same devices, recorder and ledger as a run. The null server needs processors, too, and on
// a small machine takes about half of them, as a real one would: the ceilings are those beside a server that costs nothing
// but its sockets.
package calibrate

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"imbench/loadgen/internal/child"
	"imbench/loadgen/internal/clock"
	"imbench/loadgen/internal/device"
	"imbench/loadgen/internal/ledger"
	"imbench/loadgen/internal/pacer"
	"imbench/loadgen/internal/population"
	"imbench/loadgen/internal/record"
	"imbench/loadgen/internal/sample"
	"imbench/loadgen/protocol"
	"imbench/reports/rundir"
)

// How long each part takes; with starting the server and connecting it is about three seconds.
const (
	settleIn   = 150 * time.Millisecond // of each part, not measured
	ceilingFor = 600 * time.Millisecond
	floorFor   = 900 * time.Millisecond
	limit      = 10 * time.Second // for all of it, when the machine is slow

	devices    = 128
	perDevice  = 4  // sends in flight on average, when as many as possible are made
	mostFanout = 64 // receivers of a message
	floorShare = 0.5
)

// Config says what the run will be.
type Config struct {
	Rate      float64 // sends a second
	Fanout    float64 // frames that are pushed a message, on average
	BodyBytes int
	// Start is when the measuring begins, for several processes that are to do it at the same time; 0 = as soon as all is ready.
	Start clock.Time
}

// lateStart is how much later than Config.Start a process may begin: a fifth of the shortest part.
const lateStart = 150 * time.Millisecond

// Run calibrates. It takes about three seconds from Config.Start on, and ten at most. Errors: ctx's, what kept the server or the
// devices from working, or that they were ready too late for Config.Start.
func Run(ctx context.Context, cfg Config) (*Result, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it took longer than %v", limit))
	defer cancel()
	begun := time.Now()
	var first ready
	server, err := child.Start(ctx, Role, &first)
	if err != nil {
		return nil, err
	}
	defer server.Close()
	b, err := newBench(cfg, server)
	if err != nil {
		return nil, err
	}
	c := &Result{Calibration: rundir.Calibration{Devices: devices, Fanout: min(int(cfg.Fanout+0.5), mostFanout)}}
	err = b.measure(ctx, first.URL, cfg, c)
	b.group.Close()
	debug.FreeOSMemory() // the run's memory is looked at
	if err != nil {
		return nil, err
	}
	if c.MixSendsPerS > 0 {
		c.OfferedShare = cfg.Rate / c.MixSendsPerS
	}
	c.TookS = time.Since(begun).Seconds()
	return c, nil
}

// bench is a group of devices against the null server.
type bench struct {
	group  *device.Group
	server *child.Process
	count  device.Counters
	sink   *tally
	plan   int64
}

func newBench(cfg Config, server *child.Process) (*bench, error) {
	b := &bench{server: server, sink: newTally()}
	pop := people()
	rec := record.New(record.Config{})
	rec.SetWindow(0, clock.Now().Add(time.Hour))
	conf := device.Default()
	var err error
	b.group, err = device.NewGroup(device.GroupConfig{Device: conf, Wire: protocol.NewGateway(protocol.GatewayConfig{}), Population: pop,
		Sink: sample.Tee{rec, ledger.New(pop, ledger.Config{}), b.sink}, Run: 1, BodySize: func(int64) int { return cfg.BodyBytes },
		Tokens: func(int32) string { return "none" }, Counters: &b.count})
	return b, err
}

// people are users with one device and one conversation each, which nobody else is in.
func people() *population.Population {
	p := &population.Population{Namespace: "null"}
	for i := range int32(devices) {
		p.Users = append(p.Users, population.User{ID: fmt.Sprintf("null-u%d", i), Devices: []int32{i}, Convs: []int32{i}})
		p.Devices = append(p.Devices, population.Device{ID: fmt.Sprintf("null-d%d", i), User: i, Connected: true})
		p.Convs = append(p.Convs, population.Conv{ID: convOf(p.Devices[i].ID), Kind: "group", Mode: "push", Members: []int32{i}})
	}
	return p
}

func (b *bench) measure(ctx context.Context, url string, cfg Config, c *Result) error {
	for i := range int32(devices) {
		b.group.Start(i, url)
	}
	for b.count.Ready.Load() < devices {
		if err := clock.Pause(ctx, time.Millisecond); err != nil {
			return errors.Join(fmt.Errorf("%d of %d devices were ready: %w", b.count.Ready.Load(), devices, err), b.group.LastError())
		}
	}
	if cfg.Start != 0 {
		wait := cfg.Start.Sub(clock.Now())
		if wait < -lateStart {
			return fmt.Errorf("the others began %v before the devices here were ready", (-wait).Round(time.Millisecond))
		}
		if err := clock.Pause(ctx, wait); err != nil {
			return err
		}
	}
	alone, err := b.ceiling(ctx, 0)
	if err != nil {
		return err
	}
	mix, err := b.ceiling(ctx, c.Fanout)
	if err != nil {
		return err
	}
	c.SendsPerS, c.MixSendsPerS, c.FramesPerS, c.CPUCores, c.ServerCores = alone.sends, mix.sends, mix.frames, mix.cpu, mix.server
	c.FloorRate = min(cfg.Rate, floorShare*mix.sends)
	return b.floor(ctx, c)
}

// rates are what was done in a second.
type rates struct{ sends, frames, cpu, server float64 }

// ceiling sends as fast as replies come, with a bounded number in flight.
func (b *bench) ceiling(ctx context.Context, fanout int) (r rates, err error) {
	if _, err := b.order(fanout); err != nil {
		return r, err
	}
	stop, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for stop.Err() == nil {
			select {
			case <-b.sink.room:
				b.send(clock.Now())
			case <-stop.Done():
			}
		}
	}()
	defer func() { cancel(); <-ended }()
	if err := clock.Pause(ctx, settleIn); err != nil {
		return r, err
	}
	server, err := b.order(fanout)
	if err != nil {
		return r, err
	}
	begun, cpu, sends, frames := time.Now(), ownCPU(), b.sink.sends.Load(), b.sink.frames.Load()
	if err := clock.Pause(ctx, ceilingFor); err != nil {
		return r, err
	}
	seconds := time.Since(begun).Seconds()
	r = rates{sends: float64(b.sink.sends.Load()-sends) / seconds, frames: float64(b.sink.frames.Load()-frames) / seconds,
		cpu: (ownCPU() - cpu).Seconds() / seconds}
	after, err := b.order(fanout)
	r.server = (after - server).Seconds() / time.Since(begun).Seconds()
	return r, err
}

// order sets the fan-out and returns the server's CPU time so far.
func (b *bench) order(fanout int) (time.Duration, error) {
	var r report
	err := b.server.Ask(order{fanout}, &r)
	return time.Duration(r.CPUNS), err
}

// send starts the next message, from the next device.
func (b *bench) send(intended clock.Time) {
	d := int32(b.plan % devices)
	b.group.Send(&population.Arrival{Index: b.plan, Device: d, Conv: d, CMID: mid(b.plan)}, intended)
	b.plan++
}

// floor sends at a rate, open loop as a run does, and looks at the latencies from the intended time.
func (b *bench) floor(ctx context.Context, c *Result) error {
	if c.FloorRate <= 0 {
		return nil
	}
	if err := clock.Pause(ctx, settleIn); err != nil { // what the ceiling left in flight
		return err
	}
	n := max(1, int64(floorFor.Seconds()*c.FloorRate))
	b.sink.listen()
	plan := population.Evenly(n, time.Duration(float64(time.Second)/c.FloorRate))
	pacer.Run(ctx, plan, clock.Now().Add(time.Millisecond), nil, func(_ *population.Arrival, intended clock.Time) { b.send(intended) })
	if err := clock.Pause(ctx, settleIn); err != nil {
		return err
	}
	return c.setFloor(b.sink.heard())
}

// tally is a Sink that counts, and gives back the place of a send that is done.
type tally struct {
	sends, frames atomic.Int64
	room          chan struct{}
	floor         atomic.Pointer[latencies]
}

// latencies are those of the floor's sends: few, so one lock is enough.
type latencies struct {
	mu sync.Mutex
	h  *hdrhistogram.Histogram
}

func (l *latencies) add(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.h.RecordValue(min(max(int64(d), 0), rundir.HighestNS)) // in range
}

// take gives a copy: a late one may still be added.
func (l *latencies) take() *hdrhistogram.Histogram {
	l.mu.Lock()
	defer l.mu.Unlock()
	return hdrhistogram.Import(l.h.Export())
}

func newTally() *tally {
	t := &tally{room: make(chan struct{}, devices*perDevice)}
	for range cap(t.room) {
		t.room <- struct{}{}
	}
	return t
}

func (t *tally) listen() { t.floor.Store(&latencies{h: rundir.NewHistogram()}) }

func (t *tally) heard() *hdrhistogram.Histogram { return t.floor.Swap(nil).take() }

// Send implements sample.Sink.
func (t *tally) Send(s sample.Send) {
	t.sends.Add(1)
	if h := t.floor.Load(); h != nil {
		h.add(s.Done.Sub(s.Intended))
	}
	select {
	case t.room <- struct{}{}:
	default: // one that came from the floor's plan
	}
}

// Frame implements sample.Sink.
func (t *tally) Frame(f sample.Frame) {
	if f.Dir == sample.Down && f.Type != sample.FEventDiscarded {
		t.frames.Add(1)
	}
}

// Deliver, Op and Reconnect implement sample.Sink; they are not looked at.
func (t *tally) Deliver(sample.Delivery) {}
func (t *tally) Op(sample.Op)            {}
func (t *tally) Reconnect(int32, int)    {}

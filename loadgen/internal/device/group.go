package device

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"imbench/loadgen/internal/clock"
	"imbench/loadgen/internal/payload"
	"imbench/loadgen/internal/population"
	"imbench/loadgen/internal/sample"
	"imbench/loadgen/protocol"
)

// MaxWaiting bounds the sends of all devices together that wait for a connection or for one of their device's InFlight
// places (about 100 bytes each). A send beyond it is reported at once as failed, with code CodeOverflow.
const MaxWaiting = 1 << 20

// Codes of sends that have no code of the wire.
const (
	CodeOverflow     = "overflow"     // more than MaxWaiting sends waited
	CodeTimeout      = "timeout"      // written, and no reply came before the end: the outcome is unknown
	CodeDisconnected = "disconnected" // never written: no connection, or no place, until the end
	CodeNoDevice     = "no_device"    // the plan names a device that the run does not connect
	CodeNotMember    = "NOT_MEMBER"   // the plan lets someone write who is no member: what a gateway would say, too
)

// Group is what the devices of a run share, and their owner: Start starts a device, Close ends them all.
type Group struct {
	cfg      Config
	wire     protocol.Wire
	can      protocol.Proofs
	pop      *population.Population
	sink     sample.Sink
	run      uint32
	ahead    time.Duration
	bodySize func(int64) int
	tokens   func(int32) string
	renew    func(ctx context.Context, device int32, refused string) bool // nil = there are no others
	counters *Counters
	welcome  func(gateway, environment string) // nil = nobody asks

	meanwhile func(now clock.Time) // nil = nothing

	convs   map[string]int32 // conversation id → population index
	heads   []atomic.Int64   // by conversation: the largest seq that a sent reply told; only Settled looks at it
	waiting atomic.Int64     // sends that wait inside devices
	looked  atomic.Int64     // the device at which Unread goes on
	devices []*Device        // by population index; nil = not part of the run

	ctx    context.Context // ends the devices
	cancel context.CancelFunc
	wheels []*wheel
	stop   context.CancelFunc // ends the wheels
	timers sync.WaitGroup
	alive  sync.WaitGroup
	last   atomic.Pointer[error] // why the latest connection or attempt failed
}

// GroupConfig is what NewGroup needs; all fields but those with "if given" must be set.
type GroupConfig struct {
	Device     Config
	Wire       protocol.Wire
	Population *population.Population
	Sink       sample.Sink
	Run        uint32
	BodySize   func(index int64) int
	Tokens     func(device int32) string
	Counters   *Counters
	// Renew, if given, is told which token of a device was refused. It waits until there is another, as Tokens then says, and
	// returns true, or false if there will be none.
	Renew func(ctx context.Context, device int32, refused string) bool
	// Ahead is how far this machine's clock is ahead of the one that bodies are written in; 0 but for workers on other machines.
	Ahead time.Duration
	// Meanwhile, if given, is called after each frame, by the goroutine that took it and without any device's lock. It may call
	// Send, and must not wait.
	Meanwhile func(now clock.Time)
	// Welcomed, if given, is told of each welcome which gateway it came from. It must not wait.
	Welcomed func(gateway, environment string)
}

// NewGroup prepares the devices that the population says are connected, and starts the timers. Close must be called.
func NewGroup(c GroupConfig) (*Group, error) {
	if len(c.Population.Convs) == 0 || c.Device.AckEvery < 1 || c.Device.InFlight < 1 {
		return nil, errors.New("device: no conversations, or AckEvery or InFlight below 1")
	}
	can := c.Wire.Proves()
	if err := can.Check(); err != nil {
		return nil, err
	}
	g := &Group{cfg: c.Device, wire: c.Wire, can: can, pop: c.Population, sink: c.Sink, run: c.Run, ahead: c.Ahead, bodySize: c.BodySize,
		tokens: c.Tokens, renew: c.Renew, counters: c.Counters, welcome: c.Welcomed, meanwhile: c.Meanwhile,
		convs: make(map[string]int32, len(c.Population.Convs)), heads: make([]atomic.Int64, len(c.Population.Convs)),
		devices: make([]*Device, len(c.Population.Devices))}
	for i := range g.pop.Convs {
		g.convs[g.pop.Convs[i].ID] = int32(i)
		g.heads[i].Store(g.pop.Start(int32(i)))
	}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	var timers context.Context
	timers, g.stop = context.WithCancel(context.Background())
	for range min(runtime.GOMAXPROCS(0), 4) {
		w := newWheel(clock.Now())
		g.wheels = append(g.wheels, w)
		g.timers.Go(func() { w.run(timers) })
	}
	for i := range g.pop.Devices {
		if g.pop.Devices[i].Connected {
			g.devices[i] = newDevice(g, int32(i))
		}
	}
	return g, nil
}

// Start connects a device to target and keeps it connected, there or at another of all. It must be called once at most
// for each device.
func (g *Group) Start(device int32, target string, all ...string) {
	d := g.devices[device]
	at := slices.Index(all, target)
	if at < 0 {
		all, at = []string{target}, 0
	}
	g.alive.Go(func() { d.life(g.ctx, all, at) })
}

// Send hands one arrival to its device. It does not wait. Sends of one device keep the order of the calls.
func (g *Group) Send(a *population.Arrival, intended clock.Time) {
	g.counters.Started.Add(1)
	start := clock.Now()
	code := CodeNoDevice
	if d := g.devices[a.Device]; d != nil {
		if g.waiting.Load() < MaxWaiting {
			d.send(a, intended, start)
			return
		}
		code = CodeOverflow
	}
	g.counters.Failed.Add(1)
	g.sink.Send(sample.Send{Plan: a.Index, Device: a.Device, Conv: a.Conv, Intended: intended, Start: start, Done: start, Code: code})
}

// Unsettled counts the devices that are not caught up, acknowledged and without pending sends, and says of the first
// few what they lack. A device is behind if it lacks anything that any device of the run was told is committed.
func (g *Group) Unsettled(say int) (n int, which []string) {
	for _, d := range g.devices {
		if d == nil {
			continue
		}
		if why := d.lacks(len(which) < say); why != "" {
			n++
			if len(which) < say {
				which = append(which, g.pop.Devices[d.index].ID+": "+why)
			}
		}
	}
	return n, which
}

// LastError is why the latest connection or attempt to connect failed; nil = none did.
func (g *Group) LastError() error {
	if p := g.last.Load(); p != nil {
		return *p
	}
	return nil
}

// Close ends all devices with a normal close, waits for them, and reports every send without an outcome as censored.
func (g *Group) Close() {
	g.cancel()
	for _, d := range g.devices {
		if d != nil {
			d.hangUp()
		}
	}
	g.alive.Wait()
	g.stop()
	g.timers.Wait()
	now := clock.Now()
	for _, d := range g.devices {
		if d != nil {
			d.censor(now)
		}
	}
}

// committed remembers the head of a conversation for Unsettled.
func (g *Group) committed(conv int32, seq int64) {
	for h := &g.heads[conv]; ; {
		old := h.Load()
		if seq <= old || h.CompareAndSwap(old, seq) {
			return
		}
	}
}

// intended reads what a body says of itself; plan is -1 for a body that is not one of this run's.
func (g *Group) intended(body string) (plan int64, at clock.Time) {
	run, plan, at, ok := payload.Parse(body)
	if !ok || run != g.run {
		return -1, 0
	}
	return plan, at.Add(g.ahead)
}

// Heads are the largest seqs that sent replies told, one for each conversation.
func (g *Group) Heads() []int64 {
	heads := make([]int64, len(g.heads))
	for i := range g.heads {
		heads[i] = g.heads[i].Load()
	}
	return heads
}

// Raise tells of what was committed for devices of another group, so that Unsettled knows of it. heads are as from Heads.
func (g *Group) Raise(heads []int64) {
	for i, h := range heads[:min(len(heads), len(g.heads))] {
		g.committed(int32(i), h)
	}
}

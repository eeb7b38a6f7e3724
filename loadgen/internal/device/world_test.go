package device

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"imbench/loadgen/internal/clock"
	"imbench/loadgen/internal/payload"
	"imbench/loadgen/internal/population"
	"imbench/loadgen/internal/sample"
	"imbench/loadgen/internal/testgate"
	"imbench/loadgen/protocol"
	"imbench/server/wire"
)

// notes is a Sink that remembers.
type notes struct {
	mu         sync.Mutex
	frames     []sample.Frame
	sends      []sample.Send
	deliveries []sample.Delivery
	ops        []sample.Op
	reconnects []int
}

func (n *notes) Frame(f sample.Frame) { n.mu.Lock(); n.frames = append(n.frames, f); n.mu.Unlock() }
func (n *notes) Send(s sample.Send)   { n.mu.Lock(); n.sends = append(n.sends, s); n.mu.Unlock() }
func (n *notes) Op(o sample.Op)       { n.mu.Lock(); n.ops = append(n.ops, o); n.mu.Unlock() }
func (n *notes) Reconnect(_ int32, c int) {
	n.mu.Lock()
	n.reconnects = append(n.reconnects, c)
	n.mu.Unlock()
}
func (n *notes) Deliver(d sample.Delivery) {
	n.mu.Lock()
	n.deliveries = append(n.deliveries, d)
	n.mu.Unlock()
}

func (n *notes) frameCount(t sample.FrameType, d sample.Dir) (c int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, f := range n.frames {
		if f.Type == t && f.Dir == d {
			c++
		}
	}
	return c
}

// applied are the deliveries that a device applied in a conversation.
func (n *notes) applied(dev, conv int32) (list []sample.Delivery) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, d := range n.deliveries {
		if d.Device == dev && d.Conv == conv && d.Applied() {
			list = append(list, d)
		}
	}
	return list
}

// world is a population of users with one device each, all members of all conversations, before a gate in memory.
type world struct {
	t    *testing.T
	pop  *population.Population
	gate *testgate.Gate
	wire *testgate.Wire
	cfg  Config
	sink *notes
	g    *Group
	n    Counters
	plan int64

	meanwhile func(clock.Time)
}

const run = 7

func newWorld(t *testing.T, users int, modes ...string) *world {
	p := &population.Population{Namespace: "t"}
	for i := range users {
		u := population.User{ID: fmt.Sprintf("t-u%d", i), Devices: []int32{int32(i)}}
		for c := range modes {
			u.Convs = append(u.Convs, int32(c))
		}
		p.Users = append(p.Users, u)
		p.Devices = append(p.Devices, population.Device{ID: fmt.Sprintf("t-u%d-d1", i), User: int32(i), Connected: true})
	}
	for c, mode := range modes {
		conv := population.Conv{ID: fmt.Sprintf("t-g%d", c), Kind: "group", Mode: mode}
		for i := range users {
			conv.Members = append(conv.Members, int32(i))
		}
		p.Convs = append(p.Convs, conv)
	}
	w := &world{t: t, pop: p, gate: testgate.New(p), cfg: Default(), sink: &notes{}}
	w.wire = &testgate.Wire{Gate: w.gate, Delay: 5 * time.Millisecond}
	w.cfg.Seed = 1
	return w
}

// start connects all devices and waits until they are ready; they are closed at the end of the test.
func (w *world) start() {
	w.t.Helper()
	w.open()
	for i := range w.pop.Devices {
		w.g.Start(int32(i), "mem")
	}
	w.wait(time.Second)
	if n := w.n.Ready.Load(); n != int64(len(w.pop.Devices)) {
		w.t.Fatalf("%d of %d devices ready; last error: %v", n, len(w.pop.Devices), w.g.LastError())
	}
}

func (w *world) open() {
	w.t.Helper()
	w.openOn(w.wire)
}

func (w *world) openOn(wire protocol.Wire) {
	w.t.Helper()
	var err error
	w.g, err = NewGroup(GroupConfig{Device: w.cfg, Wire: wire, Population: w.pop, Sink: w.sink, Run: run,
		BodySize: func(int64) int { return 200 }, Tokens: func(int32) string { return "" }, Counters: &w.n, Meanwhile: w.meanwhile})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { w.g.Close() })
}

// wait lets virtual time pass, and what becomes due in it happen.
func (w *world) wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (w *world) body() (string, clock.Time) {
	w.plan++
	now := clock.Now()
	return string(payload.Append(nil, run, 1_000_000+w.plan, now, 200)), now
}

// post commits a message of a user without a connection of its own in the way, and returns its intended time.
func (w *world) post(conv string) clock.Time {
	body, at := w.body()
	w.gate.Post(conv, "nobody", fmt.Sprintf("post-%d", w.plan), body)
	return at
}

func (w *world) send(dev, conv int32) {
	w.plan++
	w.g.Send(&population.Arrival{Index: w.plan, Conv: conv, Device: dev, CMID: fmt.Sprintf("cmid-%d", w.plan)}, clock.Now())
}

// complete fails unless the device has applied all of the log after the join events, once and in order.
func (w *world) complete(dev, conv int32) []sample.Delivery {
	w.t.Helper()
	got := w.sink.applied(dev, conv)
	log := w.gate.Log(w.pop.Convs[conv].ID)[len(w.pop.Convs[conv].Members):]
	if len(got) != len(log) {
		w.t.Fatalf("device %d applied %d of %d events of conversation %d", dev, len(got), len(log), conv)
	}
	for i, d := range got {
		if d.Seq != log[i].Seq || d.MID != log[i].MID || d.BodyHash != payload.Hash(log[i].Body) {
			w.t.Fatalf("device %d applied %+v where the log has %+v", dev, d, log[i])
		}
	}
	return got
}

// settled fails unless the group says that every device has and has acknowledged everything.
func (w *world) settled() {
	w.t.Helper()
	if n, why := w.g.Unsettled(5); n != 0 {
		w.t.Fatalf("%d devices unsettled: %v", n, why)
	}
}

func (w *world) requests(t wire.Type) []testgate.Seen { return w.gate.Requests(t) }

package device

import (
	"slices"
	"strings"

	"imbench/loadgen/internal/clock"
	"imbench/loadgen/internal/population"
	"imbench/loadgen/internal/sample"
	"imbench/loadgen/protocol"
)

// maxAsks bounds the requests of a device that wait for an answer or for a connection; one more fails with CodeOverflow.
const maxAsks = 64

// Codes of asks that have no code of the wire.
const (
	codeNotOnWire  = "not_on_this_wire" // it has no such request
	codeWrongEvent = "wrong_event"      // the answer is another event than the one that was asked for
)

// ask is a request of the plan that changes nothing: for one event, or for the list of conversations. Its latency begins with
// the intended time: what waits for a connection waits.
type ask struct {
	kind     sample.OpKind // OpFetch, OpList
	intended clock.Time
	at       clock.Time // last written; 0 = to be written (again)
	again    clock.Time // not before this, if at is 0
	draw     float64    // fetch: which event
	seq      int64      // fetch: that one; 0 = not chosen yet
	after    string     // list: the next page comes after this
	id       uint32     // never 0, which the list of a new session has; each page of a list has another
	slot     int16      // fetch
	written  bool       // at some time
}

// asks are a device's requests without an answer, in order.
type asks struct {
	list []ask
	last uint32 // id
}

// Fetch lets a device ask for one event of a conversation, evenly drawn among those that the run provisioned last or that it
// has applied since. It does not wait.
func (g *Group) Fetch(a *population.Arrival, intended clock.Time) { g.ask(sample.OpFetch, a, intended) }

// List lets a device ask for its list of conversations, page by page. It does not wait.
func (g *Group) List(a *population.Arrival, intended clock.Time) { g.ask(sample.OpList, a, intended) }

func (g *Group) ask(kind sample.OpKind, a *population.Arrival, intended clock.Time) {
	fail := func(code string) {
		g.sink.Op(sample.Op{Kind: kind, Device: a.Device, Start: intended, Done: clock.Now(), Code: code})
	}
	d := g.devices[a.Device]
	switch {
	case d == nil:
		fail(CodeNoDevice)
		return
	case kind == sample.OpFetch && !g.can.Seqs || kind == sample.OpList && !g.can.Lists:
		fail(codeNotOnWire)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	x := ask{kind: kind, intended: intended, draw: a.Draw, slot: -1}
	if kind == sample.OpFetch {
		x.slot = int16(d.slot(a.Conv))
	}
	if d.asks == nil {
		d.asks = &asks{}
	}
	switch {
	case kind == sample.OpFetch && x.slot < 0:
		fail(CodeNotMember)
	case len(d.asks.list) >= maxAsks:
		fail(CodeOverflow)
	default:
		x.id = d.asks.freeID()
		d.asks.list = append(d.asks.list, x)
		if d.state == ready {
			d.firstAsk(len(d.asks.list)-1, clock.Now())
		}
	}
}

// freeID is the next number that no request without an answer carries.
func (a *asks) freeID() uint32 {
	for {
		if a.last++; a.last > protocol.MaxRequestID {
			a.last = 1
		}
		if !slices.ContainsFunc(a.list, func(x ask) bool { return x.id == a.last }) {
			return a.last
		}
	}
}

// find gives the index of the request that an answer belongs to, or -1: what was asked twice is answered twice.
func (a *asks) find(kind sample.OpKind, id uint32) int {
	if a == nil {
		return -1
	}
	return slices.IndexFunc(a.list, func(x ask) bool { return x.kind == kind && x.id == id })
}

// waiting is how many requests have no answer.
func (a *asks) waiting() int {
	if a == nil {
		return 0
	}
	return len(a.list)
}

// firstAsk writes a request in a session that has not seen it, and says whether the wire has one like it; if not, it has failed.
// mu must be held.
func (d *Device) firstAsk(i int, now clock.Time) bool {
	if d.writeAsk(&d.asks.list[i]) {
		return true
	}
	d.answered(i, now, codeNotOnWire, false)
	return false
}

// writeAsk writes a request, for the first time or again; false: the wire has none like it. mu must be held.
func (d *Device) writeAsk(x *ask) bool {
	now := clock.Now()
	var n int
	var err error
	x.at, x.again, x.written = now, 0, true
	if x.kind == sample.OpList {
		n, err = d.try(&protocol.Request{Op: protocol.OpList, ID: x.id, AfterID: x.after, Limit: protocol.MaxPage}, sample.FConvs, x.intended)
	} else {
		conv := &d.g.pop.Convs[d.convIndex(int(x.slot))]
		if x.seq == 0 { // what the run began with, the last of the joins, which all may see, or what came after it
			base := max(1, d.g.pop.Start(d.convIndex(int(x.slot))))
			x.seq = base + int64(x.draw*float64(max(0, d.convs[x.slot].cursor-base)+1))
		}
		n, err = d.try(&protocol.Request{Op: protocol.OpFetch, ID: x.id, Conv: conv.ID, Seq: x.seq}, sample.FFetch, x.intended)
	}
	d.arm(now.Add(d.g.cfg.ResendAfter))
	return n > 0 || err != nil // what a session that has just ended swallows is written again
}

// resumeAsks writes again what the last session left open, or writes what waited for one.
func (d *Device) resumeAsks(now clock.Time) {
	if d.asks == nil {
		return
	}
	for i := 0; i < len(d.asks.list); {
		if d.asks.list[i].at != 0 || d.firstAsk(i, now) {
			i++
		}
	}
}

// dropAsks puts what is under way back to where the next session takes it up.
func (d *Device) dropAsks() {
	if d.asks == nil {
		return
	}
	for i := range d.asks.list {
		d.asks.list[i].at, d.asks.list[i].again = 0, 0
	}
}

// tickAsks asks again what had no answer in time.
func (d *Device) tickAsks(now clock.Time) {
	if d.asks == nil {
		return
	}
	for i := range d.asks.list {
		if d.asks.list[i].due(d) <= now {
			d.writeAsk(&d.asks.list[i])
		}
	}
}

// due is when the request is to be written again.
func (x *ask) due(d *Device) clock.Time {
	if x.at != 0 {
		return x.at.Add(d.g.cfg.ResendAfter)
	}
	return x.again
}

// replied counts the frame of an answer and finds its request: x is nil if it was answered before.
func (d *Device) replied(kind sample.OpKind, t sample.FrameType, f *protocol.Frame, now clock.Time) (i int, x *ask) {
	msg := clock.Time(0)
	if i = d.asks.find(kind, f.ID); i >= 0 {
		x = &d.asks.list[i]
		msg = x.intended
	}
	d.frame(sample.Down, t, f.Bytes, now, msg)
	return i, x
}

// fetched is the answer to a fetch.
func (d *Device) fetched(f *protocol.Frame, now clock.Time) {
	i, x := d.replied(sample.OpFetch, sample.FFetched, f, now)
	if x == nil {
		return
	}
	code := ""
	if f.Event.Seq != x.seq || f.Event.Conv != d.g.pop.Convs[d.convIndex(int(x.slot))].ID {
		code = codeWrongEvent
	}
	if conv, known := d.g.convs[f.Event.Conv]; known {
		e := d.read(&f.Event)
		d.g.sink.Deliver(d.delivery(conv, &e, sample.Fetched, now))
	}
	d.answered(i, now, code, false)
}

// listedAsk is a page of a list that the plan has asked for.
func (d *Device) listedAsk(f *protocol.Frame, now clock.Time) {
	i, x := d.replied(sample.OpList, sample.FConvs, f, now)
	if x == nil {
		return
	}
	if f.More && f.Next > x.after { // a page that leads nowhere is the last
		x.after = strings.Clone(f.Next)
		x.id = d.asks.freeID() // if this page was asked for twice, its second answer is not one to the next
		d.writeAsk(x)
		return
	}
	d.answered(i, now, "", false)
}

// askRefused handles an error reply: the request is repeated if it may succeed.
func (d *Device) askRefused(kind sample.OpKind, f *protocol.Frame, now clock.Time) clock.Time {
	i := d.asks.find(kind, f.ID)
	if i < 0 {
		return 0
	}
	x := &d.asks.list[i]
	if again, after := d.unknown(f); again {
		x.at, x.again = 0, now.Add(after)
		d.arm(x.again)
		return x.intended
	}
	msg := x.intended
	d.answered(i, now, strings.Clone(f.Code), false)
	return msg
}

// answered reports the end of a request and forgets it.
func (d *Device) answered(i int, now clock.Time, code string, censored bool) {
	x := &d.asks.list[i]
	d.g.sink.Op(sample.Op{Kind: x.kind, Device: d.index, Start: x.intended, Done: now, Code: code, Censored: censored})
	if d.asks.list = slices.Delete(d.asks.list, i, i+1); len(d.asks.list) == 0 {
		d.asks.list = nil
	}
}

// censorAsks reports what has no answer at the end of the run, with the time it has waited; mu must be held.
func (d *Device) censorAsks(now clock.Time) {
	for d.asks.waiting() > 0 {
		code := CodeTimeout
		if !d.asks.list[0].written {
			code = CodeDisconnected
		}
		d.answered(0, now, code, true)
	}
}

package population

import (
	"strings"
	"time"

	"imbench/loadgen/internal/behavior"
	"imbench/model/capacity"
	"imbench/reports/rundir"
	"imbench/server/wire"
)

// Expected is what a run of the plan must show for its measured window.
type Expected struct {
	// Figures go by the names of package capacity, each in the unit given there.
	Figures map[string]float64
	// Window and Total are the messages of the measured window and of the whole plan.
	Window, Total int64
	// Due is how many devices apply a message of the window, by push or by a sync after a hint, its sender's apart.
	Due float64
}

// Timing is what passes in a run between cause and effect, on average; Expect adds it to the plan's instants. In the zero
// value nothing takes time. Pushes need no entry: a push that comes late delays the sweep's view of it just as much.
type Timing struct {
	Ack   time.Duration // from a device's acknowledgement until the gateway that sweeps knows of it
	Sync  time.Duration // from what makes a device ask until the log is read for it
	Gap   time.Duration // how long a device leaves a gap alone that its own message has shown
	Timer time.Duration // how late a device's timers fire
}

// phases is how many moments within the sweep's period are tried. When a gateway sweeps is not in the plan and changes
// which losses the sweep finds first: the hints of one phase differ from another's by half a percent.
const phases = 8

// Expect walks the realised plan and counts what a run must show. What depends only on the plan (messages, pushes,
// losses, rows and bytes of them) is exact; acknowledgements, syncs and hints depend on latency and on the sweep's phase
// too, and are the mean over all phases of what devices and gateways do with the given timing. ridBytes is the length of
// the devices' request ids. Its memory is the conversations that wait for something, and four bytes for every
// conversation.
//
// What counts for the window follows the recorder's rule: a frame belongs to the moment in which its message was
// intended, an acknowledgement to that of its last covered message, a sync or hint to that of the missing one.
func (p *Plan) Expect(ridBytes int, timing Timing) Expected {
	f := &forecast{plan: p, timing: timing, from: p.s.Phases.Warmup, to: p.s.Phases.Warmup + p.s.Phases.Measure,
		heads: make([]int32, len(p.pop.Convs)), live: map[int32]*talk{}, rid: strings.Repeat("0", ridBytes),
		body: strings.Repeat("x", p.bodies.most()), mid: strings.Repeat("0", 36)}
	var total int64
	settled := time.Duration(0)
	for arrivals := p.Arrivals(); ; total++ {
		a, ok := arrivals.Next()
		if !ok {
			break
		}
		if a.At >= settled {
			f.settle(a.At)
			settled = a.At + time.Second
		}
		f.message(a)
	}
	f.settle(never)
	e := f.result(total)
	for figure, stream := range map[string]Arrivals{rundir.FetchRate: p.Fetches(), rundir.ConvsRate: p.Lists()} {
		if stream != nil {
			n, _ := p.Asked(stream)
			e.Figures[figure] = float64(n) / p.s.Phases.Measure.Seconds()
		}
	}
	return e
}

// forecast is a walk through the plan.
type forecast struct {
	plan     *Plan
	timing   Timing
	from, to time.Duration   // the measured window
	heads    []int32         // messages so far, by conversation
	live     map[int32]*talk // conversations in which someone waits for something
	count    tally
	buf      []byte

	rid, body, mid string
}

// tally is what was counted for the window. What may differ between phases is counted in each.
type tally struct {
	messages, pushes, discarded, pushBytes, sentBytes int64 // once
	hinted                                            int64 // once: deliveries to devices that read what they are hinted at
	hints, syncs, acks, applied, replyBytes           int64 // once in every phase
}

// talk is a conversation in which someone waits for something.
type talk struct {
	conv  int32
	swept bool // hints come from the repair sweep: it is pushed, and only losses need them
	head  int64
	pairs []pair
}

// entry is an event in its conversation's log.
type entry struct {
	at    time.Duration // intended
	seq   int64
	bytes int  // of its object in a sync's reply
	own   bool // the device's: told by the reply, never pushed to it
}

func (f *forecast) counts(at time.Duration) bool { return at >= f.from && at < f.to }

// settle brings every live conversation to now and forgets those in which nobody waits any more.
func (f *forecast) settle(now time.Duration) {
	for conv, t := range f.live {
		waiting := false
		for i := range t.pairs {
			f.advance(t, &t.pairs[i], now)
			waiting = waiting || t.pairs[i].waits()
		}
		if !waiting {
			delete(f.live, conv)
		}
	}
}

// talk is the conversation with everyone who is connected in it, at the time now.
func (f *forecast) talk(conv int32, now time.Duration) *talk {
	t := f.live[conv]
	if t == nil {
		c := &f.plan.pop.Convs[conv]
		t = &talk{conv: conv, swept: !c.Hinted(f.plan.s.Delivery)}
		for _, d := range f.plan.pop.connected(nil, conv) {
			t.pairs = append(t.pairs, newPair(d, t.swept || behavior.Reads(f.plan.seed, d, conv, c.ReadBy(f.plan.s.Devices.ReadingShare))))
		}
		f.live[conv] = t
	}
	for i := range t.pairs {
		f.advance(t, &t.pairs[i], now)
	}
	return t
}

// message is one arrival, which is committed, answered and pushed at once.
func (f *forecast) message(a Arrival) {
	t := f.talk(a.Conv, a.At)
	conv := &f.plan.pop.Convs[a.Conv]
	f.heads[a.Conv]++
	t.head = f.plan.pop.Start(a.Conv) + int64(f.heads[a.Conv])
	ev := wire.Event{Conv: conv.ID, Seq: t.head, Kind: "msg", MID: f.mid, CMID: a.CMID, Body: f.body[:f.plan.BodySize(a.Index)],
		Sender: f.plan.pop.Users[f.plan.pop.Devices[a.Device].User].ID, At: 1_700_000_000_000}
	frame := f.size(&wire.Frame{T: wire.TEvent, Ev: ev})
	item := entry{at: a.At, seq: t.head, bytes: frame - len(`{"t":"event","ev":}`)}
	if f.counts(a.At) {
		f.count.messages++
		f.count.sentBytes += int64(f.size(&wire.Frame{T: wire.TSent, RID: f.rid, Conv: conv.ID, Seq: t.head, MID: f.mid, Epoch: 1}))
	}
	for i := range t.pairs {
		p := &t.pairs[i]
		switch item.own = p.device == a.Device; {
		case item.own:
			if p.reads { // behind a gap that it leaves open, its own event is not applied
				f.each(t, p, item, (*forecast).apply)
			}
		case t.swept:
			f.push(t, p, item, frame)
		default:
			f.announce(t, p, item)
		}
	}
}

// push is an event frame to a device, which loses it, applies it, or sees by it that it lost others.
func (f *forecast) push(t *talk, p *pair, item entry, frame int) {
	lost := behavior.Lost(f.plan.seed, p.device, t.conv, item.seq, f.plan.s.Devices.Loss)
	if f.counts(item.at) {
		f.count.pushes++
		f.count.pushBytes += int64(frame)
		if lost {
			f.count.discarded++
		}
	}
	if lost {
		f.each(t, p, item, (*forecast).lose)
		return
	}
	f.each(t, p, item, (*forecast).apply)
}

// announce holds a hint for a device that pulls.
func (f *forecast) announce(t *talk, p *pair, item entry) {
	if p.reads && f.counts(item.at) {
		f.count.hinted++
	}
	c := &f.plan.pop.Convs[t.conv]
	if above := c.OpenOnlyAbove(f.plan.s.Delivery.OpenOnlyAbove); above > 0 && len(c.Members) > above && !p.reads {
		return // only those who read have it open
	}
	f.each(t, p, item, (*forecast).hold)
}

func (f *forecast) size(frame *wire.Frame) int {
	f.buf = wire.AppendFrame(f.buf[:0], frame)
	return len(f.buf)
}

func (f *forecast) result(total int64) Expected {
	c, seconds := f.count, f.plan.s.Phases.Measure.Seconds()
	rate := func(n int64) float64 { return float64(n) / seconds }
	mean := func(n int64) float64 { return float64(n) / phases / seconds }
	ratio := func(a, b int64) float64 {
		if b == 0 {
			return 0
		}
		return float64(a) / float64(b)
	}
	return Expected{Window: c.messages, Total: total, Due: ratio(c.pushes+c.hinted, c.messages), Figures: map[string]float64{
		capacity.Messages:        rate(c.messages),
		capacity.PushFrames:      rate(c.pushes),
		capacity.DiscardedFrames: rate(c.discarded),
		capacity.HintFrames:      mean(c.hints),
		capacity.SyncFrames:      mean(c.syncs),
		capacity.AckFrames:       mean(c.acks),
		capacity.DownFrames:      rate(c.pushes+c.messages) + mean(c.hints+c.syncs+c.acks),
		capacity.EventRows:       rate(c.messages),
		capacity.CursorRows:      mean(c.acks),
		capacity.PushBytes:       rate(c.pushBytes),
		capacity.DownBytes:       rate(c.pushBytes+c.sentBytes) + mean(c.replyBytes),
		capacity.Deliveries:      ratio(c.pushes, c.messages),
		capacity.EffectiveAck:    ratio(c.applied, c.acks),
	}}
}

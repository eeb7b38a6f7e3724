package population

import (
	"math"
	"strings"
	"time"

	"imbench/loadgen/internal/behavior"
	"imbench/model/capacity"
	"imbench/server/wire"
)

// Expected is what a run of the plan must show for its measured window.
type Expected struct {
	// Figures go by the names of package capacity, each in the unit given there.
	Figures map[string]float64
	// Window and Total are the messages of the measured window and of the whole plan.
	Window, Total int64
}

// Expect walks the realised plan and counts what a run must show, as if the network took no time. What depends only on
// the plan (messages, pushes, losses, rows and bytes of them) is exact; acknowledgements, syncs and hints depend on
// latency too, and are what devices and gateways do when there is none. ridBytes is the length of the devices' request
// ids. Its memory is the conversations that wait for something, and four bytes for every conversation.
//
// What counts for the window follows the recorder's rule: a frame belongs to the moment in which its message was
// intended, an acknowledgement to that of its last covered message, a sync or hint to that of the missing one.
func (p *Plan) Expect(ridBytes int) Expected {
	f := &forecast{plan: p, from: p.s.Phases.Warmup, to: p.s.Phases.Warmup + p.s.Phases.Measure,
		heads: make([]int32, len(p.pop.Convs)), live: map[int32]*talk{}, rid: strings.Repeat("0", ridBytes),
		body: strings.Repeat("x", p.s.Load.BodyBytes), mid: strings.Repeat("0", 36)}
	var total int64
	swept := time.Duration(0)
	for arrivals := p.Arrivals(); ; total++ {
		a, ok := arrivals.Next()
		if !ok {
			break
		}
		if a.At >= swept {
			f.settle(a.At)
			swept = a.At + time.Second
		}
		f.message(a)
	}
	f.settle(math.MaxInt64)
	return f.result(total)
}

// forecast is a walk through the plan.
type forecast struct {
	plan     *Plan
	from, to time.Duration   // the measured window
	heads    []int32         // messages so far, by conversation
	live     map[int32]*talk // conversations in which someone waits for something
	count    tally
	buf      []byte

	rid, body, mid string
}

// tally is what was counted for the window.
type tally struct {
	messages, pushes, discarded, hints, syncs, acks, applied int64
	pushBytes, downBytes                                     int64
}

// talk is a conversation in which someone waits for something.
type talk struct {
	conv  int32
	head  int64
	pairs []pair
}

// pair is a connected device in a conversation.
type pair struct {
	device  int32
	unacked int           // applied events that no acknowledgement covers
	first   time.Duration // when the first of them was applied
	told    time.Duration // when the first of them was pushed: earlier, if it was lost and repaired
	last    entry         // the last of them
	missing []entry       // what it has not got, oldest first; the last may be its own
	due     time.Duration // when a hint will tell it, if the conversation is hinted
	hinted  bool          // by the sweep, since its last acknowledgement
}

// entry is an event in its conversation's log.
type entry struct {
	at    time.Duration // intended
	seq   int64
	bytes int // of its object in a sync's reply
}

func (f *forecast) counts(at time.Duration) bool { return at >= f.from && at < f.to }

// settle brings every live conversation to now and forgets those in which nobody waits any more.
func (f *forecast) settle(now time.Duration) {
	for conv, t := range f.live {
		waiting := false
		for i := range t.pairs {
			f.advance(t, &t.pairs[i], now)
			waiting = waiting || t.pairs[i].unacked > 0 || len(t.pairs[i].missing) > 0
		}
		if !waiting {
			delete(f.live, conv)
		}
	}
}

// advance lets what is due until now happen in a pair: the acknowledgement timer, and the hint with its sync.
func (f *forecast) advance(t *talk, p *pair, now time.Duration) {
	for {
		ackAt, hintAt := time.Duration(math.MaxInt64), time.Duration(math.MaxInt64)
		if p.unacked > 0 {
			ackAt = p.first + f.plan.s.Devices.AckDelay
		}
		if f.swept(t.conv) {
			hintAt = f.sweepAt(p)
		} else if len(p.missing) > 0 {
			hintAt = p.due
		}
		if min(ackAt, hintAt) > now || min(ackAt, hintAt) == math.MaxInt64 {
			return
		}
		if ackAt <= hintAt {
			f.ack(t, p)
			continue
		}
		p.hinted = f.swept(t.conv)
		if len(p.missing) == 0 { // it has all, and acknowledges when it is asked
			f.hint(t, p.last.at, true)
			f.ack(t, p)
			continue
		}
		f.hint(t, p.missing[0].at, f.swept(t.conv))
		f.sync(t, p, hintAt)
	}
}

// sweepAt is when the sweep hints at the oldest event that a device was told and has not acknowledged: at the first whole
// period of the plan after the grace. That may be one which it lost, or one which it got so late by a sync that it still
// waits to acknowledge. The next hint is a grace later; by then it has acknowledged, since the grace is the longer wait.
func (f *forecast) sweepAt(p *pair) time.Duration {
	told := p.told
	switch {
	case p.hinted || p.unacked == 0 && len(p.missing) == 0:
		return math.MaxInt64
	case p.unacked == 0:
		told = p.missing[0].at
	}
	period := f.plan.s.Server.Sweep
	return (told + f.plan.s.Server.Grace + period - 1) / period * period
}

// message is one arrival: it is committed, answered and delivered at once.
func (f *forecast) message(a Arrival) {
	t := f.live[a.Conv]
	conv := &f.plan.pop.Convs[a.Conv]
	if t == nil {
		t = &talk{conv: a.Conv}
		for _, d := range f.plan.pop.connected(nil, a.Conv) {
			t.pairs = append(t.pairs, pair{device: d})
		}
		f.live[a.Conv] = t
	}
	for i := range t.pairs {
		f.advance(t, &t.pairs[i], a.At)
	}
	f.heads[a.Conv]++
	t.head = int64(len(conv.Members)) + int64(f.heads[a.Conv])
	ev := wire.Event{Conv: conv.ID, Seq: t.head, Kind: "msg", MID: f.mid, CMID: a.CMID, Body: f.body,
		Sender: f.plan.pop.Users[f.plan.pop.Devices[a.Device].User].ID, At: 1_700_000_000_000}
	frame := f.size(&wire.Frame{T: wire.TEvent, Ev: ev})
	item := entry{a.At, t.head, frame - len(`{"t":"event","ev":}`)}
	if f.counts(a.At) {
		f.count.messages++
		f.count.downBytes += int64(f.size(&wire.Frame{T: wire.TSent, RID: f.rid, Conv: conv.ID, Seq: t.head, MID: f.mid, Epoch: 1}))
	}
	for i := range t.pairs {
		p := &t.pairs[i]
		switch {
		case p.device == a.Device:
			if f.reads(a.Conv, p.device) { // behind a gap that it leaves open, its own event is not applied
				f.apply(t, p, item, a.At)
			}
		case f.plan.s.Hinted(conv.Mode, len(conv.Members)):
			f.announce(t, p, item)
		default:
			f.push(t, p, item, frame)
		}
	}
}

// push is an event frame to a device, which loses it, applies it, or sees by it that it lost others.
func (f *forecast) push(t *talk, p *pair, item entry, frame int) {
	s := f.plan.s
	lost := behavior.Lost(f.plan.seed, p.device, t.conv, t.head, s.Devices.Loss)
	if f.counts(item.at) {
		f.count.pushes++
		f.count.pushBytes += int64(frame)
		f.count.downBytes += int64(frame)
		if lost {
			f.count.discarded++
		}
	}
	if !lost {
		f.apply(t, p, item, item.at)
		return
	}
	p.missing = append(p.missing, item)
}

// announce holds a hint for a device that pulls; the first event of the window decides when it leaves.
func (f *forecast) announce(t *talk, p *pair, item entry) {
	s := f.plan.s
	if above := s.Delivery.OpenOnlyAbove; above > 0 && len(f.plan.pop.Convs[t.conv].Members) > above && !f.reads(t.conv, p.device) {
		return // only those who read have it open
	}
	if len(p.missing) == 0 {
		p.due = item.at + s.Delivery.HintWindow
	}
	p.missing = append(p.missing, item)
}

// apply is an event that a device has in hand at the time now; a gap before it makes it sync first.
func (f *forecast) apply(t *talk, p *pair, item entry, now time.Duration) {
	if len(p.missing) > 0 {
		p.missing = append(p.missing, item)
		if !f.swept(t.conv) {
			return // its own event while a hint is on its way: that sync brings both
		}
		f.sync(t, p, now)
		return
	}
	f.take(t, p, item, now)
}

// sync brings a device everything that it misses, in one reply.
func (f *forecast) sync(t *talk, p *pair, now time.Duration) {
	missing := p.missing
	p.missing = p.missing[:0]
	if !f.reads(t.conv, p.device) {
		return
	}
	if f.counts(missing[0].at) {
		f.count.syncs++
		reply := wire.Frame{T: wire.TSynced, RID: f.rid, Conv: f.plan.pop.Convs[t.conv].ID, Head: t.head, NextAfter: t.head, Epoch: 1}
		bytes := f.size(&reply) + len(missing) - 1 // commas
		for _, m := range missing {
			bytes += m.bytes
		}
		f.count.downBytes += int64(bytes)
	}
	for _, m := range missing {
		f.take(t, p, m, now)
	}
}

// take is one event applied; it counts towards the next acknowledgement.
func (f *forecast) take(t *talk, p *pair, item entry, now time.Duration) {
	if f.counts(item.at) {
		f.count.applied++
	}
	if p.unacked == 0 {
		p.first, p.told = now, item.at
	}
	p.unacked++
	p.last = item
	if p.unacked >= f.plan.s.Devices.AckEvery {
		f.ack(t, p)
	}
}

func (f *forecast) ack(t *talk, p *pair) {
	p.unacked, p.hinted = 0, false
	if f.counts(p.last.at) {
		f.count.acks++
		f.count.downBytes += int64(f.size(&wire.Frame{T: wire.TAcked, RID: f.rid, Conv: f.plan.pop.Convs[t.conv].ID, Delivered: p.last.seq}))
	}
}

func (f *forecast) hint(t *talk, missing time.Duration, sweep bool) {
	if !f.counts(missing) {
		return
	}
	hint := wire.Frame{T: wire.THint, Conv: f.plan.pop.Convs[t.conv].ID, Head: t.head}
	if sweep {
		hint.Why = "sweep"
	}
	f.count.hints++
	f.count.downBytes += int64(f.size(&hint))
}

// swept says whether hints of the conversation come from the repair sweep: it is pushed, and only losses need them.
func (f *forecast) swept(conv int32) bool {
	c := &f.plan.pop.Convs[conv]
	return !f.plan.s.Hinted(c.Mode, len(c.Members))
}

// reads says whether the device keeps up with the conversation: always if it is pushed.
func (f *forecast) reads(conv, device int32) bool {
	return f.swept(conv) || behavior.Reads(f.plan.seed, device, conv, f.plan.s.Devices.ReadingShare)
}

func (f *forecast) size(frame *wire.Frame) int {
	f.buf = wire.AppendFrame(f.buf[:0], frame)
	return len(f.buf)
}

func (f *forecast) result(total int64) Expected {
	c, seconds := f.count, f.plan.s.Phases.Measure.Seconds()
	rate := func(n int64) float64 { return float64(n) / seconds }
	ratio := func(a, b int64) float64 {
		if b == 0 {
			return 0
		}
		return float64(a) / float64(b)
	}
	return Expected{Window: c.messages, Total: total, Figures: map[string]float64{
		capacity.Messages:        rate(c.messages),
		capacity.PushFrames:      rate(c.pushes),
		capacity.DiscardedFrames: rate(c.discarded),
		capacity.HintFrames:      rate(c.hints),
		capacity.SyncFrames:      rate(c.syncs),
		capacity.AckFrames:       rate(c.acks),
		capacity.DownFrames:      rate(c.pushes + c.hints + c.syncs + c.acks + c.messages),
		capacity.EventRows:       rate(c.messages),
		capacity.CursorRows:      rate(c.acks),
		capacity.PushBytes:       rate(c.pushBytes),
		capacity.DownBytes:       rate(c.downBytes),
		capacity.Deliveries:      ratio(c.pushes, c.messages),
		capacity.EffectiveAck:    ratio(c.applied, c.acks),
	}}
}

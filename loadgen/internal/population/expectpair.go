package population

import (
	"math"
	"slices"
	"time"

	"imbench/server/wire"
)

// never is later than everything.
const never = time.Duration(math.MaxInt64)

// pair is a connected device in a conversation. It has one world as long as the sweep's phase makes no difference, else
// one for each phase, until all are alike again.
type pair struct {
	device int32
	reads  bool // it keeps up with the conversation
	worlds []world
}

// world is how a pair stands in a run whose sweep has one of the phases from <= phase < to.
type world struct {
	from, to int
	unacked  int           // applied events that no acknowledgement covers
	first    time.Duration // when the first of them was applied
	told     time.Duration // when the first of them that was pushed was pushed: earlier, if it was lost and repaired
	last     entry         // the last event applied
	missing  []entry       // what it has not got, oldest first; the last may be its own
	asked    time.Duration // when the log is read for it
	due      time.Duration // when the hint that is held for it leaves, if the conversation is hinted
	quiet    time.Duration // the sweep has hinted, and does not again before this or an acknowledgement
}

func newPair(device int32, reads bool) pair {
	return pair{device, reads, []world{{to: phases, told: never, asked: never, due: never}}}
}

func (w *world) waits() bool { return w.unacked > 0 || len(w.missing) > 0 || w.due != never }

// waits says whether anything is still to happen to the pair without another message.
func (p *pair) waits() bool {
	return slices.ContainsFunc(p.worlds, func(w world) bool { return w.waits() })
}

// split makes a world for each phase.
func (p *pair) split() {
	one := p.worlds[0]
	p.worlds = make([]world, phases)
	for i := range p.worlds {
		p.worlds[i] = one
		p.worlds[i].from, p.worlds[i].to = i, i+1
		p.worlds[i].missing = slices.Clone(one.missing)
	}
}

// join makes one of the worlds again, if they are alike.
func (p *pair) join() {
	for i := range p.worlds {
		if !p.worlds[i].like(&p.worlds[0]) {
			return
		}
	}
	p.worlds = p.worlds[:1:1]
	p.worlds[0].from, p.worlds[0].to = 0, phases
}

// like compares what decides the future; the last event applied is the one before the first missing.
func (w *world) like(o *world) bool {
	return w.unacked == o.unacked && w.first == o.first && w.told == o.told && w.asked == o.asked &&
		w.due == o.due && w.quiet == o.quiet && slices.Equal(w.missing, o.missing)
}

// each lets an event happen in every world of the pair.
func (f *forecast) each(t *talk, p *pair, item entry, do func(*forecast, *talk, *world, entry)) {
	for i := range p.worlds {
		do(f, t, &p.worlds[i], item)
	}
}

// advance lets what is due until now happen in a pair.
func (f *forecast) advance(t *talk, p *pair, now time.Duration) {
	if len(p.worlds) == 1 {
		if f.run(t, p, &p.worlds[0], now) {
			return
		}
		p.split()
	}
	for i := range p.worlds {
		f.run(t, p, &p.worlds[i], now)
	}
	p.join()
}

// run lets what is due until now happen in one world. It ends early, with false, where the sweep comes next and the world
// is that of several phases.
func (f *forecast) run(t *talk, p *pair, w *world, now time.Duration) bool {
	for {
		ackAt, hintAt := never, w.due
		if w.unacked > 0 {
			ackAt = w.first + f.plan.s.Devices.AckDelay + f.timing.Timer
		}
		if t.swept {
			hintAt = f.overdue(w)
			if w.to-w.from == 1 {
				hintAt = f.sweepAfter(hintAt, w.from)
			}
		}
		at := min(ackAt, hintAt, w.asked)
		switch {
		case at > now || at == never:
			return true
		case at == w.asked:
			f.sync(t, w, at)
		case at == ackAt:
			f.ack(t, w, at)
		case !t.swept:
			f.release(t, p, w)
		case w.to-w.from > 1:
			return false
		default:
			f.sweep(t, w, at)
		}
	}
}

// overdue is the moment from which on a sweep hints: a grace after the oldest event was pushed that no acknowledgement
// covers. That may be one which the device lost, or one which it got so late by a sync that it still waits to acknowledge.
func (f *forecast) overdue(w *world) time.Duration {
	told := w.told
	if len(w.missing) > 0 {
		told = min(told, w.missing[0].at)
	}
	if told == never {
		return never
	}
	return max(told+f.plan.s.Server.Grace, w.quiet)
}

// sweepAfter is the first sweep of the phase that is not before at.
func (f *forecast) sweepAfter(at time.Duration, phase int) time.Duration {
	if at == never {
		return never
	}
	period := f.plan.s.Server.Sweep
	offset := period * time.Duration(2*phase+1) / (2 * phases)
	return offset + (at-offset+period-1)/period*period
}

// sweep is the sweep's hint. The next is a grace later.
func (f *forecast) sweep(t *talk, w *world, now time.Duration) {
	w.quiet = now + f.plan.s.Server.Grace
	if len(w.missing) > 0 {
		f.hint(t, w.missing[0].at, "sweep", w.to-w.from)
		w.asked = min(w.asked, now+f.timing.Sync)
		return
	}
	f.hint(t, w.last.at, "sweep", w.to-w.from)
	f.ack(t, w, now) // it has all, and acknowledges when it is asked
}

// release is the hint to a device that pulls.
func (f *forecast) release(t *talk, p *pair, w *world) {
	due := w.due
	w.due = never
	switch {
	case len(w.missing) == 0: // the last hint's sync has brought it
		f.hint(t, w.last.at, "", w.to-w.from)
	case p.reads:
		f.hint(t, w.missing[0].at, "", w.to-w.from)
		w.asked = min(w.asked, due+f.timing.Sync)
	default:
		f.hint(t, w.missing[0].at, "", w.to-w.from)
		w.missing = w.missing[:0]
	}
}

// lose is a push that the device throws away.
func (f *forecast) lose(_ *talk, w *world, item entry) { w.missing = append(w.missing, item) }

// hold is an event of which a device that pulls is told by a hint; the first event of the window decides when it leaves.
func (f *forecast) hold(_ *talk, w *world, item entry) {
	if w.due == never {
		w.due = item.at + f.plan.s.Delivery.HintWindow
	}
	w.missing = append(w.missing, item)
}

// apply is an event that a device has in hand as soon as it is intended; a gap before it makes it sync first. If it is
// the device's own, pushes may still be on their way, so that it waits for them. A hint on its way comes before that.
func (f *forecast) apply(t *talk, w *world, item entry) {
	if len(w.missing) == 0 {
		f.take(t, w, item, item.at)
		return
	}
	w.missing = append(w.missing, item)
	switch {
	case !item.own:
		w.asked = min(w.asked, item.at+f.timing.Sync)
	case t.swept:
		w.asked = min(w.asked, item.at+f.timing.Gap+f.timing.Sync)
	}
}

// sync brings a device everything that it misses, in one reply.
func (f *forecast) sync(t *talk, w *world, now time.Duration) {
	missing := w.missing
	w.missing, w.asked = w.missing[:0], never
	if f.counts(missing[0].at) {
		reply := wire.Frame{T: wire.TSynced, RID: f.rid, Conv: f.plan.pop.Convs[t.conv].ID, Head: t.head, NextAfter: t.head, Epoch: 1}
		bytes := f.size(&reply) + len(missing) - 1 // commas
		for _, m := range missing {
			bytes += m.bytes
		}
		f.count.syncs += int64(w.to - w.from)
		f.count.replyBytes += int64(bytes * (w.to - w.from))
	}
	for _, m := range missing {
		f.take(t, w, m, now)
	}
}

// take is one event applied; it counts towards the next acknowledgement.
func (f *forecast) take(t *talk, w *world, item entry, now time.Duration) {
	if f.counts(item.at) {
		f.count.applied += int64(w.to - w.from)
	}
	if w.unacked == 0 {
		w.first = now
	}
	if !item.own {
		w.told = min(w.told, item.at)
	}
	w.unacked++
	w.last = item
	if w.unacked >= f.plan.s.Devices.AckEvery {
		f.ack(t, w, now)
	}
}

// ack is an acknowledgement that leaves now. Until the gateway knows of it, a sweep still hints in vain.
func (f *forecast) ack(t *talk, w *world, now time.Duration) {
	if t.swept && w.told != never {
		from := max(w.told+f.plan.s.Server.Grace, w.quiet, now+1)
		for phase := w.from; phase < w.to; phase++ {
			if f.sweepAfter(from, phase) < now+f.timing.Ack {
				f.hint(t, w.last.at, "sweep", 1)
			}
		}
	}
	w.unacked, w.first, w.told, w.quiet = 0, 0, never, 0
	if f.counts(w.last.at) {
		f.count.acks += int64(w.to - w.from)
		f.count.replyBytes += int64((w.to - w.from) *
			f.size(&wire.Frame{T: wire.TAcked, RID: f.rid, Conv: f.plan.pop.Convs[t.conv].ID, Delivered: w.last.seq}))
	}
}

// hint is a hint in so many of the phases.
func (f *forecast) hint(t *talk, missing time.Duration, why string, phases int) {
	if !f.counts(missing) {
		return
	}
	f.count.hints += int64(phases)
	f.count.replyBytes += int64(phases * f.size(&wire.Frame{T: wire.THint, Conv: f.plan.pop.Convs[t.conv].ID, Head: t.head, Why: why}))
}

package device

import (
	"imbench/loadgen/internal/behavior"
	"imbench/loadgen/internal/clock"
	"imbench/loadgen/internal/payload"
	"imbench/loadgen/internal/sample"
	"imbench/loadgen/protocol"
)

// event is what a device keeps of an event: all but the body.
type event struct {
	seq      int64
	mid      string
	kind     string
	sender   string
	hash     uint64
	plan     int64
	intended clock.Time
	own      bool
	moved    bool // a join or leave of this device's own user
}

// read takes an event off the wire; mu must be held.
func (d *Device) read(e *protocol.Event) event {
	x := event{seq: e.Seq, mid: e.MID, kind: e.Kind, sender: e.Sender, plan: -1}
	if e.Kind == protocol.KindMessage {
		x.plan, x.intended = d.g.intended(e.Body)
		x.hash = payload.Hash(e.Body)
		x.own = e.Key != "" && d.wrote(e.Key)
	} else {
		x.moved = e.User != "" && e.User == d.g.pop.Users[d.user].ID
	}
	return x
}

// wrote says whether one of this device's sends in flight has the key: its event came before its reply.
func (d *Device) wrote(cmid string) bool {
	for i := range d.flight {
		if d.flight[i].cmid == cmid {
			return true
		}
	}
	return false
}

// pushed takes an event frame.
func (d *Device) pushed(f *protocol.Frame, now clock.Time) {
	ci, known := d.g.convs[f.Event.Conv]
	if !known {
		d.frame(sample.Down, sample.FEvent, f.Bytes, now, 0)
		return
	}
	e := d.read(&f.Event)
	d.frame(sample.Down, sample.FEvent, f.Bytes, now, e.intended)
	if d.g.can.Sync && behavior.Lost(d.g.cfg.Seed, d.index, ci, e.seq, d.g.cfg.Loss) {
		d.frame(sample.Down, sample.FEventDiscarded, f.Bytes, now, e.intended)
		return
	}
	slot := d.slot(ci)
	if slot >= 0 && e.kind == protocol.KindMessage {
		d.convs[slot].pushed = true
	}
	if slot >= 0 && !d.g.can.Sync {
		d.take(ci, &e, now)
		return
	}
	if slot < 0 {
		// Not ours to see. The ledger is told, and names it as a leak.
		d.g.sink.Deliver(d.delivery(ci, &e, sample.FirstPush, now))
		return
	}
	c := &d.convs[slot]
	c.head = max(c.head, e.seq)
	switch {
	case e.seq <= c.cursor:
		d.repeated(slot, &e, now)
	case e.seq == c.cursor+1:
		d.apply(slot, &e, sample.FirstPush, now)
		d.closeGap(slot, now)
	default:
		d.hold(slot, e, false, now)
	}
}

// apply makes an event part of this device's log: the cursor moves, and an ack becomes due.
func (d *Device) apply(slot int, e *event, p sample.Path, now clock.Time) {
	c := &d.convs[slot]
	if p != sample.FirstPush && e.intended != 0 && e.intended < d.since {
		p = sample.Backfill // from before this device came online for the first time
	}
	d.g.sink.Deliver(d.delivery(d.convIndex(slot), e, p, now))
	c.cursor = e.seq
	c.head = max(c.head, e.seq)
	c.moved = c.moved || e.moved
	if e.intended != 0 {
		c.lastMsg = e.intended
	}
	c.unacked++
	d.ackSoon(slot, now)
	d.readSoon(slot, e.own, now)
}

func (d *Device) repeated(slot int, e *event, now clock.Time) {
	x := d.delivery(d.convIndex(slot), e, sample.FirstPush, now)
	x.WireRepeat = true
	d.g.sink.Deliver(x)
}

func (d *Device) delivery(conv int32, e *event, p sample.Path, now clock.Time) sample.Delivery {
	return sample.Delivery{Device: d.index, Conv: conv, Seq: e.seq, MID: e.mid, Kind: e.kind, Sender: e.sender,
		BodyHash: e.hash, Own: e.own, Moved: e.moved, Plan: e.plan, Intended: e.intended, At: now, Path: p}
}

// ackSoon acknowledges at once after every AckEvery-th event, and otherwise starts the delay. One ack of a conversation
// is on its way at a time: what comes meanwhile is covered by the next.
func (d *Device) ackSoon(slot int, now clock.Time) {
	c := &d.convs[slot]
	if !d.g.can.Acks {
		return
	}
	if c.ackAt == 0 {
		c.ackAt = now.Add(d.g.cfg.AckDelay)
	}
	if int(c.unacked) >= d.g.cfg.AckEvery {
		c.ackAt = now
	}
	if c.ackAt > now {
		d.arm(c.ackAt)
	} else if c.asked == nil && d.state == ready {
		d.acknowledge(slot)
	}
}

// acknowledge writes a cumulative ack up to the cursor.
func (d *Device) acknowledge(slot int) {
	c := &d.convs[slot]
	if c.asked != nil || d.conn == nil || !d.g.can.Acks {
		return
	}
	now := clock.Now()
	c.asked = &ack{seq: c.cursor, at: now, msg: c.lastMsg, n: c.unacked, was: c.told}
	c.unacked, c.ackAt = 0, 0
	d.write(&protocol.Request{Op: protocol.OpAck, ID: uint32(slot), Seq: c.cursor, Epoch: c.epoch,
		Conv: d.g.pop.Convs[d.convIndex(slot)].ID}, sample.FAck, c.lastMsg)
	d.arm(now.Add(d.g.cfg.ResendAfter))
}

// onAcked is the reply to an ack.
func (d *Device) onAcked(f *protocol.Frame, now clock.Time) {
	var a *ack
	if int(f.ID) < len(d.convs) && f.Re == protocol.OpAck {
		a = d.convs[f.ID].asked
	}
	if a == nil {
		d.frame(sample.Down, sample.FAcked, f.Bytes, now, 0) // the second reply to an ack that was written twice
		return
	}
	d.frame(sample.Down, sample.FAcked, f.Bytes, now, a.msg)
	d.g.sink.Op(sample.Op{Kind: sample.OpAck, Device: d.index, Start: a.at, Done: max(now, a.at), Msg: a.msg, Events: int(a.n)})
	c := &d.convs[f.ID]
	if f.Delivered < a.was && !c.doubt {
		d.wentBack(int(f.ID), f.Delivered, a.was, now)
	}
	c.acked, c.told = max(c.acked, f.Delivered), max(c.told, f.Delivered)
	c.asked = nil
	if c.ackAt != 0 && c.ackAt <= now {
		d.acknowledge(int(f.ID))
	} else {
		d.arm(c.ackAt) // while the last ack was on its way, next left this one's time out
	}
}

// wentBack tells that the gateway says less than it had confirmed.
func (d *Device) wentBack(slot int, to, from int64, now clock.Time) {
	d.g.sink.Op(sample.Op{Kind: sample.OpWentBack, Device: d.index, Start: now, Done: now, Conv: d.convIndex(slot), Seq: to, Events: int(from - to)})
}

// ackRefused handles an error reply to an ack. One that is refused for good counts as done: it would be refused again.
func (d *Device) ackRefused(f *protocol.Frame, now clock.Time) clock.Time {
	if int(f.ID) >= len(d.convs) || d.convs[f.ID].asked == nil {
		return 0
	}
	c := &d.convs[f.ID]
	a := c.asked
	c.asked = nil
	d.g.sink.Op(sample.Op{Kind: sample.OpAck, Device: d.index, Start: a.at, Done: max(now, a.at), Msg: a.msg, Code: f.Code})
	if again, after := d.unknown(f); again {
		c.unacked += a.n
		c.ackAt = now.Add(after)
		d.arm(c.ackAt)
	} else {
		c.acked = max(c.acked, a.seq)
		d.arm(c.ackAt)
	}
	return a.msg
}

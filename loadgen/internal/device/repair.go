package device

import (
	"slices"

	"imbench/loadgen/internal/clock"
	"imbench/loadgen/internal/sample"
	"imbench/loadgen/protocol"
)

const (
	maxHeld  = 64 // events of a conversation kept behind a gap; more are forgotten and come again with the sync
	maxHints = 16 // hints that wait to be attributed; more are reported with the time of their arrival
)

// repair is a gap or a hint that a device follows: one sync on its way, and one more if something came meanwhile.
// The frames of sync and hint are reported when the reply tells which message was missing.
type repair struct {
	asked clock.Time // the sync on its way was written then; 0 = none is
	wait  clock.Time // a sync leaves then, unless the gap has closed; 0 = not planned
	bytes int        // of the sync request
	again bool       // something came while the sync was on its way
	hint  bool       // begun by a hint of a conversation that is read by pulling
	hints []hint
	held  []event // behind the gap, by seq
}

type hint struct {
	at    clock.Time
	bytes int
}

func (c *conv) repairing() *repair {
	if c.repair == nil {
		c.repair = &repair{}
	}
	return c.repair
}

// hold keeps an event that came before its predecessors. own says that it is this device's own, told by a reply that
// does not wait for pushes: then, or if the gap can be this device's own sends, the gap may close by itself.
func (d *Device) hold(slot int, e event, own bool, now clock.Time) {
	c := &d.convs[slot]
	c.head = max(c.head, e.seq)
	r := c.repairing()
	if at, found := slices.BinarySearchFunc(r.held, e.seq, bySeq); found {
		if !own {
			d.repeated(slot, &e, now)
		}
		return
	} else if len(r.held) < maxHeld {
		r.held = slices.Insert(r.held, at, e)
	}
	switch missing := r.held[0].seq - c.cursor - 1; {
	case r.asked != 0:
		r.again = true
	case own || missing <= d.ownPending(slot):
		if r.wait == 0 {
			r.wait = now.Add(d.g.cfg.GapWait)
			d.arm(r.wait)
		}
	default:
		d.sync(slot)
	}
}

func bySeq(e event, seq int64) int { return int(e.seq - seq) }

// hinted takes a hint frame.
func (d *Device) hinted(f *protocol.Frame, now clock.Time) {
	slot := -1
	if ci, known := d.g.convs[f.Conv]; known {
		slot = d.slot(ci)
	}
	if slot < 0 {
		d.frame(sample.Down, sample.FHint, f.Bytes, now, 0)
		return
	}
	c := &d.convs[slot]
	c.head = max(c.head, f.Head)
	switch {
	case f.Head <= c.cursor:
		d.frame(sample.Down, sample.FHint, f.Bytes, now, c.lastMsg)
		if f.Sweep && c.cursor > c.acked { // the gateway waits for our ack
			d.acknowledge(slot)
		}
	case !d.reads(slot) || len(c.repairing().hints) == maxHints:
		// What it stands for is never learnt, or not in time: a hint follows its message closely.
		d.frame(sample.Down, sample.FHint, f.Bytes, now, now)
	default:
		c.repair.hints = append(c.repair.hints, hint{now, f.Bytes})
		if !f.Sweep {
			large := d.large(slot)
			c.repair.hint = c.repair.hint || c.pull || large
			if large && !c.opened { // as with what is pulled: the gateway repairs a hint that is lost only where it is looked at
				c.opened = true
				d.open(slot)
			}
		}
		d.follow(slot)
		return
	}
	if c.repair != nil && c.repair.idle() {
		c.repair = nil
	}
}

// large says whether a group that is hinted at has so many members beside those that were brought that the gateway does not push
// there. How many there are is told by nobody: it shows by hints, other than the sweep's, where no message was ever pushed.
func (d *Device) large(slot int) bool {
	c := &d.convs[slot]
	return d.g.pop.Brought && !c.pull && !c.pushed && d.g.pop.Convs[d.convIndex(slot)].Kind == "group"
}

// open says that the user looks at a conversation.
func (d *Device) open(slot int) {
	d.write(&protocol.Request{Op: protocol.OpOpen, Conv: d.g.pop.Convs[d.convIndex(slot)].ID}, sample.FOther, 0)
}

// idle says whether nothing is being followed.
func (r *repair) idle() bool {
	return r.asked == 0 && r.wait == 0 && len(r.held) == 0 && len(r.hints) == 0
}

// follow asks for what is missing, or makes sure that it is asked for again after the sync that is on its way.
func (d *Device) follow(slot int) {
	if r := d.convs[slot].repairing(); r.asked != 0 {
		r.again = true
		return
	}
	d.sync(slot)
}

func (d *Device) sync(slot int) {
	now := clock.Now()
	c := &d.convs[slot]
	r := c.repairing()
	r.asked, r.wait, r.again = now, 0, false
	if n, err := d.conn.Write(&protocol.Request{Op: protocol.OpSync, ID: uint32(slot), Seq: c.cursor,
		Epoch: c.epoch, Conv: d.g.pop.Convs[d.convIndex(slot)].ID}); err == nil {
		r.bytes = n
	}
	d.arm(now.Add(d.g.cfg.ResendAfter))
}

// synced is the reply to a sync. It is never thrown away.
func (d *Device) synced(f *protocol.Frame, now clock.Time) {
	if int(f.ID) >= len(d.convs) || f.Re != protocol.OpSync {
		d.frame(sample.Down, sample.FSynced, f.Bytes, now, 0)
		return
	}
	slot := int(f.ID)
	c := &d.convs[slot]
	r := c.repairing() // a reply that comes after its request was given up is as good
	events := make([]event, len(f.Events))
	msg := c.lastMsg
	for i := range f.Events {
		events[i] = d.read(&f.Events[i])
	}
	if first, _ := slices.BinarySearchFunc(events, c.cursor+1, bySeq); first < len(events) && events[first].intended != 0 {
		msg = events[first].intended
	}
	d.report(r, msg)
	d.frame(sample.Down, sample.FSynced, f.Bytes, now, msg)
	if r.asked != 0 {
		d.g.sink.Op(sample.Op{Kind: sample.OpSync, Device: d.index, Start: r.asked, Done: max(now, r.asked), Msg: msg, Events: len(events)})
	}
	r.asked = 0
	d.applyPage(slot, events, now)
	if f.Epoch != 0 {
		c.epoch = f.Epoch
	}
	if f.NextAfter > c.cursor { // past what this user may not see
		c.cursor = f.NextAfter
		d.ackSoon(slot, now)
	}
	if f.More {
		d.sync(slot)
		return
	}
	if !r.again {
		c.head = max(f.Head, c.cursor) // a hint may have promised what a rebuilt log no longer has
	}
	d.closeGap(slot, now)
}

// applyPage applies what a sync brought, and what was held and has now become contiguous.
func (d *Device) applyPage(slot int, events []event, now clock.Time) {
	c := &d.convs[slot]
	r := c.repair
	for i := range events {
		e := &events[i]
		path := sample.Repaired
		if r.hint {
			path = sample.PulledHint
		}
		if at, held := slices.BinarySearchFunc(r.held, e.seq, bySeq); held {
			path = sample.FirstPush // its push had come, and waited for its predecessors
			e.own = e.own || r.held[at].own
		}
		if e.seq <= c.cursor {
			d.repeated(slot, e, now)
			continue
		}
		d.apply(slot, e, path, now)
	}
}

// closeGap applies what is now contiguous, and decides whether there is still something to follow.
func (d *Device) closeGap(slot int, now clock.Time) {
	c := &d.convs[slot]
	r := c.repair
	if r == nil {
		return
	}
	for len(r.held) > 0 && r.held[0].seq <= c.cursor+1 {
		if e := &r.held[0]; e.seq == c.cursor+1 {
			d.apply(slot, e, sample.FirstPush, now)
		}
		r.held = r.held[1:]
	}
	behind := len(r.held) > 0 || (c.head > c.cursor && d.reads(slot))
	switch {
	case r.asked != 0:
	case !behind:
		d.report(r, c.lastMsg)
		c.repair = nil
	case r.again:
		d.sync(slot)
	case r.wait == 0:
		r.wait = now.Add(d.g.cfg.GapWait)
		d.arm(r.wait)
	}
}

// report counts the sync on its way and the hints, now that it is known which message was missing.
func (d *Device) report(r *repair, msg clock.Time) {
	if r.bytes > 0 {
		d.frame(sample.Up, sample.FSync, r.bytes, r.asked, msg)
		r.bytes = 0
	}
	for _, h := range r.hints {
		d.frame(sample.Down, sample.FHint, h.bytes, h.at, msg)
	}
	r.hints = nil
}

// dropRepair gives up what is on its way, as the session has ended; the next one compares heads anew.
func (d *Device) dropRepair(c *conv) {
	if c.repair != nil {
		d.report(c.repair, 0)
		c.repair = nil
	}
}

// syncRefused handles an error reply to a sync.
func (d *Device) syncRefused(f *protocol.Frame, now clock.Time) clock.Time {
	slot := int(f.ID)
	if slot >= len(d.convs) || d.convs[slot].repair == nil || d.convs[slot].repair.asked == 0 {
		return 0
	}
	c := &d.convs[slot]
	r := c.repair
	d.g.sink.Op(sample.Op{Kind: sample.OpSync, Device: d.index, Start: r.asked, Done: max(now, r.asked), Code: f.Code})
	d.report(r, 0)
	r.asked = 0
	again, after := d.unknown(f)
	switch {
	case again:
		r.wait = now.Add(after)
		d.arm(r.wait)
	case f.Reset: // the log was rebuilt: everything is read anew
		*c = conv{pull: c.pull, moved: c.moved, pushed: c.pushed, opened: c.opened}
		d.sync(slot)
	default:
		c.repair = nil
	}
	return 0
}

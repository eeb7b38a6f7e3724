package device

import (
	"imbench/loadgen/internal/clock"
	"imbench/loadgen/internal/payload"
	"imbench/loadgen/internal/population"
	"imbench/loadgen/internal/sample"
	"imbench/loadgen/protocol"
	"strings"
)

// send is a message that is not confirmed yet. Its body is made anew each time it is written.
type send struct {
	plan     int64
	intended clock.Time
	start    clock.Time
	first    clock.Time // first written; 0 = not yet
	at       clock.Time // last written; 0 = to be written (again)
	again    clock.Time // not before this, if at is 0
	hash     uint64     // of the body; 0 = never written
	cmid     string
	size     int32
	id       uint32
	slot     int16
	resends  uint16
}

// send takes up one arrival. It is called by one goroutine at a time for a device.
func (d *Device) send(a *population.Arrival, intended, start clock.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	slot := d.slot(a.Conv)
	if slot < 0 { // the plan lets someone write who is no member: reported as the refusal it would be
		d.g.counters.Failed.Add(1)
		d.g.sink.Send(sample.Send{Plan: a.Index, Device: d.index, Conv: a.Conv, Intended: intended, Start: start, Done: start,
			Code: CodeNotMember})
		return
	}
	d.queue = append(d.queue, send{plan: a.Index, intended: intended, start: start, cmid: a.CMID,
		size: int32(d.g.bodySize(a.Index)), slot: int16(slot)})
	d.g.waiting.Add(1)
	d.begin(start)
}

// begin writes what waits, as far as there are places; mu must be held.
func (d *Device) begin(now clock.Time) {
	if d.state != ready {
		return
	}
	n := min(len(d.queue), d.limit-len(d.flight))
	if n <= 0 {
		return
	}
	for _, s := range d.queue[:n] {
		s.id = d.freeID()
		d.flight = append(d.flight, s)
		d.transmit(&d.flight[len(d.flight)-1], now)
	}
	d.g.waiting.Add(-int64(n))
	if d.queue = d.queue[n:]; len(d.queue) == 0 {
		d.queue = nil
	}
}

// freeID is the next number that no send in flight carries.
func (d *Device) freeID() uint32 {
	for {
		d.nextID = (d.nextID + 1) % (protocol.MaxRequestID + 1)
		if d.byID(d.nextID) < 0 {
			return d.nextID
		}
	}
}

func (d *Device) byID(id uint32) int {
	for i := range d.flight {
		if d.flight[i].id == id {
			return i
		}
	}
	return -1
}

// transmit writes a send, for the first time or again under the same cmid.
func (d *Device) transmit(s *send, now clock.Time) {
	body := string(payload.Append(make([]byte, 0, s.size), d.g.run, s.plan, s.intended.Add(-d.g.ahead), int(s.size)))
	if s.hash == 0 {
		s.hash, s.first = payload.Hash(body), now
	} else {
		s.resends++
	}
	s.at, s.again = now, 0
	d.write(&protocol.Request{Op: protocol.OpSend, ID: s.id, Key: s.cmid, Body: body,
		Conv: d.g.pop.Convs[d.convIndex(int(s.slot))].ID}, sample.FSend, s.intended)
	d.arm(now.Add(d.g.cfg.ResendAfter))
}

// resume writes again, in order, what the last session left open, and then what waits.
func (d *Device) resume(now clock.Time) {
	for i := range d.flight {
		if d.flight[i].at == 0 {
			d.transmit(&d.flight[i], now)
		}
	}
	d.begin(now)
	d.resumeAsks(now)
}

// sent is the reply to a send.
func (d *Device) sent(f *protocol.Frame, now clock.Time) {
	i := d.byID(f.ID)
	if i < 0 || f.Re != protocol.OpSend {
		d.frame(sample.Down, sample.FSent, f.Bytes, now, 0) // the second reply to a send that was written twice
		return
	}
	s := d.flight[i]
	d.frame(sample.Down, sample.FSent, f.Bytes, now, s.intended)
	slot := int(s.slot)
	d.finish(i, sample.Send{Done: now, Seq: f.Seq, MID: f.MID, Dup: f.Dup})
	d.g.committed(d.convIndex(slot), f.Seq)
	e := event{seq: f.Seq, mid: f.MID, kind: protocol.KindMessage, sender: d.g.pop.Users[d.user].ID, hash: s.hash, plan: s.plan,
		intended: s.intended, own: true}
	c := &d.convs[slot]
	switch {
	case !d.g.can.Sync:
		if !d.g.can.Echo {
			d.take(d.convIndex(slot), &e, now)
		}
	case f.Seq <= c.cursor: // a sync has brought it already
	case !d.reads(slot): // to follow its own message it would have to read all that came before
	case f.Seq == c.cursor+1:
		d.apply(slot, &e, sample.FirstPush, now)
		d.closeGap(slot, now)
	default:
		// Pushes of what was committed before may still be on their way: the reply does not wait for them.
		d.hold(slot, e, true, now)
	}
	d.begin(clock.Now())
}

// sendRefused handles an error reply to a send: it is repeated if its outcome is unknown.
func (d *Device) sendRefused(f *protocol.Frame, now clock.Time) (msg clock.Time) {
	i := d.byID(f.ID)
	if i < 0 {
		return 0
	}
	s := &d.flight[i]
	if again, after := d.unknown(f); again && d.g.can.Keys {
		s.at, s.again = 0, now.Add(after)
		d.arm(s.again)
		return s.intended
	}
	msg = s.intended
	d.finish(i, sample.Send{Done: now, Code: strings.Clone(f.Code)})
	d.begin(clock.Now())
	return msg
}

// finish reports the outcome of the i-th send in flight and frees its place.
func (d *Device) finish(i int, r sample.Send) {
	s := &d.flight[i]
	if r.Code == "" {
		d.g.counters.Done.Add(1)
	} else if !r.Censored {
		d.g.counters.Failed.Add(1)
	}
	r.Plan, r.Device, r.Conv, r.Intended, r.Start = s.plan, d.index, d.convIndex(int(s.slot)), s.intended, s.start
	r.Written = s.first
	r.BodyHash, r.Resends = s.hash, int(s.resends)
	d.g.sink.Send(r)
	if d.flight = append(d.flight[:i], d.flight[i+1:]...); len(d.flight) == 0 && cap(d.flight) > 4 {
		d.flight = nil
	}
}

// ownPending counts this device's sends to the conversation that have no reply yet.
func (d *Device) ownPending(slot int) (n int64) {
	for i := range d.flight {
		if int(d.flight[i].slot) == slot {
			n++
		}
	}
	return n
}

// censor reports what has no outcome at the end of the run, with the time it has waited.
func (d *Device) censor(now clock.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(d.flight) > 0 {
		code := CodeTimeout
		if d.flight[0].hash == 0 {
			code = CodeDisconnected
		}
		d.finish(0, sample.Send{Done: now, Code: code, Censored: true})
	}
	d.g.waiting.Add(-int64(len(d.queue)))
	for _, s := range d.queue {
		d.flight = append(d.flight, s)
		d.finish(0, sample.Send{Done: now, Code: CodeDisconnected, Censored: true})
	}
	d.queue = nil
	d.censorAsks(now)
}

package device

import (
	"errors"
	"fmt"
	"time"

	"imbench/loadgen/internal/clock"
)

// arm makes sure that tick comes at or soon after at; mu must be held.
func (d *Device) arm(at clock.Time) {
	if at != 0 && (d.armed == 0 || at < d.armed) {
		d.armed = at
		d.wheel.add(d, at)
	}
}

// tick does what has become due.
func (d *Device) tick(now clock.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.armed == 0 || d.armed > now {
		return // superseded
	}
	d.armed = 0
	if d.conn == nil {
		return // the next session arms again
	}
	if until := clock.Time(d.frozen.Load()); until > now {
		d.arm(until)
		return
	}
	switch {
	case d.beat > 0 && now.Sub(d.heard) > d.silence():
		d.reason = errors.New("nothing was heard for two heartbeats: the connection is half open")
		d.conn.Close(0)
		return
	case d.readyBy != 0 && d.readyBy <= now:
		d.reason = errors.New("connected, but the gateway did not answer hello or convs in time")
		d.conn.Close(0)
		return
	}
	if d.state == ready {
		d.tickSends(now)
		d.tickAsks(now)
	}
	for slot := range d.convs {
		d.tickConv(slot, now)
	}
	d.arm(d.next())
}

// silence is how long a session may hear nothing: two heartbeats and a half.
func (d *Device) silence() time.Duration { return d.beat * 5 / 2 }

func (d *Device) tickSends(now clock.Time) {
	if !d.g.can.Keys {
		d.giveUp(func(s *send) bool { return s.at != 0 && s.at.Add(d.g.cfg.ResendAfter) <= now }, now)
	}
	for i := range d.flight {
		s := &d.flight[i]
		if (s.at == 0 && s.again <= now) || (s.at != 0 && s.at.Add(d.patience(s)) <= now) {
			d.transmit(s, now)
		}
	}
}

// patience is how long a send that was written waits for its reply: twice as long after each time that it was in vain, up
// to eight times. A gateway that is late by more than ResendAfter would else be given all its work again for each of them.
func (d *Device) patience(s *send) time.Duration {
	return d.g.cfg.ResendAfter << min(s.resends, 3)
}

func (d *Device) tickConv(slot int, now clock.Time) {
	c := &d.convs[slot]
	limit := d.g.cfg.ResendAfter
	if a := c.asked; a != nil && a.at.Add(limit) <= now {
		c.unacked += a.n // no reply: what it covered goes into the next
		c.asked, c.doubt = nil, true
		c.ackAt = now
	}
	if c.asked == nil && c.ackAt != 0 && c.ackAt <= now && d.state == ready {
		d.acknowledge(slot)
	}
	if c.mark != nil {
		d.tickMark(slot, now)
	}
	if r := c.repair; r != nil {
		if (r.asked != 0 && r.asked.Add(limit) <= now) || (r.asked == 0 && r.wait != 0 && r.wait <= now) {
			d.report(r, 0)
			d.sync(slot)
		}
	}
}

// next is the earliest deadline, 0 if there is none; mu must be held.
func (d *Device) next() (at clock.Time) {
	earlier := func(t clock.Time) {
		if t != 0 && (at == 0 || t < at) {
			at = t
		}
	}
	limit := d.g.cfg.ResendAfter
	earlier(d.readyBy)
	if d.beat > 0 {
		earlier(d.heard.Add(d.silence()))
	}
	for i := range d.flight {
		if s := &d.flight[i]; s.at != 0 {
			earlier(s.at.Add(d.patience(s)))
		} else {
			earlier(s.again)
		}
	}
	if d.asks != nil {
		for i := range d.asks.list {
			earlier(d.asks.list[i].due(d))
		}
	}
	for i := range d.convs {
		c := &d.convs[i]
		if c.asked != nil {
			earlier(c.asked.at.Add(limit))
		} else {
			earlier(c.ackAt)
		}
		if c.mark != nil {
			earlier(c.mark.next(d))
		}
		if r := c.repair; r != nil {
			if r.asked != 0 {
				earlier(r.asked.Add(limit))
			} else {
				earlier(r.wait)
			}
		}
	}
	return at
}

// lacks says what keeps the device from being settled, "" if nothing does; without say it is only not empty.
func (d *Device) lacks(say bool) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	why := func(format string, args ...any) string {
		if !say {
			return "unsettled"
		}
		return fmt.Sprintf(format, args...)
	}
	if d.state != ready {
		return why("not connected")
	}
	if n := len(d.flight) + len(d.queue); n > 0 {
		return why("%d sends without an outcome", n)
	}
	if n := d.asks.waiting(); n > 0 {
		return why("%d requests without an answer", n)
	}
	if !d.g.can.Sync {
		if clock.Now().Sub(d.taken) < quiet {
			return why("events still come")
		}
		return ""
	}
	for slot := range d.convs {
		c := &d.convs[slot]
		ci := d.convIndex(slot)
		if !d.reads(slot) || c.moved { // the ledger expects nothing of a pair whose user came or went, either
			continue
		}
		if head := d.g.heads[ci].Load(); c.cursor < head {
			return why("%s: has %d of %d", d.g.pop.Convs[ci].ID, c.cursor, head)
		}
		owed := c.cursor
		if d.g.pop.Brought { // others may go on writing: what they add need not be acknowledged
			owed = min(owed, d.g.heads[ci].Load())
		}
		if d.g.can.Acks && c.acked < owed {
			return why("%s: has %d, acknowledged %d", d.g.pop.Convs[ci].ID, c.cursor, c.acked)
		}
	}
	return ""
}

package device

import (
	"fmt"
	"strings"
	"time"

	"imbench/loadgen/internal/clock"
	"imbench/loadgen/internal/sample"
	"imbench/loadgen/protocol"
)

// on takes one frame; it runs on the goroutine that reads the session's connection.
func (d *Device) on(f *protocol.Frame) {
	d.took(f)
	if d.g.meanwhile != nil {
		d.g.meanwhile(clock.Now())
	}
}

// took is the device's part of on. Latencies end when the frame arrived; what the device writes because of it, it writes
// when it has come to it.
func (d *Device) took(f *protocol.Frame) {
	if until := clock.Time(d.frozen.Load()); until != 0 && !d.holds {
		d.thaw(until)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	now := clock.Now()
	if !f.Arrived.IsZero() {
		now = clock.Of(f.Arrived)
	}
	d.heard = now
	switch f.Kind {
	case protocol.KindEvent:
		d.pushed(f, now)
	case protocol.KindHint:
		d.hinted(f, now)
	case protocol.KindSent:
		d.sent(f, now)
	case protocol.KindAcked:
		d.onAcked(f, now)
	case protocol.KindSynced:
		d.synced(f, now)
	case protocol.KindRefused:
		d.refused(f, now)
	case protocol.KindWelcome:
		d.welcomed(f, now)
	case protocol.KindListed:
		d.listed(f, now)
	case protocol.KindRead:
		d.marked(f, now)
	case protocol.KindFetched:
		d.fetched(f, now)
	case protocol.KindPing:
		d.frame(sample.Down, sample.FPing, f.Bytes, now, 0)
		d.frame(sample.Up, sample.FPing, f.Bytes, now, 0)
	case protocol.KindDrain:
		d.wait = f.RetryAfter
		fallthrough
	default:
		d.frame(sample.Down, sample.FOther, f.Bytes, now, 0)
	}
}

// welcomed goes on with sub before convs: what is committed between the two is then either listed or pushed.
func (d *Device) welcomed(f *protocol.Frame, now clock.Time) {
	if f.Bytes > 0 {
		d.frame(sample.Down, sample.FHello, f.Bytes, now, 0)
	}
	if d.state != greeting {
		return
	}
	d.state = listing
	if d.g.welcome != nil {
		d.g.welcome(f.Gateway, f.Environment)
	}
	if d.since == 0 {
		d.since = now
	}
	d.count(1)
	d.g.sink.Op(sample.Op{Kind: sample.OpConnect, Device: d.index, Start: d.dialled, Done: now})
	d.limit = d.g.cfg.InFlight
	if l := f.SendsInFlight; l > 0 {
		d.limit = min(d.limit, l)
	}
	d.beat = f.Heartbeat
	d.readyBy = clock.Now().Add(d.g.cfg.ResendAfter)
	d.arm(d.next())
	d.write(&protocol.Request{Op: protocol.OpSubscribe}, sample.FOther, 0)
	if d.g.can.Lists {
		d.list("")
		return
	}
	for slot := range d.convs {
		d.open(slot)
	}
	d.becomeReady(now)
}

func (d *Device) list(after string) {
	// Who comes back has the rest of the list from before.
	d.write(&protocol.Request{Op: protocol.OpList, AfterID: after, Limit: protocol.MaxPage, Brief: d.gone != 0}, sample.FConvs, 0)
}

// listed compares a page of the conversation list with what this device has, when a session begins.
func (d *Device) listed(f *protocol.Frame, now clock.Time) {
	if f.ID != 0 {
		d.listedAsk(f, now)
		return
	}
	d.frame(sample.Down, sample.FConvs, f.Bytes, now, 0)
	if d.state != listing {
		return
	}
	for i := range f.Convs {
		s := &f.Convs[i]
		ci, known := d.g.convs[s.Conv]
		if !known {
			continue
		}
		if slot := d.slot(ci); slot >= 0 {
			d.compare(slot, s, now)
		}
	}
	if f.More {
		d.readyBy = clock.Now().Add(d.g.cfg.ResendAfter)
		d.list(strings.Clone(f.Next))
		return
	}
	d.becomeReady(now)
}

// becomeReady begins with what waited for the session.
func (d *Device) becomeReady(now clock.Time) {
	d.state, d.readyBy = ready, 0
	if d.gone != 0 {
		d.g.sink.Op(sample.Op{Kind: sample.OpReconnect, Device: d.index, Start: d.gone, Done: now})
		d.gone = 0
	}
	d.g.counters.Ready.Add(1)
	d.resume(clock.Now())
	d.arm(d.next())
}

// compare takes what the gateway says of one conversation: it is followed if this device is behind.
func (d *Device) compare(slot int, s *protocol.Standing, now clock.Time) {
	c := &d.convs[slot]
	c.pull = d.g.pulled(&d.g.pop.Convs[d.convIndex(slot)], s.Mode)
	if s.Delivered < c.told && c.epoch == s.Epoch { // another epoch counts anew
		d.wentBack(slot, s.Delivered, c.told, now)
	}
	c.epoch = s.Epoch
	c.acked, c.told = s.Delivered, s.Delivered
	c.head = max(c.head, s.Head)
	if c.pull && d.reads(slot) || c.opened {
		d.open(slot)
	}
	if c.cursor > c.acked {
		d.acknowledge(slot)
	} else {
		c.unacked, c.ackAt = 0, 0 // the last session's ack arrived, only its reply did not
	}
	if c.head > c.cursor && d.reads(slot) {
		d.follow(slot)
	}
}

// refused handles an error reply.
func (d *Device) refused(f *protocol.Frame, now clock.Time) {
	var msg clock.Time
	switch f.Re {
	case protocol.OpSend:
		msg = d.sendRefused(f, now)
	case protocol.OpAck:
		msg = d.ackRefused(f, now)
	case protocol.OpSync:
		msg = d.syncRefused(f, now)
	case protocol.OpRead:
		msg = d.markRefused(f, now)
	case protocol.OpFetch:
		msg = d.askRefused(sample.OpFetch, f, now)
	case protocol.OpList, protocol.OpSubscribe, protocol.OpHello:
		if f.Re == protocol.OpList && f.ID != 0 {
			msg = d.askRefused(sample.OpList, f, now)
			break
		}
		d.reason = fmt.Errorf("the gateway refused %s: %s %s", f.Re, f.Code, f.Message)
		d.conn.Close(1000) // the session is of no use; the next one is tried after a pause
	}
	d.frame(sample.Down, sample.FError, f.Bytes, now, msg)
}

// unknown says whether an error leaves the outcome open, so that the request is to be repeated, and after how long.
func (d *Device) unknown(f *protocol.Frame) (bool, time.Duration) {
	if !f.Again {
		return false, 0
	}
	return true, max(f.RetryAfter, d.g.cfg.BackoffBase)
}

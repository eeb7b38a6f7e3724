package device

import (
	"imbench/loadgen/internal/behavior"
	"imbench/loadgen/internal/clock"
	"imbench/loadgen/internal/sample"
	"imbench/loadgen/protocol"
)

// readMark is what a device has told, and is to tell, of how far its user has read in a conversation.
type readMark struct {
	at    clock.Time // the next report leaves then; 0 = there is nothing to tell
	asked clock.Time // the report on its way was written then; 0 = none is
	msg   clock.Time // intended time of the last message that it covers
}

// readSoon notes that the user has new messages before him: he has read them when the debounce has passed, with all that
// came meanwhile. Having sent a message says the same at once, so that nothing is left to tell.
func (d *Device) readSoon(slot int, own bool, now clock.Time) {
	c := &d.convs[slot]
	switch {
	case d.g.cfg.ReadReports <= 0 || !behavior.Reports(d.g.cfg.Seed, d.index, d.convIndex(slot), d.g.cfg.ReadReports):
	case own && c.mark != nil:
		c.mark.at = 0
	case own:
	case c.mark == nil:
		c.mark = &readMark{}
		fallthrough
	default:
		if c.mark.at == 0 {
			c.mark.at = now.Add(d.g.cfg.ReadDebounce)
			d.arm(c.mark.at)
		}
	}
}

// tickMark sends a report that is due; one that got no answer is told anew, up to where the user is by then.
func (d *Device) tickMark(slot int, now clock.Time) {
	c := &d.convs[slot]
	m := c.mark
	if m.asked != 0 && m.asked.Add(d.g.cfg.ResendAfter) <= now {
		m.asked, m.at = 0, now
	}
	if m.at == 0 || m.at > now || m.asked != 0 || d.state != ready {
		return
	}
	m.at, m.asked, m.msg = 0, now, c.lastMsg
	d.write(&protocol.Request{Op: protocol.OpRead, ID: uint32(slot), Seq: c.cursor, Epoch: c.epoch,
		Conv: d.g.pop.Convs[d.convIndex(slot)].ID}, sample.FRead, c.lastMsg)
	d.arm(now.Add(d.g.cfg.ResendAfter))
}

// next is when tickMark has something to do; 0 = there is nothing.
func (m *readMark) next(d *Device) clock.Time {
	if m.asked != 0 {
		return m.asked.Add(d.g.cfg.ResendAfter)
	}
	return m.at
}

// marked is the reply to a report, or a position of someone else that moved.
func (d *Device) marked(f *protocol.Frame, now clock.Time) {
	if f.Re != protocol.OpRead {
		d.frame(sample.Down, sample.FOther, f.Bytes, now, 0)
		return
	}
	var msg clock.Time
	if int(f.ID) < len(d.convs) && d.convs[f.ID].mark != nil {
		if m := d.convs[f.ID].mark; m.asked != 0 {
			msg = m.msg
			d.g.sink.Op(sample.Op{Kind: sample.OpRead, Device: d.index, Start: m.asked, Done: max(now, m.asked), Msg: msg})
			m.asked = 0
			d.arm(m.at)
		}
	}
	d.frame(sample.Down, sample.FReaded, f.Bytes, now, msg)
}

// markRefused handles an error reply to a report. One that is refused for good would be refused again.
func (d *Device) markRefused(f *protocol.Frame, now clock.Time) clock.Time {
	if int(f.ID) >= len(d.convs) || d.convs[f.ID].mark == nil || d.convs[f.ID].mark.asked == 0 {
		return 0
	}
	m := d.convs[f.ID].mark
	d.g.sink.Op(sample.Op{Kind: sample.OpRead, Device: d.index, Start: m.asked, Done: max(now, m.asked), Msg: m.msg, Code: f.Code})
	m.asked = 0
	if again, after := d.unknown(f); again {
		m.at = now.Add(after)
		d.arm(m.at)
	}
	return m.msg
}

// dropMark puts a report that is on its way back to where the next session takes it up.
func (c *conv) dropMark() {
	if c.mark != nil && c.mark.asked != 0 {
		c.mark.asked, c.mark.at = 0, clock.Now()
	}
}

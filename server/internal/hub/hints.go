package hub

import (
	"time"

	"imbench/server/internal/im"
)

// dueHint is a hint held by a connection, to be released at the given time.
type dueHint struct {
	c    *Conn
	conv string
	at   int64
}

// maxHeld bounds the hints that a shard holds back; beyond it they are sent at once.
const maxHeld = 1 << 18

// hintQueue orders held hints by time. As all are held equally long, they come in that order.
type hintQueue struct {
	list []dueHint
	head int
}

func (q *hintQueue) add(d dueHint) { q.list = append(q.list, d) }

func (q *hintQueue) len() int { return len(q.list) - q.head }

// wait is the time until the first is due, and whether there is one.
func (q *hintQueue) wait(now int64) (time.Duration, bool) {
	if q.len() == 0 {
		return 0, false
	}
	return time.Duration(max(0, q.list[q.head].at-now)), true
}

// next takes the first one if it is due.
func (q *hintQueue) next(now int64) (dueHint, bool) {
	if q.len() == 0 || q.list[q.head].at > now {
		return dueHint{}, false
	}
	d := q.list[q.head]
	q.list[q.head] = dueHint{}
	q.head++
	if q.head == len(q.list) {
		q.list, q.head = q.list[:0], 0
	} else if q.head >= 1024 && q.head*2 >= len(q.list) {
		n := copy(q.list, q.list[q.head:])
		clear(q.list[n:])
		q.list, q.head = q.list[:n], 0
	}
	return d, true
}

// hintAll hints the members at seq, whatever the conversation's mode.
func (s *shard) hintAll(e *entry, seq int64, but string) { s.hint(e, seq, e.count(seq), but) }

// hint tells the n members at seq that the conversation reaches to seq. Above a size only those who look at it are told.
func (s *shard) hint(e *entry, seq int64, n int, but string) {
	s.hintEach(e, s.receivers(e, seq, but), seq, n)
}

// hintEach tells these devices of a conversation of n members that it reaches to seq.
func (s *shard) hintEach(e *entry, list []*Conn, seq int64, n int) {
	cfg := &s.hub.cfg
	openOnly := exceeds(n, e.openOnly, cfg.OpenOnlyAbove)
	var f *frame
	for _, c := range list {
		if openOnly && !c.looksAt(e.conv) {
			continue
		}
		if cfg.HintWindow > 0 && s.hints.len() < maxHeld {
			if c.hold(e.conv, seq) {
				s.hints.add(dueHint{c, e.conv, s.hub.now() + int64(cfg.HintWindow)})
			}
			continue
		}
		if f == nil {
			f = newHintFrame(e.conv, seq, "")
		}
		mark, now := c.pushHint(f)
		s.pushed(c, mark, now)
	}
}

// tellJoined hints those who joined within what was passed over because nobody who was thought to be a member was here:
// their change of members came after the event. The others were not here then, and learned of it from convs.
func (s *shard) tellJoined(p *plan) {
	e, head := p.e, max(p.to, p.e.last)
	r := &s.hub.registry
	list := s.scratch[:0]
	add := func(u *user) {
		for c := u.conns; c != nil; c = c.next {
			list = append(list, c)
		}
	}
	r.mu.RLock()
	for _, m := range e.members {
		if m.from >= p.since && m.from <= e.last {
			add(m.user)
		}
	}
	for _, q := range e.ended {
		if q.from >= p.since && q.from <= e.last {
			add(q.user)
		}
	}
	r.mu.RUnlock()
	s.scratch = list
	s.hintEach(e, list, head, len(e.members))
}

// looksAt says whether the device has the conversation open.
func (c *Conn) looksAt(conv string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.isOpen(conv)
}

// releaseHints sends the held hints whose time has come. Those of one conversation usually follow each other with the
// same head, and share a frame.
func (s *shard) releaseHints() {
	var f *frame
	for {
		d, ok := s.hints.next(s.hub.now())
		if !ok {
			return
		}
		head, ok := d.c.release(d.conv)
		if !ok {
			continue // the connection has gone
		}
		if f == nil || f.conv != d.conv || f.seq != head {
			f = newHintFrame(d.conv, head, "")
		}
		mark, now := d.c.pushHint(f)
		s.pushed(d.c, mark, now)
	}
}

// tellLagging hints devices that the sweep's database level found behind, unless they were told of everything: then
// the level in memory sees to them.
func (s *shard) tellLagging(p *plan) {
	for _, l := range p.lags {
		c := s.hub.device(l.Device)
		if c == nil {
			continue
		}
		// A conversation that is only hinted lags by choice, unless the user is looking at it.
		lazy := l.Mode == im.Pull || (p.e != nil && p.e.hi > 0 && s.hinted(p.e, p.e.count(l.Head)))
		mark, now := c.repair(l, lazy)
		s.pushed(c, mark, now)
	}
}

// repair queues a hint for a device that was never told of what it lacks; from then on the level in memory repeats it.
func (c *Conn) repair(l im.Lag, lazy bool) (mark, now bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.since == 0 || c.closing || (lazy && !c.isOpen(l.Conv)) || c.told.covers(l.Conv, l.Head) {
		return false, false
	}
	c.tell(l.Conv, l.Head, 0, lazy)
	c.hub.metrics.sweepHints.Add(1)
	return c.pushLocked(newHintFrame(l.Conv, l.Head, "sweep"))
}

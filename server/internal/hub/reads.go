package hub

import (
	"context"
	"math"
	"time"

	"imbench/server/internal/im"
	"imbench/server/wire"
)

// maxReads bounds the read positions that wait in a shard; beyond it they are dropped and counted. A device that misses
// one learns of it from convs.
const maxReads = 4096

// reader names whose position in which conversation; moved is to where, and which device reported it.
type (
	reader struct{ conv, user string }
	moved  struct {
		user, device string
		seq          int64
	}
)

// ReadMoved tells that users' read positions moved: their other devices, in a direct chat the peer's, and in a group, as
// one merged count, the devices that have it open. What comes within Config.HintWindow goes together. It never blocks.
func (h *Hub) ReadMoved(notes []im.ReadNote) {
	for _, n := range notes {
		h.shard(n.Conv).readMoved(n)
	}
}

func (s *shard) readMoved(n im.ReadNote) {
	key := reader{n.Conv, n.User}
	s.mu.Lock()
	old, waits := s.reads[key]
	if !waits && len(s.reads) >= maxReads {
		s.mu.Unlock()
		s.hub.metrics.readDrops.Add(1)
		return
	}
	if n.Seq > old.seq {
		s.reads[key] = moved{n.User, n.Device, n.Seq}
	}
	first := !waits && len(s.reads) == 1
	if first {
		s.readsAt = s.hub.now() + int64(s.hub.cfg.HintWindow)
	}
	s.mu.Unlock()
	if first {
		s.signal()
	}
}

// takeReads takes what is due, of at most waitingConvs conversations: the rest follows after the events that came
// meanwhile.
func (s *shard) takeReads() map[string][]moved {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.reads) == 0 || s.hub.now() < s.readsAt {
		return nil
	}
	byConv := make(map[string][]moved, min(len(s.reads), waitingConvs))
	for key, r := range s.reads {
		if list, ok := byConv[key.conv]; ok || len(byConv) < waitingConvs {
			byConv[key.conv] = append(list, r)
			delete(s.reads, key)
		}
	}
	return byConv
}

// releaseReads tells what is due. If the members cannot be read, only the users' own devices are told.
func (s *shard) releaseReads(ctx context.Context) {
	byConv := s.takeReads()
	if len(byConv) == 0 {
		return
	}
	for conv, list := range byConv {
		for _, r := range list {
			s.tellRead(conv, r, s.connsOf(r.user))
		}
	}
	s.readReaders(ctx, byConv)
	for conv, list := range byConv {
		e := s.cache.entries[conv]
		switch {
		case e == nil || !e.current():
		case e.direct:
			for _, r := range list {
				for _, m := range e.members {
					if m.user.id != r.user {
						s.tellRead(conv, r, s.connsOf(m.user.id))
					}
				}
			}
		default:
			s.countReads(e, list)
		}
	}
}

// current says whether the members are those of the last event heard of.
func (e *entry) current() bool { return e.hi > 0 && e.hi >= e.last }

// readReaders loads, in one call, the members of those conversations of which they are not known. Where none of those
// who were members is here, they are not asked for, and nobody is told.
func (s *shard) readReaders(ctx context.Context, byConv map[string][]moved) {
	var ranges []im.SeqRange
	positions := 0
	for conv, list := range byConv {
		from := list[0].seq
		if e := s.cache.get(conv); e != nil {
			if e.current() || (e.hi > 0 && !s.heard(e, e.hi)) {
				continue
			}
			if e.last > 0 {
				from = e.last + 1
			}
		}
		ranges = append(ranges, im.SeqRange{Conv: conv, From: from, To: from})
		positions += len(list)
	}
	if len(ranges) == 0 {
		return
	}
	if err := s.loadReaders(ctx, ranges); err != nil {
		s.hub.metrics.readDrops.Add(int64(positions))
	}
}

func (s *shard) loadReaders(ctx context.Context, ranges []im.SeqRange) error {
	if time.Now().Before(s.retryAt) {
		return im.ErrUnavailable
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	s.hub.metrics.memberReads.Add(1)
	infos, err := s.hub.src.ConvInfos(ctx, ranges)
	if err != nil {
		s.failed(err)
		return err
	}
	from := make(map[string]int64, len(ranges))
	for _, r := range ranges {
		from[r.Conv] = r.From
	}
	for _, info := range infos {
		e := s.cache.entries[info.Conv]
		if e == nil {
			e = s.cache.add(info.Conv)
		}
		e.load(&s.hub.registry, info, from[info.Conv])
		s.cache.resized(e)
	}
	return nil
}

// connsOf lists a user's connections. The list is valid until the next call of this or receivers.
func (s *shard) connsOf(id string) []*Conn {
	list := s.scratch[:0]
	s.hub.registry.mu.RLock()
	if u := s.hub.registry.users[id]; u != nil {
		for c := u.conns; c != nil; c = c.next {
			list = append(list, c)
		}
	}
	s.hub.registry.mu.RUnlock()
	s.scratch = list
	return list
}

// tellRead tells these devices, but the reporting one, of one user's position.
func (s *shard) tellRead(conv string, r moved, list []*Conn) {
	var f *frame
	for _, c := range list {
		if c.peer.Device == r.device {
			continue
		}
		if f == nil {
			f = newReadFrame(&wire.Frame{T: wire.TRead, Conv: conv, User: r.user, Seq: r.seq})
		}
		mark, now := c.pushRead(f)
		s.pushed(c, mark, now)
	}
}

// countReads tells the members' devices that have the group open how many others moved, and to where the furthest did.
func (s *shard) countReads(e *entry, list []moved) {
	var first, second moved // the two furthest
	for _, r := range list {
		switch {
		case r.seq > first.seq:
			first, second = r, first
		case r.seq > second.seq:
			second = r
		}
	}
	moves := make(map[string]bool, len(list))
	for _, r := range list {
		moves[r.user] = true
	}
	all := newReadFrame(&wire.Frame{T: wire.TRead, Conv: e.conv, Seq: first.seq, Users: int64(len(list))})
	for _, c := range s.receivers(e, math.MaxInt64, "") {
		if !c.looksAt(e.conv) {
			continue
		}
		f := all
		if moves[c.peer.User] { // who was told of his own position already
			seq := first.seq
			if c.peer.User == first.user {
				seq = second.seq
			}
			if len(list) == 1 {
				continue
			}
			f = newReadFrame(&wire.Frame{T: wire.TRead, Conv: e.conv, Seq: seq, Users: int64(len(list) - 1)})
		}
		mark, now := c.pushRead(f)
		s.pushed(c, mark, now)
	}
}

// pushRead queues a read position; one of the same user that waits is raised instead. A device that is slow to receive
// does without: it says nothing that convs does not say.
func (c *Conn) pushRead(f *frame) (mark, now bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.since == 0 || c.closing {
		return false, false
	}
	if f.user != "" {
		for i, q := range c.queue {
			if q.kind == KRead && q.user == f.user && q.conv == f.conv {
				if f.seq > q.seq {
					c.replaceLocked(i, f)
				}
				return false, false // whoever queued q has seen to the flush
			}
		}
	}
	if c.toldLocked() >= c.hub.cfg.QueueFrames/2 {
		c.hub.metrics.readDrops.Add(1)
		return false, false
	}
	return c.pushLocked(f)
}

package hub

import (
	"context"
	"slices"

	"imbench/server/internal/im"
	"imbench/server/wire"
)

// plan is one conversation's part in a round.
type plan struct {
	*work
	e      *entry
	lo     int64 // first seq to fan out; > to: nothing
	gap    bool  // too far ahead: one hint for everything
	unread bool  // nobody is here to whom events could be told, so that they are not read
	known  bool  // e's members are valid at lo (at to, for a gap)
}

// round fans out one bounded part of what waited: first it reads in bulk what is missing, with one call for members and
// one for events, then it delivers conversation by conversation.
// An error means that the reads failed and nothing was delivered.
func (s *shard) round(ctx context.Context, list []*work) error {
	plans := make([]plan, 0, len(list))
	for _, w := range list {
		plans = append(plans, s.plan(w))
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	err := s.readMembers(ctx, plans)
	if err == nil {
		for i := range plans {
			s.skipUnheard(&plans[i])
		}
		err = s.readEvents(ctx, plans)
	}
	if err != nil {
		return err // which plans lack nothing is not worth telling apart
	}
	s.backoff = 0
	for i := range plans {
		s.deliver(&plans[i])
	}
	return nil
}

// plan decides what is to be fanned out: after last, or, without one, from what was announced on.
func (s *shard) plan(w *work) plan {
	p := plan{work: w, e: s.cache.get(w.conv)}
	if p.e != nil && w.reload {
		p.e.hi = 0
	}
	if w.to == 0 {
		p.lo = 1
		return p
	}
	p.lo = w.from
	if p.e == nil {
		p.e = s.cache.add(w.conv)
	} else if p.e.last > 0 {
		p.lo = p.e.last + 1
	}
	if p.gap = w.to-p.lo >= int64(s.hub.cfg.MaxGap); p.gap {
		p.known = p.e.hi >= w.to && p.e.lo <= w.to
	} else {
		p.known = p.e.valid(p.lo)
	}
	s.skipUnheard(&p)
	return p
}

// start is the first seq whose members must be known.
func (p *plan) start() int64 {
	if p.gap {
		return p.to
	}
	return p.lo
}

// pending says whether there is anything to fan out.
func (p *plan) pending() bool { return p.to >= p.lo && p.to > 0 && !p.unread }

// skipUnheard spares the reads for a conversation none of whose members, as last known, is connected here. Its
// validity ends there: when one of them is, the members are read again. Someone who joined within what was skipped is
// announced as a change of members; should that be lost, the sweep finds what he was not told.
func (s *shard) skipUnheard(p *plan) {
	if !p.pending() || p.e.hi == 0 || len(p.events) > 0 && p.known {
		return
	}
	r := &s.hub.registry
	r.mu.RLock()
	defer r.mu.RUnlock()
	for i := range p.e.periods {
		if q := &p.e.periods[i]; (q.To == 0 || q.To >= p.lo) && r.users[q.User] != nil {
			return
		}
	}
	p.unread = true
	p.e.last = p.to
	s.hub.metrics.skips.Add(1)
}

// readMembers loads the periods of all conversations that are not known, in one call.
func (s *shard) readMembers(ctx context.Context, plans []plan) error {
	var ranges []im.SeqRange
	for i := range plans {
		if p := &plans[i]; p.pending() && !p.known {
			ranges = append(ranges, im.SeqRange{Conv: p.conv, From: p.start(), To: p.to})
		}
	}
	if len(ranges) == 0 {
		return nil
	}
	s.hub.metrics.memberReads.Add(1)
	infos, err := s.hub.src.ConvInfos(ctx, ranges)
	if err != nil {
		return err
	}
	byConv := make(map[string]*im.ConvInfo, len(infos))
	for i := range infos {
		byConv[infos[i].Conv] = &infos[i]
	}
	for i := range plans {
		p := &plans[i]
		if !p.pending() || p.known {
			continue
		}
		if info := byConv[p.conv]; info != nil {
			p.e.load(*info, p.start())
			p.known = true
		} else {
			p.e.hi, p.e.periods, p.unread = 0, nil, true // the conversation is gone
		}
	}
	return nil
}

// readEvents reads all events that are to be pushed and are not at hand, in one call, and puts each plan's in order.
func (s *shard) readEvents(ctx context.Context, plans []plan) error {
	var ranges []im.SeqRange
	for i := range plans {
		p := &plans[i]
		if !p.pending() || p.gap {
			continue
		}
		slices.SortFunc(p.events, func(a, b im.Event) int { return int(a.Seq - b.Seq) })
		p.events = slices.CompactFunc(p.events, func(a, b im.Event) bool { return a.Seq == b.Seq })
		next := p.lo
		for j := range p.events {
			seq := p.events[j].Seq
			if seq > next {
				ranges = append(ranges, im.SeqRange{Conv: p.conv, From: next, To: seq - 1})
			}
			next = max(next, seq+1)
		}
		if next <= p.to {
			ranges = append(ranges, im.SeqRange{Conv: p.conv, From: next, To: p.to})
		}
	}
	if len(ranges) == 0 {
		return nil
	}
	s.hub.metrics.eventReads.Add(1)
	read, err := s.hub.src.Events(ctx, ranges)
	if err != nil {
		return err
	}
	s.hub.metrics.eventRows.Add(int64(len(read)))
	byConv := make(map[string]*plan, len(plans))
	for i := range plans {
		byConv[plans[i].conv] = &plans[i]
	}
	for i := range read {
		if p := byConv[read[i].Conv]; p != nil {
			p.events = append(p.events, read[i])
		}
	}
	for i := range plans {
		slices.SortFunc(plans[i].events, func(a, b im.Event) int { return int(a.Seq - b.Seq) })
	}
	return nil
}

// deliver fans out one conversation.
func (s *shard) deliver(p *plan) {
	if p.pending() {
		if p.gap {
			s.hub.metrics.gapHints.Add(1)
			s.hintAll(p.e, p.to, "")
			p.e.last = p.to
		} else {
			s.deliverEvents(p)
		}
		p.e.compact(p.e.last)
	}
	if len(p.lags) > 0 {
		s.tellLagging(p)
	}
	if p.e != nil {
		s.cache.resized(p.e)
	}
}

func (s *shard) deliverEvents(p *plan) {
	e := p.e
	for i := range p.events {
		ev := &p.events[i]
		if ev.Seq < p.lo || ev.Seq > p.to {
			continue
		}
		if !e.apply(ev) {
			break // an event is missing (retention removed it): read the members again next time
		}
		s.deliverEvent(e, ev, p.at)
	}
	if e.hi < p.to {
		e.hi = 0
	}
	e.last = p.to
}

// deliverEvent gives one event to the devices of the members at its seq.
func (s *shard) deliverEvent(e *entry, ev *im.Event, at int64) {
	n := e.count(ev.Seq)
	if s.hinted(e, n) {
		s.hint(e, ev.Seq, n, ev.SenderDevice)
		return
	}
	var f *frame
	for _, c := range s.receivers(e, ev.Seq, ev.SenderDevice) {
		if f == nil {
			w := WireEvent(ev)
			f = newEventFrame(&w, at)
			f.conv = e.conv
		}
		mark, now := c.pushEvent(f)
		s.pushed(c, mark, now)
	}
}

// hinted says whether a conversation of n members is hinted rather than pushed.
func (s *shard) hinted(e *entry, n int) bool {
	return e.mode == im.Pull || (s.hub.cfg.HintAbove > 0 && n > s.hub.cfg.HintAbove)
}

// receivers lists the connections of the members at seq but the one device. The list is valid until the next call.
func (s *shard) receivers(e *entry, seq int64, but string) []*Conn {
	r := &s.hub.registry
	list := s.scratch[:0]
	r.mu.RLock()
	for i := range e.periods {
		if p := &e.periods[i]; contains(p, seq) {
			for c := r.users[p.User]; c != nil; c = c.next {
				if but == "" || c.peer.Device != but {
					list = append(list, c)
				}
			}
		}
	}
	r.mu.RUnlock()
	s.scratch = list
	return list
}

// WireEvent is an event as clients see it.
func WireEvent(e *im.Event) wire.Event {
	return wire.Event{Conv: e.Conv, Seq: e.Seq, Epoch: e.Epoch, Kind: string(e.Kind), MID: e.MID, Sender: e.Sender,
		CMID: e.CMID, Body: e.Body, User: e.User, Target: e.Target, At: e.At.UnixMilli()}
}

package hub

import (
	"context"
	"math"
	"slices"

	"imbench/server/internal/im"
	"imbench/server/internal/im/imwire"
)

// plan is one conversation's part in a round.
type plan struct {
	*work
	e      *entry
	lo     int64 // first seq to fan out; > to: nothing. What the entry says was fanned out is left out
	gap    bool  // too far ahead: one hint for everything
	unread bool  // nobody is here to whom events could be told, so that they are not read
	known  bool  // e's members are valid at lo (at to, for a gap)
	since  int64 // > 0: what was passed over from here on was so on the word of members that are no longer believed
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

// plan decides what is to be fanned out: what was announced, from last on, and, as another gateway's announcement may
// come after this one's own later commit, what lies closely before first.
func (s *shard) plan(w *work) plan {
	p := plan{work: w, e: s.cache.get(w.conv)}
	if p.e != nil && w.reload {
		if p.e.hi > 0 && p.e.hi < p.e.last {
			p.since = p.e.hi + 1
		} else {
			p.e.forget(&s.hub.registry)
		}
	}
	if w.to == 0 {
		p.lo = 1
		return p
	}
	if p.e == nil {
		p.e = s.cache.add(w.conv)
	}
	p.lo = w.from
	next, most := w.from, int64(s.hub.cfg.MaxGap)
	if e := p.e; e.last > 0 {
		next, p.lo = e.last+1, e.last+1
		if late := e.first - w.from; late > 0 && late < most && w.to-next < most {
			p.lo = w.from
			w.to = max(w.to, e.first-1)
		}
	}
	switch p.gap = w.to-next >= most; {
	case p.since > 0:
	case p.gap:
		p.known = p.e.hi >= w.to && p.e.lo <= w.to
	default:
		p.known = p.e.valid(p.lo) && (p.lo == next || p.e.hi >= p.e.last)
	}
	s.skipUnheard(&p)
	return p
}

// start is the first seq whose members must be known.
func (p *plan) start() int64 {
	switch {
	case p.since > 0 && p.pending():
		return min(p.since, p.lo)
	case p.since > 0:
		return p.since
	case p.gap:
		return p.to
	}
	return p.lo
}

// lacksMembers says whether the members must be read.
func (p *plan) lacksMembers() bool { return p.since > 0 || p.pending() && !p.known }

// pending says whether there is anything to fan out.
func (p *plan) pending() bool { return p.to >= p.lo && p.to > 0 && !p.unread }

// skipUnheard spares the reads for a conversation none of whose members, as last known, is connected here. Its
// validity ends there: when one of them is, the members are read again. Someone who joined within what was skipped is
// announced as a change of members, before the event or after it (tellJoined); should that be lost, he is told by the
// next event.
func (s *shard) skipUnheard(p *plan) {
	if !p.pending() || p.e.hi == 0 || p.since > 0 || len(p.events) > 0 && p.known || s.heard(p.e, p.lo) {
		return
	}
	p.unread = true
	p.e.done(p.lo, p.to)
	s.hub.metrics.skips.Add(1)
}

// heard says whether someone is connected here who is a member as far as known, or was at from or later.
func (s *shard) heard(e *entry, from int64) (heard bool) {
	r := &s.hub.registry
	r.mu.RLock()
	defer r.mu.RUnlock()
	e.each(from, math.MaxInt64, func(u *user) bool {
		heard = u.conns != nil
		return !heard
	})
	return heard
}

// readMembers loads the periods of all conversations that are not known, in one call.
func (s *shard) readMembers(ctx context.Context, plans []plan) error {
	var ranges []im.SeqRange
	for i := range plans {
		if p := &plans[i]; p.lacksMembers() {
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
		if !p.lacksMembers() {
			continue
		}
		info := byConv[p.conv]
		if info == nil { // the conversation is gone
			p.e.forget(&s.hub.registry)
			p.unread, p.since = true, 0
			continue
		}
		p.e.load(&s.hub.registry, *info, p.start())
		p.known = true
		if p.since > 0 {
			s.tellJoined(p)
			p.since = 0
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
			ranges = p.lacks(ranges, next, seq-1)
			next = max(next, seq+1)
		}
		ranges = p.lacks(ranges, next, p.to)
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

// lacks adds what of from..to must be read: what was fanned out before need not.
func (p *plan) lacks(ranges []im.SeqRange, from, to int64) []im.SeqRange {
	if e := p.e; e.last > 0 && from <= e.last && to >= e.first {
		ranges = p.lacks(ranges, from, e.first-1)
		from = e.last + 1
	}
	if from <= to {
		ranges = append(ranges, im.SeqRange{Conv: p.conv, From: from, To: to})
	}
	return ranges
}

// deliver fans out one conversation.
func (s *shard) deliver(p *plan) {
	if p.pending() {
		if p.gap {
			s.hub.metrics.gapHints.Add(1)
			s.hintAll(p.e, p.to, "")
		} else {
			s.deliverEvents(p)
		}
		p.e.done(p.lo, p.to)
		p.e.compact(&s.hub.registry, p.e.last)
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
		if !e.apply(&s.hub.registry, ev) {
			break // an event is missing (retention removed it): read the members again next time
		}
		if !e.told(ev.Seq) {
			s.deliverEvent(e, ev, p.at)
		}
	}
	if e.hi < p.to {
		e.forget(&s.hub.registry)
	}
}

// deliverEvent gives one event to the devices of the members at its seq.
func (s *shard) deliverEvent(e *entry, ev *im.Event, at int64) {
	n := e.count(ev.Seq)
	if s.hinted(e, n) {
		if ev.Seq > e.last || ev.Kind == im.KindLeave { // else all have a later hint
			s.hint(e, ev.Seq, n, ev.SenderDevice)
		}
		return
	}
	var f *frame
	for _, c := range s.receivers(e, ev.Seq, ev.SenderDevice) {
		if f == nil {
			w := imwire.Event(ev)
			f = newEventFrame(&w, at)
			f.conv, f.epoch = e.conv, ev.Epoch
		}
		mark, now := c.pushEvent(f)
		s.pushed(c, mark, now)
	}
}

// hinted says whether a conversation of n members is hinted rather than pushed.
func (s *shard) hinted(e *entry, n int) bool {
	return e.pull || exceeds(n, e.hintAbove, s.hub.cfg.HintAbove)
}

// exceeds says whether n members are more than the conversation's own threshold, or the gateway's if it has none.
func exceeds(n int, own int32, gateway int) bool {
	switch {
	case own == im.Never:
		return false
	case own > 0:
		return n > int(own)
	}
	return gateway > 0 && n > gateway
}

// receivers lists the connections of the members at seq but the one device. The list is valid until the next call.
func (s *shard) receivers(e *entry, seq int64, but string) []*Conn {
	r := &s.hub.registry
	list := s.scratch[:0]
	r.mu.RLock()
	e.each(seq, seq, func(u *user) bool {
		for c := u.conns; c != nil; c = c.next {
			if but == "" || c.peer.Device != but {
				list = append(list, c)
			}
		}
		return true
	})
	r.mu.RUnlock()
	s.scratch = list
	return list
}

package testgate

import (
	"slices"
	"time"

	"imbench/server/wire"
)

// request answers one request of a session.
func (s *Session) request(r wire.Request) {
	g := s.gate
	g.mu.Lock()
	before := g.seen[r.T]
	g.seen[r.T]++
	if r.T == wire.THello {
		s.device = r.Device
	}
	if !g.Forgetful {
		g.requests = append(g.requests, Seen{s.device, time.Now(), r})
	}
	if g.Silent.Load() {
		g.mu.Unlock()
		return
	}
	if r.T == wire.THello {
		g.attempts++
		if g.Admit != nil {
			if ok, ms := g.Admit(g.attempts); !ok {
				g.mu.Unlock()
				s.end(wire.CloseNotAdmitted.Code, retryText(ms))
				return
			}
		}
	}
	defer g.mu.Unlock()
	if g.Refuse != nil {
		if code, ms := g.Refuse(&r, before); code != "" {
			s.send(&wire.Frame{T: wire.TError, RID: r.RID, Code: code, Message: "refused by the test", RetryAfterMS: ms})
			return
		}
	}
	s.answer(&r)
}

func (s *Session) answer(r *wire.Request) {
	g := s.gate
	l := g.convs[r.Conv]
	switch r.T {
	case wire.THello:
		g.sessions[s.device] = s
		s.send(&wire.Frame{T: wire.TWelcome, RID: r.RID, Conn: int64(g.attempts), Generation: int64(g.attempts),
			HeartbeatMS: int(g.Heartbeat.Milliseconds()), Gateway: "test", Environment: g.Environment})
	case wire.TSub:
		s.subbed = true
		s.send(&wire.Frame{T: wire.TSubbed, RID: r.RID})
	case wire.TOpen:
		s.open[r.Conv] = true
		s.send(&wire.Frame{T: wire.TOpened, RID: r.RID, Conv: r.Conv})
	case wire.TConvs:
		s.convs(r)
	case wire.TSend:
		s.sendRequest(r)
	case wire.TAck:
		if r.Seq > int64(len(l.events)) {
			s.send(&wire.Frame{T: wire.TError, RID: r.RID, Code: wire.CursorAhead})
			return
		}
		before := l.acked[s.device]
		l.acked[s.device] = max(before, r.Seq)
		told := l.acked[s.device]
		if g.Tamper.Acked != nil {
			told = g.Tamper.Acked(s.device, r.Conv, before, told)
		}
		s.send(&wire.Frame{T: wire.TAcked, RID: r.RID, Conv: r.Conv, Delivered: told})
	case wire.TRead:
		s.send(&wire.Frame{T: wire.TReaded, RID: r.RID, Conv: r.Conv, Read: r.Seq})
	case wire.TFetch:
		if r.Seq > int64(len(l.events)) {
			s.send(&wire.Frame{T: wire.TError, RID: r.RID, Code: wire.CursorAhead})
			return
		}
		s.send(&wire.Frame{T: wire.TEvent, RID: r.RID, Ev: l.events[r.Seq-1]})
	case wire.TSync:
		page := int64(5)
		if g.Page > 0 {
			page = int64(g.Page)
		}
		head := int64(len(l.events))
		to := min(r.After+page, head)
		f := &wire.Frame{T: wire.TSynced, RID: r.RID, Conv: r.Conv, Events: g.page(s.device, r.Conv, r.After, to), Head: head,
			MinSeq: 1, NextAfter: max(r.After, to), HasMore: to < head, Epoch: 1}
		if g.SyncDelay == 0 {
			s.send(f)
			return
		}
		time.AfterFunc(g.SyncDelay, func() {
			g.mu.Lock()
			defer g.mu.Unlock()
			s.send(f)
		})
	}
}

// sendRequest answers a send and announces the message. g.mu must be held.
func (s *Session) sendRequest(r *wire.Request) {
	g := s.gate
	l := g.convs[r.Conv]
	seq, dup := g.commit(r.Conv, g.users[s.device], r.CMID, r.Body)
	s.send(&wire.Frame{T: wire.TSent, RID: r.RID, Conv: r.Conv, Seq: seq, Dup: dup, MID: l.events[seq-1].MID, Epoch: 1})
	what := Once
	if g.Tamper.Commit != nil && !dup {
		what = g.Tamper.Commit(s.device, r.Conv, seq)
	}
	switch {
	case dup:
	case what == Forget:
		l.events[seq-1] = wire.Event{Seq: seq}
	case what == Twice:
		g.announce(r.Conv, seq, s.device)
		g.announce(r.Conv, l.add(r.Conv, g.users[s.device], r.CMID, r.Body), "")
	default:
		g.announce(r.Conv, seq, s.device)
	}
}

// convs answers with pages of two if Page says nothing else, so that clients must page.
func (s *Session) convs(r *wire.Request) {
	g := s.gate
	var mine []string
	for _, id := range g.lists[g.users[s.device]] {
		if id > r.AfterID {
			mine = append(mine, id)
		}
	}
	slices.Sort(mine)
	f := &wire.Frame{T: wire.TConvlist, RID: r.RID}
	page := 2
	if g.Page > 0 {
		page = g.Page
	}
	for _, id := range mine[:min(page, len(mine))] {
		l := g.convs[id]
		f.Convs = append(f.Convs, wire.ConvState{Conv: id, Kind: "group", Mode: l.mode, Head: int64(len(l.events)), MinSeq: 1,
			Epoch: 1, Delivered: l.acked[s.device]})
	}
	if f.More = len(mine) > page; f.More {
		f.Next = mine[page-1]
	}
	s.send(f)
}

// gone forgets a session.
func (s *Session) gone() {
	g := s.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.sessions[s.device] == s {
		delete(g.sessions, s.device)
	}
}

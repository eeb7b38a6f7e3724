package gateway

import (
	"context"
	"time"

	"imbench/server/internal/im"
	"imbench/server/internal/im/imwire"
	"imbench/server/wire"
)

// handle answers one request, or sees to it that it will be answered.
func (s *session) handle(req *wire.Request) {
	if !s.allowed() {
		s.fail(req.RID, im.ErrRateLimited)
		return
	}
	switch req.T {
	case wire.TSend:
		s.send(req)
	case wire.TAck:
		s.ack(req)
	case wire.TSync:
		aside(func() { s.sync(req) })
	case wire.TConvs:
		aside(func() { s.convs(req) })
	case wire.TFetch:
		aside(func() { s.fetch(req) })
	case wire.TRead:
		s.mark(req)
	case wire.TRecall, wire.TJoin, wire.TLeave:
		s.change(req)
	default:
		s.note(req)
	}
}

// note answers the requests that change only what the hub knows of the connection. One frame serves them all: one for
// each would make the stack of every connection grow.
func (s *session) note(req *wire.Request) {
	f := wire.Frame{RID: req.RID}
	switch req.T {
	case wire.TSub:
		s.conn.Subscribe()
		f.T = wire.TSubbed
	case wire.TOpen:
		s.conn.Open(req.Conv)
		f.T, f.Conv = wire.TOpened, req.Conv
	case wire.TClose:
		s.conn.Shut(req.Conv)
		f.T, f.Conv = wire.TClosed, req.Conv
	case wire.TPing:
		f.T = wire.TPong
	default: // hello
		s.refused(req, &wire.Error{Code: wire.BadRequest, Message: "hello was said already"})
		return
	}
	s.conn.ReplyNow(&f)
}

// send hands the message to the group commit. Nothing here waits for it.
func (s *session) send(req *wire.Request) {
	if s.inFlight.Add(1) > int32(s.g.cfg.SendsInFlight) {
		s.inFlight.Add(-1)
		s.fail(req.RID, im.ErrRateLimited)
		return
	}
	rid, conv := req.RID, req.Conv
	s.g.deps.Sender.Submit(im.SendReq{From: s.me, Conv: conv, CMID: req.CMID, Body: req.Body}, func(r im.SendResult) {
		s.inFlight.Add(-1)
		if r.Err != nil {
			s.fail(rid, r.Err)
			return
		}
		s.conn.Sent(conv, r.Seq, r.Epoch)
		s.conn.Reply(&wire.Frame{T: wire.TSent, RID: rid, Conv: conv, Seq: r.Seq, MID: r.MID, Dup: r.Dup, Epoch: r.Epoch})
	})
}

func (s *session) ack(req *wire.Request) {
	rid, conv := req.RID, req.Conv
	s.g.deps.Acker.Submit(im.AckReq{From: s.me, Conv: conv, Seq: req.Seq, Epoch: req.Epoch, Told: s.conn.Told(conv, req.Seq, req.Epoch)}, func(r im.AckResult) {
		if r.Err != nil {
			s.fail(rid, r.Err)
			return
		}
		s.conn.Acked(conv, r.Delivered)
		s.conn.Reply(&wire.Frame{T: wire.TAcked, RID: rid, Conv: conv, Delivered: r.Delivered})
	})
}

// mark hands a read report on; who else is to know of it is told by whoever writes it.
func (s *session) mark(req *wire.Request) {
	rid, conv := req.RID, req.Conv
	s.g.deps.Marker.Submit(im.ReadReq{From: s.me, Conv: conv, Seq: req.Seq, Epoch: req.Epoch}, func(r im.ReadResult) {
		if r.Err != nil {
			s.fail(rid, r.Err)
			return
		}
		s.conn.Reply(&wire.Frame{T: wire.TReaded, RID: rid, Conv: conv, Read: r.Read, Unread: r.Unread})
	})
}

// change has a recall, join or leave done beside the reader. Drain waits for it as for the reader.
func (s *session) change(req *wire.Request) {
	if s.asideInFlight.Add(1) > int32(s.g.cfg.AsideInFlight) {
		s.asideInFlight.Add(-1)
		s.fail(req.RID, im.ErrRateLimited)
		return
	}
	s.g.readers.Go(func() {
		f, err := s.changed(req)
		s.asideInFlight.Add(-1)
		if err != nil {
			s.fail(req.RID, err)
			return
		}
		s.conn.ReplyNow(f)
	})
}

func (s *session) changed(req *wire.Request) (f *wire.Frame, err error) {
	ctx, cancel := s.reading()
	defer cancel()
	f = &wire.Frame{T: wire.TSent, RID: req.RID, Conv: req.Conv}
	switch req.T {
	case wire.TRecall:
		r := s.g.deps.Changer.Recall(ctx, im.RecallReq{From: s.me, Conv: req.Conv, Seq: req.Seq, CMID: req.CMID})
		f.Seq, f.MID, f.Dup, f.Epoch, err = r.Seq, r.MID, r.Dup, r.Epoch, r.Err
	case wire.TJoin:
		f.Seq, err = s.g.deps.Changer.Join(ctx, s.me, req.Conv, req.User)
	default:
		f.Seq, err = s.g.deps.Changer.Leave(ctx, s.me, req.Conv, req.User)
	}
	return f, err
}

func (s *session) fetch(req *wire.Request) {
	ctx, cancel := s.reading()
	defer cancel()
	ev, err := s.g.deps.Reader.Fetch(ctx, s.me, req.Conv, req.Seq)
	if err != nil {
		s.fail(req.RID, err)
		return
	}
	s.conn.ReplyNow(&wire.Frame{T: wire.TEvent, RID: req.RID, Ev: imwire.Event(&ev)})
	s.conn.WaitRoom(s.g.ctx)
}

func (s *session) sync(req *wire.Request) {
	ctx, cancel := s.reading()
	defer cancel()
	page, err := s.g.deps.Reader.Sync(ctx, im.SyncReq{From: s.me, Conv: req.Conv, After: req.After, Epoch: req.Epoch, Limit: req.Limit})
	if err != nil {
		s.fail(req.RID, err)
		return
	}
	f := &wire.Frame{T: wire.TSynced, RID: req.RID, Conv: req.Conv, Head: page.Head, MinSeq: page.MinSeq,
		NextAfter: page.NextAfter, HasMore: page.HasMore, Epoch: page.Epoch, Events: make([]wire.Event, 0, len(page.Events))}
	size := 512 // the frame without its events
	for i := range page.Events {
		e := imwire.Event(&page.Events[i])
		if size += wire.EventBound(&e); size > wire.MaxReply && i > 0 {
			f.HasMore, f.NextAfter = true, page.Events[i-1].Seq
			break
		}
		f.Events = append(f.Events, e)
	}
	s.conn.ReplyNow(f)
	s.conn.WaitRoom(s.g.ctx) // whether there is room or an end of the connection shows when it is read from
}

func (s *session) convs(req *wire.Request) {
	ctx, cancel := s.reading()
	defer cancel()
	limit := req.Limit
	if limit == 0 {
		limit = wire.DefaultPage
	}
	page := s.g.deps.Reader.Convs
	if req.Brief {
		page = s.g.deps.Reader.Standings
	}
	list, more, err := page(ctx, s.me, req.AfterID, limit)
	if err != nil {
		s.fail(req.RID, err)
		return
	}
	f := &wire.Frame{T: wire.TConvlist, RID: req.RID, More: more, Brief: req.Brief, Convs: make([]wire.ConvState, len(list))}
	for i, c := range list {
		f.Convs[i] = wire.ConvState{Conv: c.Conv, Kind: c.Kind, Mode: string(c.Mode), Head: c.Head, MinSeq: c.MinSeq,
			Epoch: c.Epoch, Delivered: c.Delivered, Read: c.Read, Unread: c.Unread}
	}
	if more && len(list) > 0 {
		f.Next = list[len(list)-1].Conv
	}
	s.conn.ReplyNow(f)
	s.conn.WaitRoom(s.g.ctx)
}

// reading is the context of one read of the store, or of one change.
func (s *session) reading() (context.Context, context.CancelFunc) {
	return context.WithTimeout(s.g.ctx, s.g.cfg.Timeout)
}

// fail answers a request with an error. It may be called from any goroutine.
func (s *session) fail(rid string, err error) {
	code, message := imwire.CodeOf(err)
	s.g.metrics.errors.WithLabelValues(string(code)).Inc()
	f := &wire.Frame{T: wire.TError, RID: rid, Code: code, Message: message}
	switch code {
	case wire.RateLimited:
		f.RetryAfterMS = int(time.Second/time.Millisecond) / 2
	case wire.Unavailable:
		f.RetryAfterMS = milliseconds(s.g.retryAfter())
		s.unavailable(rid, err)
	}
	s.event("request failed", rid, string(code))
	s.conn.Reply(f)
}

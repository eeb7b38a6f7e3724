package gateway

import (
	"context"
	"errors"
	"time"

	"imbench/server/internal/hub"
	"imbench/server/internal/im"
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
		s.conn.Reply(&wire.Frame{T: wire.TSent, RID: rid, Conv: conv, Seq: r.Seq, MID: r.MID, Dup: r.Dup, Epoch: r.Epoch})
	})
}

func (s *session) ack(req *wire.Request) {
	rid, conv := req.RID, req.Conv
	s.g.deps.Acker.Submit(im.AckReq{From: s.me, Conv: conv, Seq: req.Seq, Epoch: req.Epoch}, func(r im.AckResult) {
		if r.Err != nil {
			s.fail(rid, r.Err)
			return
		}
		s.conn.Acked(conv, r.Delivered)
		s.conn.Reply(&wire.Frame{T: wire.TAcked, RID: rid, Conv: conv, Delivered: r.Delivered})
	})
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
		e := hub.WireEvent(&page.Events[i])
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
	list, more, err := s.g.deps.Reader.Convs(ctx, s.me, req.AfterID, limit)
	if err != nil {
		s.fail(req.RID, err)
		return
	}
	f := &wire.Frame{T: wire.TConvlist, RID: req.RID, More: more, Convs: make([]wire.ConvState, len(list))}
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

// reading is the context of one read of the store.
func (s *session) reading() (context.Context, context.CancelFunc) {
	return context.WithTimeout(s.g.ctx, s.g.cfg.Timeout)
}

// codes gives each domain error its code. What is not here is a failure of ours: the outcome is unknown.
var codes = []struct {
	err  error
	code wire.Code
}{
	{im.ErrNotMember, wire.NotMember},
	{im.ErrAlreadyMember, wire.AlreadyMember},
	{im.ErrIdempotencyMismatch, wire.IdempotencyMismatch},
	{im.ErrExpired, wire.Expired},
	{im.ErrCursorAhead, wire.CursorAhead},
	{im.ErrStaleInstall, wire.StaleInstall},
	{im.ErrEpochChanged, wire.EpochChanged},
	{im.ErrGroupFull, wire.GroupFull},
	{im.ErrTooLarge, wire.TooLarge},
	{im.ErrBadRequest, wire.BadRequest},
	{im.ErrRateLimited, wire.RateLimited},
}

// CodeOf is the wire's code for an error of the domain, and the sentence that a client may see.
func CodeOf(err error) (wire.Code, string) {
	for _, c := range codes {
		if errors.Is(err, c.err) {
			return c.code, c.err.Error()
		}
	}
	return wire.Unavailable, sentence(wire.Unavailable)
}

// sentence is the text of a code whose error is at hand in no other form.
func sentence(code wire.Code) string {
	if code == wire.StaleInstall {
		return im.ErrStaleInstall.Error()
	}
	return im.ErrUnavailable.Error()
}

// fail answers a request with an error. It may be called from any goroutine.
func (s *session) fail(rid string, err error) {
	code, message := CodeOf(err)
	s.g.metrics.errors.WithLabelValues(string(code)).Inc()
	f := &wire.Frame{T: wire.TError, RID: rid, Code: code, Message: message}
	switch code {
	case wire.RateLimited:
		f.RetryAfterMS = int(time.Second/time.Millisecond) / 2
	case wire.Unavailable:
		f.RetryAfterMS = s.g.retryAfter()
		s.g.unavailable(err)
	}
	s.conn.Reply(f)
}

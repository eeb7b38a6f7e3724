package api

import (
	"net/http"

	"imbench/server/internal/im"
	"imbench/server/internal/im/imwire"
	"imbench/server/wire"
)

// event is an event in the wire's JSON, the same for WebSocket and HTTP.
type event wire.Event

// MarshalJSON implements json.Marshaler.
func (e event) MarshalJSON() ([]byte, error) {
	return wire.AppendEvent(nil, (*wire.Event)(&e)), nil
}

// created is the status of a request that either made something or found it made.
func created(now bool) int {
	if now {
		return http.StatusCreated
	}
	return http.StatusOK
}

// sent answers a send or a recall: 201 if this request did it, 200 if an earlier one had.
func sent(conv string, r im.SendResult) (int, any, error) {
	if r.Err != nil {
		return 0, nil, r.Err
	}
	return created(!r.Dup), struct {
		Conv  string `json:"conv"`
		Seq   int64  `json:"seq"`
		MID   string `json:"mid,omitempty"` // a recall has none
		Dup   bool   `json:"dup"`
		Epoch int32  `json:"epoch"`
	}{conv, r.Seq, r.MID, r.Dup, r.Epoch}, nil
}

func (s *server) sendMessage(c *exchange) (int, any, error) {
	req := im.SendReq{From: c.me, Conv: c.pathID("id")}
	c.body(id("client_msg_id", &req.CMID), text("body", &req.Body))
	if c.err != nil {
		return 0, nil, c.err
	}
	return sent(req.Conv, s.Client.Send(c.ctx, req))
}

func (s *server) recallMessage(c *exchange) (int, any, error) {
	req := im.RecallReq{From: c.me, Conv: c.pathID("id"), Seq: c.pathSeq()}
	c.body(id("client_msg_id", &req.CMID))
	if c.err != nil {
		return 0, nil, c.err
	}
	return sent(req.Conv, s.Client.Recall(c.ctx, req))
}

// listMessages pages forwards after a seq, or backwards before one, from the head if none is given.
func (s *server) listMessages(c *exchange) (int, any, error) {
	after, before := int64(-1), int64(0)
	req := im.SyncReq{From: c.me, Conv: c.pathID("id"), Limit: wire.DefaultPage}
	c.query(integer("after_seq", &after, 0, wire.MaxNumber).orNone(), integer("before_seq", &before, 1, wire.MaxNumber).orNone(),
		limitField(&req.Limit), epochField(&req.Epoch))
	switch {
	case after >= 0 && before > 0:
		c.bad(wire.BadRequest, `"after_seq" and "before_seq" exclude each other`)
	case after < 0 && req.Epoch != 0:
		c.bad(wire.BadRequest, `"epoch" goes with "after_seq"`)
	}
	if c.err != nil {
		return 0, nil, c.err
	}
	if after >= 0 {
		req.After = after
		page, err := s.Client.Sync(c.ctx, req)
		if err != nil {
			return 0, nil, err
		}
		return http.StatusOK, forwards(page), nil
	}
	page, err := s.Client.Before(c.ctx, c.me, req.Conv, before, req.Limit)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, backwards(page), nil
}

// messages is a page of a conversation's log.
type messages struct {
	Events    []event `json:"events"`
	Head      int64   `json:"head"`
	MinSeq    int64   `json:"min_seq"`
	NextAfter *int64  `json:"next_after,omitempty"` // forwards only
	HasMore   bool    `json:"has_more"`
	Epoch     int32   `json:"epoch"`
}

// pageHead is more than a page takes without its events.
const pageHead = 512

// forwards is a page of Sync, cut at its end where it would be larger than a reply may be.
func forwards(p im.Page) messages {
	m := messages{Events: make([]event, 0, len(p.Events)), Head: p.Head, MinSeq: p.MinSeq, NextAfter: &p.NextAfter,
		HasMore: p.HasMore, Epoch: p.Epoch}
	size := pageHead
	for i := range p.Events {
		e := imwire.Event(&p.Events[i])
		if size += wire.EventBound(&e); size > wire.MaxReply && i > 0 {
			m.HasMore, *m.NextAfter = true, p.Events[i-1].Seq
			break
		}
		m.Events = append(m.Events, event(e))
	}
	return m
}

// backwards is a page of Before, cut at its beginning.
func backwards(p im.Page) messages {
	m := messages{Events: make([]event, len(p.Events)), Head: p.Head, MinSeq: p.MinSeq, HasMore: p.HasMore, Epoch: p.Epoch}
	size := pageHead
	for i := len(p.Events) - 1; i >= 0; i-- {
		e := imwire.Event(&p.Events[i])
		if size += wire.EventBound(&e); size > wire.MaxReply && i < len(p.Events)-1 {
			m.HasMore, m.Events = true, m.Events[i+1:]
			break
		}
		m.Events[i] = event(e)
	}
	return m
}

func (s *server) fetchMessage(c *exchange) (int, any, error) {
	conv, seq := c.pathID("id"), c.pathSeq()
	if c.query(); c.err != nil {
		return 0, nil, c.err
	}
	e, err := s.Client.Fetch(c.ctx, c.me, conv, seq)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, event(imwire.Event(&e)), nil
}

func (s *server) receipts(c *exchange) (int, any, error) {
	conv, seq := c.pathID("id"), c.pathSeq()
	if c.query(); c.err != nil {
		return 0, nil, c.err
	}
	r, err := s.Client.Receipts(c.ctx, c.me, conv, seq)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, struct {
		Conv      string `json:"conv"`
		Seq       int64  `json:"seq"`
		Devices   int64  `json:"devices"`
		Delivered int64  `json:"delivered"`
		Users     int64  `json:"users"`
		Read      int64  `json:"read"`
	}{conv, seq, r.Devices, r.Delivered, r.Users, r.Read}, nil
}

func (s *server) read(c *exchange) (int, any, error) {
	req := im.ReadReq{From: c.me, Conv: c.pathID("id")}
	c.body(integer("seq", &req.Seq, 0, wire.MaxNumber), epochField(&req.Epoch))
	if c.err != nil {
		return 0, nil, c.err
	}
	r := s.Client.Read(c.ctx, req)
	return http.StatusOK, struct {
		Read   int64 `json:"read"`
		Unread int64 `json:"unread"`
	}{r.Read, r.Unread}, r.Err
}

// membership is the event that a change of members became.
type membership struct {
	Conv string `json:"conv"`
	Seq  int64  `json:"seq"`
}

func (s *server) addMember(c *exchange) (int, any, error) {
	conv, user := c.pathID("id"), ""
	if c.body(id("user", &user)); c.err != nil {
		return 0, nil, c.err
	}
	seq, err := s.Client.Join(c.ctx, c.me, conv, user)
	return http.StatusCreated, membership{conv, seq}, err
}

func (s *server) removeMember(c *exchange) (int, any, error) {
	conv, user := c.pathID("id"), c.pathID("user")
	if c.query(); c.err != nil {
		return 0, nil, c.err
	}
	seq, err := s.Client.Leave(c.ctx, c.me, conv, user)
	return http.StatusOK, membership{conv, seq}, err
}

func (s *server) direct(c *exchange) (int, any, error) {
	peer := ""
	if c.body(id("peer", &peer)); c.err != nil {
		return 0, nil, c.err
	}
	conv, now, err := s.Client.Direct(c.ctx, c.me, peer)
	return created(now), struct {
		Conv    string `json:"conv"`
		Created bool   `json:"created"`
	}{conv, now}, err
}

// conversation is an entry of the inbox.
type conversation struct {
	Conv      string `json:"conv"`
	Kind      string `json:"kind"`
	Mode      string `json:"mode"`
	Head      int64  `json:"head"`
	MinSeq    int64  `json:"min_seq"`
	Epoch     int32  `json:"epoch"`
	Delivered int64  `json:"delivered"`
	Read      int64  `json:"read"`
	Unread    int64  `json:"unread"`
	Peer      string `json:"peer,omitempty"`
	Last      *event `json:"last,omitempty"`
}

func (s *server) inbox(c *exchange) (int, any, error) {
	after, limit := "", wire.DefaultPage
	if c.query(id("after", &after).orNone(), limitField(&limit)); c.err != nil {
		return 0, nil, c.err
	}
	list, more, err := s.Client.Inbox(c.ctx, c.me, after, limit)
	if err != nil {
		return 0, nil, err
	}
	var reply struct {
		Convs []conversation `json:"convs"`
		More  bool           `json:"more"`
		Next  string         `json:"next,omitempty"`
	}
	reply.Convs, reply.More = make([]conversation, 0, len(list)), more
	size := pageHead
	for i := range list {
		e := &list[i]
		v := conversation{e.Conv, e.Kind, string(e.Mode), e.Head, e.MinSeq, e.Epoch, e.Delivered, e.Read, e.Unread, e.Peer, nil}
		size += pageHead
		if e.Last != nil {
			last := imwire.Event(e.Last)
			size += wire.EventBound(&last)
			v.Last = (*event)(&last)
		}
		if size > wire.MaxReply && i > 0 {
			reply.More = true
			break
		}
		reply.Convs = append(reply.Convs, v)
	}
	if n := len(reply.Convs); reply.More && n > 0 {
		reply.Next = reply.Convs[n-1].Conv
	}
	return http.StatusOK, reply, nil
}

package oracle

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"imbench/server/internal/im"
)

// SendBatch appends messages, one after the other; see im.Store.
func (s *Store) SendBatch(ctx context.Context, reqs []im.SendReq, _ bool) ([]im.SendResult, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	out := make([]im.SendResult, len(reqs))
	for i, r := range reqs {
		out[i] = s.sendOne(r)
	}
	return out, nil
}

func (s *Store) sendOne(r im.SendReq) im.SendResult {
	if !storable(r.Conv, r.From.User, r.From.Device, r.CMID, r.Body) {
		return im.SendResult{Err: im.ErrBadRequest}
	}
	c := s.convs[r.Conv]
	switch {
	case c == nil:
		return im.SendResult{Err: im.ErrNotMember}
	case c.locked:
		return im.SendResult{Err: im.ErrBusy}
	}
	k, content := key{r.From.User, r.CMID}, "msg "+r.Body
	// The key is looked up before membership: whoever has left may still learn that an earlier send was done.
	if res, found := c.repeated(k, content); found {
		return res
	}
	if !c.open(r.From.User) {
		return im.SendResult{Err: im.ErrNotMember}
	}
	ev := c.append(im.Event{Kind: im.KindMsg, MID: uuid.NewString(), Sender: r.From.User, SenderDevice: r.From.Device, CMID: r.CMID, Body: r.Body, At: s.now()})
	c.requests[k] = request{ev.Seq, content}
	return c.result(ev.Seq, false)
}

// repeated answers a key that was used before.
func (c *conv) repeated(k key, content string) (im.SendResult, bool) {
	if old, used := c.requests[k]; used {
		if old.content != content {
			return im.SendResult{Err: im.ErrIdempotencyMismatch}, true
		}
		return c.result(old.seq, true), true
	}
	if _, removed := c.tombs[k]; removed {
		return im.SendResult{Err: im.ErrExpired}, true
	}
	return im.SendResult{}, false
}

func (c *conv) result(seq int64, dup bool) im.SendResult {
	ev := c.event(seq)
	return im.SendResult{Seq: seq, MsgNo: ev.MsgNo, MID: ev.MID, Dup: dup, Epoch: ev.Epoch, At: ev.At}
}

// Recall withdraws a message's content; see im.Upkeep. A message that is recalled already gives the recall that is there.
func (s *Store) Recall(ctx context.Context, r im.RecallReq) im.SendResult {
	if err := s.begin(ctx); err != nil {
		return im.SendResult{Err: err}
	}
	defer s.mu.Unlock()
	if !storable(r.Conv, r.From.User, r.From.Device, r.CMID) || r.Seq < 1 {
		return im.SendResult{Err: im.ErrBadRequest}
	}
	c := s.convs[r.Conv]
	switch {
	case c == nil:
		return im.SendResult{Err: im.ErrNotMember}
	case c.locked:
		return im.SendResult{Err: im.ErrBusy}
	}
	k, content := key{r.From.User, r.CMID}, fmt.Sprint("recall ", r.Seq)
	if res, found := c.repeated(k, content); found {
		return res
	}
	switch {
	case !c.open(r.From.User):
		return im.SendResult{Err: im.ErrNotMember}
	case r.Seq > c.head():
		return im.SendResult{Err: im.ErrCursorAhead}
	case !c.at(r.From.User, r.Seq):
		return im.SendResult{Err: im.ErrNotMember}
	case r.Seq < c.minSeq:
		return im.SendResult{Err: im.ErrExpired}
	}
	target := &c.events[r.Seq-1]
	switch {
	case target.Kind != im.KindMsg:
		return im.SendResult{Err: im.ErrBadRequest}
	case target.Sender != r.From.User:
		return im.SendResult{Err: im.ErrNotSender}
	}
	for _, ev := range c.events {
		if ev.Kind == im.KindRecall && ev.Target == r.Seq {
			return c.result(ev.Seq, true)
		}
	}
	if s.now().Sub(target.At) > c.window {
		return im.SendResult{Err: im.ErrRecallWindow}
	}
	target.Body = ""
	ev := c.append(im.Event{Kind: im.KindRecall, Sender: r.From.User, SenderDevice: r.From.Device, CMID: r.CMID, Target: r.Seq, At: s.now()})
	c.requests[k] = request{ev.Seq, content}
	return c.result(ev.Seq, false)
}

// Join adds a user to a group; see im.Store.
func (s *Store) Join(ctx context.Context, by im.Principal, id, user string) (int64, error) {
	c, err := s.group(ctx, by, id, user)
	if err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	members := 0
	for _, p := range c.periods {
		if p.To == 0 {
			members++
		}
	}
	switch {
	case c.open(user):
		return 0, im.ErrAlreadyMember
	case !s.users[user]:
		return 0, im.ErrNotMember
	case members >= s.GroupLimit:
		return 0, im.ErrGroupFull
	}
	ev := c.append(im.Event{Kind: im.KindJoin, Sender: by.User, User: user, At: s.now()})
	c.periods = append(c.periods, im.Period{User: user, From: ev.Seq})
	return ev.Seq, nil
}

// Leave takes a user out of a group; see im.Store. The own leave is the last event of the interval.
func (s *Store) Leave(ctx context.Context, by im.Principal, id, user string) (int64, error) {
	c, err := s.group(ctx, by, id, user)
	if err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	if !c.open(user) {
		return 0, im.ErrNotMember
	}
	ev := c.append(im.Event{Kind: im.KindLeave, Sender: by.User, User: user, At: s.now()})
	for i, p := range c.periods {
		if p.User == user && p.To == 0 {
			c.periods[i].To = ev.Seq
		}
	}
	return ev.Seq, nil
}

// group begins a step that changes the membership of a group; without an error the store is locked.
func (s *Store) group(ctx context.Context, by im.Principal, id, user string) (*conv, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	c := s.convs[id]
	var err error
	switch {
	case !storable(id, user, by.User):
		err = im.ErrBadRequest
	case c == nil:
		err = im.ErrNotMember
	case c.locked:
		err = im.ErrBusy
	case !c.open(by.User):
		err = im.ErrNotMember
	case c.kind == "direct":
		err = im.ErrBadRequest
	}
	if err != nil {
		s.mu.Unlock()
	}
	return c, err
}

// Direct gives or makes the direct conversation of two users; see im.Reads.
func (s *Store) Direct(ctx context.Context, p im.Principal, peer string) (string, bool, error) {
	if err := s.begin(ctx); err != nil {
		return "", false, err
	}
	defer s.mu.Unlock()
	switch {
	case !storable(p.User, peer) || p.User == peer:
		return "", false, im.ErrBadRequest
	case !s.users[p.User] || !s.users[peer]:
		return "", false, im.ErrNotMember
	}
	if id, found := s.pairs[pair(p.User, peer)]; found {
		return id, false, nil
	}
	return s.addConv(s.NewConv(), "direct", im.Push, []string{p.User, peer}).id, true, nil
}

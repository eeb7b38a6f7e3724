package oracle

import (
	"context"
	"slices"

	"imbench/server/internal/im"
)

// SyncBatch reads one page after the other; see im.Store.
func (s *Store) SyncBatch(ctx context.Context, reqs []im.SyncReq) ([]im.SyncResult, error) {
	res := make([]im.SyncResult, len(reqs))
	for i, r := range reqs {
		res[i].Page, res[i].Err = s.Sync(ctx, r)
	}
	return res, nil
}

// Sync reads what the user may see after a seq; see im.Store.
func (s *Store) Sync(ctx context.Context, r im.SyncReq) (im.Page, error) {
	if err := s.begin(ctx); err != nil {
		return im.Page{}, err
	}
	defer s.mu.Unlock()
	limit := r.Limit
	if limit == 0 {
		limit = im.DefaultSyncLimit
	}
	if limit < 1 || limit > im.MaxSyncLimit || r.After < 0 || !storable(r.Conv, r.From.User) {
		return im.Page{}, im.ErrBadRequest
	}
	c, err := s.member(r.From.User, r.Conv)
	if err != nil {
		return im.Page{}, err
	}
	if r.Epoch != 0 && r.Epoch != c.epoch {
		return im.Page{}, im.ErrEpochChanged
	}
	p := c.page(r.From.User)
	p.NextAfter = max(r.After, p.Head)
	for seq := c.minSeq; seq <= c.head(); seq++ {
		switch {
		case seq <= r.After || !c.visible(r.From.User, seq):
		case len(p.Events) == limit:
			p.HasMore, p.NextAfter = true, p.Events[limit-1].Seq
			return p, nil
		default:
			p.Events = append(p.Events, c.event(seq))
		}
	}
	return p, nil
}

// page is a page without events.
func (c *conv) page(user string) im.Page {
	head, _ := c.headOf(user)
	return im.Page{Head: head, MinSeq: c.minSeq, Epoch: c.epoch}
}

// Before reads what the user may see before a seq; see im.Reads.
func (s *Store) Before(ctx context.Context, p im.Principal, id string, before int64, limit int) (im.Page, error) {
	if err := s.begin(ctx); err != nil {
		return im.Page{}, err
	}
	defer s.mu.Unlock()
	if limit == 0 {
		limit = im.DefaultSyncLimit
	}
	if limit < 1 || limit > im.MaxSyncLimit || before < 0 || !storable(id, p.User) {
		return im.Page{}, im.ErrBadRequest
	}
	c, err := s.member(p.User, id)
	if err != nil {
		return im.Page{}, err
	}
	page := c.page(p.User)
	if before == 0 || before > c.head() {
		before = c.head() + 1
	}
	for seq := before - 1; seq >= 1; seq-- {
		switch {
		case !c.visible(p.User, seq):
		case len(page.Events) == limit:
			page.HasMore = true
			seq = 0
		default:
			page.Events = append(page.Events, c.event(seq))
		}
	}
	slices.Reverse(page.Events)
	return page, nil
}

// Fetch reads one event; see im.Reads.
func (s *Store) Fetch(ctx context.Context, p im.Principal, id string, seq int64) (im.Event, error) {
	if err := s.begin(ctx); err != nil {
		return im.Event{}, err
	}
	defer s.mu.Unlock()
	return s.fetch(p, id, seq)
}

func (s *Store) fetch(p im.Principal, id string, seq int64) (im.Event, error) {
	if seq < 1 || !storable(id, p.User) {
		return im.Event{}, im.ErrBadRequest
	}
	c, err := s.member(p.User, id)
	if err != nil {
		return im.Event{}, err
	}
	head, _ := c.headOf(p.User)
	switch {
	case seq > head:
		return im.Event{}, im.ErrCursorAhead
	case !c.at(p.User, seq):
		return im.Event{}, im.ErrNotMember
	case seq < c.minSeq:
		return im.Event{}, im.ErrExpired
	}
	return c.event(seq), nil
}

// Receipts counts who has a message, and who has read it; see im.Reads.
func (s *Store) Receipts(ctx context.Context, p im.Principal, id string, seq int64) (im.Receipts, error) {
	if err := s.begin(ctx); err != nil {
		return im.Receipts{}, err
	}
	defer s.mu.Unlock()
	ev, err := s.fetch(p, id, seq)
	if err != nil {
		return im.Receipts{}, err
	}
	if ev.Kind != im.KindMsg {
		return im.Receipts{}, im.ErrBadRequest
	}
	c, r := s.convs[id], im.Receipts{Conv: id, Seq: seq}
	for user := range s.users {
		if c.at(user, seq) && user != ev.Sender {
			r.Users++
			if c.readUpTo(user) >= seq {
				r.Read++
			}
		}
	}
	for name, d := range s.devices {
		if c.at(d.user, seq) && name != ev.SenderDevice {
			r.Devices++
			if c.delivered(name, d.install) >= seq {
				r.Delivered++
			}
		}
	}
	return r, nil
}

// Convs pages the caller's conversations; see im.Store.
func (s *Store) Convs(ctx context.Context, p im.Principal, after string, limit int) ([]im.ConvState, bool, error) {
	if err := s.begin(ctx); err != nil {
		return nil, false, err
	}
	defer s.mu.Unlock()
	mine, more, err := s.mine(p, after, limit, 100, maxConvs)
	var list []im.ConvState
	for _, c := range mine {
		list = append(list, s.state(c, p))
	}
	return list, more, err
}

// Standings pages the caller's conversations without positions; see im.Store.
func (s *Store) Standings(ctx context.Context, p im.Principal, after string, limit int) ([]im.ConvState, bool, error) {
	list, more, err := s.Convs(ctx, p, after, limit)
	for i := range list {
		list[i].Read, list[i].Unread = 0, 0
	}
	return list, more, err
}

// Inbox pages the caller's conversations with what a list shows of them; see im.Reads.
func (s *Store) Inbox(ctx context.Context, p im.Principal, after string, limit int) ([]im.InboxEntry, bool, error) {
	if err := s.begin(ctx); err != nil {
		return nil, false, err
	}
	defer s.mu.Unlock()
	mine, more, err := s.mine(p, after, limit, 50, im.MaxInboxPage)
	var list []im.InboxEntry
	for _, c := range mine {
		e := im.InboxEntry{ConvState: s.state(c, p)}
		for _, q := range c.periods {
			if c.kind == "direct" && q.User != p.User {
				e.Peer = q.User
			}
		}
		for seq := c.head(); seq > 0 && e.Last == nil; seq-- {
			if c.visible(p.User, seq) {
				ev := c.event(seq)
				e.Last = &ev
			}
		}
		list = append(list, e)
	}
	return list, more, err
}

// maxConvs bounds a page of Convs.
const maxConvs = 500

// mine are the conversations of which the user is or was a member, in the order of their ids.
func (s *Store) mine(p im.Principal, after string, limit, def, most int) (list []*conv, more bool, err error) {
	if limit == 0 {
		limit = def
	}
	if limit < 1 || limit > most || !storable(after, p.User, p.Device) {
		return nil, false, im.ErrBadRequest
	}
	for _, id := range sorted(s.convs) {
		if _, err := s.member(p.User, id); err == nil && id > after {
			list = append(list, s.convs[id])
		}
	}
	if len(list) > limit {
		return list[:limit], true, nil
	}
	return list, false, nil
}

// state is a row of a list. An installation of 0 means the device's present one.
func (s *Store) state(c *conv, p im.Principal) im.ConvState {
	if d := s.devices[p.Device]; d != nil && d.user == p.User && p.Install == 0 {
		p.Install = d.install
	}
	head, _ := c.headOf(p.User)
	return im.ConvState{
		Conv: c.id, Kind: c.kind, Mode: c.mode, Head: head, MinSeq: c.minSeq, Epoch: c.epoch,
		Delivered: c.delivered(p.Device, p.Install), Read: c.readUpTo(p.User), Unread: c.unread(p.User),
	}
}

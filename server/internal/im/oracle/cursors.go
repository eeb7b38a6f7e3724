package oracle

import (
	"context"

	"imbench/server/internal/im"
)

// AckBatch moves delivered cursors; see im.Store. Whatever requests of one cursor are accepted, all of them learn where
// it then stands.
func (s *Store) AckBatch(ctx context.Context, reqs []im.AckReq) ([]im.AckResult, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	out := make([]im.AckResult, len(reqs))
	for i, r := range reqs {
		out[i].Err = s.ack(r)
	}
	for i, r := range reqs {
		if out[i].Err == nil {
			out[i].Delivered = s.convs[r.Conv].cursors[r.From.Device].seq
		}
	}
	return out, nil
}

func (s *Store) ack(r im.AckReq) error {
	if err := s.acceptable(r); err != nil {
		return err
	}
	// Only a cursor of this installation and epoch counts; one of another is replaced, whatever its seq.
	c, d := s.convs[r.Conv], s.devices[r.From.Device]
	old, found := c.cursors[r.From.Device]
	if !found || old.install != d.install || old.epoch != c.epoch || old.seq < r.Seq {
		c.cursors[r.From.Device] = cursor{d.install, c.epoch, r.Seq}
	}
	return nil
}

// CouldBeTold says whether somebody could have told the device what it acknowledges, so that the request may have Told.
func (s *Store) CouldBeTold(r im.AckReq) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return r.Epoch != 0 && s.acceptable(r) == nil
}

func (s *Store) acceptable(r im.AckReq) error {
	if r.Seq < 0 || !storable(r.Conv, r.From.User, r.From.Device) {
		return im.ErrBadRequest
	}
	c, err := s.member(r.From.User, r.Conv)
	if err != nil {
		return err
	}
	d := s.devices[r.From.Device]
	head, _ := c.headOf(r.From.User)
	switch {
	case d == nil || d.user != r.From.User:
		return im.ErrNotMember
	case d.install != r.From.Install:
		return im.ErrStaleInstall
	case r.Epoch != 0 && r.Epoch != c.epoch:
		return im.ErrEpochChanged
	case r.Seq > head:
		return im.ErrCursorAhead
	}
	return nil
}

// delivered is how far a device has got in its installation and the present epoch.
func (c *conv) delivered(device string, install int32) int64 {
	if cur := c.cursors[device]; cur.install == install && cur.epoch == c.epoch {
		return cur.seq
	}
	return 0
}

// ReadBatch moves read positions; see im.Reads. Of the requests of one position only the furthest that is accepted
// counts, and only it can have moved it.
func (s *Store) ReadBatch(ctx context.Context, reqs []im.ReadReq) ([]im.ReadResult, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	out := make([]im.ReadResult, len(reqs))
	furthest := map[[2]string]int{} // by conversation and user
	for i, r := range reqs {
		if out[i].Err = s.mayRead(r); out[i].Err == nil {
			k := [2]string{r.Conv, r.From.User}
			if j, found := furthest[k]; !found || r.Seq > reqs[j].Seq {
				furthest[k] = i
			}
		}
	}
	for k, i := range furthest {
		out[i].Moved = s.convs[k[0]].read(k[1], reqs[i].Seq)
	}
	for i, r := range reqs {
		if out[i].Err == nil {
			c := s.convs[r.Conv]
			out[i].Read, out[i].Unread = c.readUpTo(r.From.User), c.unread(r.From.User)
		}
	}
	return out, nil
}

func (s *Store) mayRead(r im.ReadReq) error {
	if r.Seq < 0 || !storable(r.Conv, r.From.User) {
		return im.ErrBadRequest
	}
	c, err := s.member(r.From.User, r.Conv)
	if err == nil && r.Epoch != 0 && r.Epoch != c.epoch {
		err = im.ErrEpochChanged
	}
	return err
}

// ReadBehind takes one report as it counts if so many epochs began after it was judged.
func (s *Store) ReadBehind(r im.ReadReq, epochs int32) (moved bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.convs[r.Conv]; c != nil {
		c.epoch -= epochs
		defer func() { c.epoch += epochs }()
	}
	if err := s.mayRead(r); err != nil {
		return false, err
	}
	return s.convs[r.Conv].read(r.From.User, r.Seq), nil
}

// read takes a report, and says whether the position is another one now.
func (c *conv) read(user string, seq int64) (moved bool) {
	head, _ := c.headOf(user)
	before, old := c.readUpTo(user), c.reads[user]
	if seq = min(seq, head); old.epoch < c.epoch || old.epoch == c.epoch && seq > old.seq {
		c.reads[user] = position{c.epoch, seq}
	}
	return c.readUpTo(user) != before
}

// readUpTo is the user's position: what was reported last, the last message sent, or what retention has removed,
// whichever is latest, within what the user may see.
func (c *conv) readUpTo(user string) int64 {
	seq := max(c.reads[user].seq, c.minSeq-1)
	for _, ev := range c.events {
		if ev.Kind == im.KindMsg && ev.Sender == user {
			seq = max(seq, ev.Seq)
		}
	}
	head, _ := c.headOf(user)
	return min(seq, head)
}

// unread counts what it says: the messages that the user may see, has not read, and that still have a content.
func (c *conv) unread(user string) int64 {
	n := int64(0)
	for seq := c.readUpTo(user) + 1; seq <= c.head(); seq++ {
		if ev := c.events[seq-1]; ev.Kind == im.KindMsg && ev.Body != "" && c.visible(user, seq) {
			n++
		}
	}
	return n
}

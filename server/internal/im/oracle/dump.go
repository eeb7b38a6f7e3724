package oracle

import (
	"fmt"
	"slices"

	"imbench/server/internal/im"
)

// Dump is the durable state as sorted lines, the same for equal states: events, membership, cursors, tombstones,
// installations and routes. Times and message ids are left out, and read positions, which a store may derive from what
// was sent: Convs shows them.
func (s *Store) Dump() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	for id, c := range s.convs {
		add("conv %s %s %s min %d head %d epoch %d", id, c.kind, c.mode, c.minSeq, c.head(), c.epoch)
		for _, ev := range c.events[c.minSeq-1:] {
			add("event %s %d %s from %q %q key %q body %q about %q target %d no %d",
				id, ev.Seq, ev.Kind, ev.Sender, ev.SenderDevice, ev.CMID, ev.Body, ev.User, ev.Target, ev.MsgNo)
		}
		for _, p := range c.periods {
			add("member %s %s %d-%d", id, p.User, p.From, p.To)
		}
		for dev, cur := range c.cursors {
			add("cursor %s %s install %d epoch %d at %d", id, dev, cur.install, cur.epoch, cur.seq)
		}
		for k := range c.tombs {
			add("tombstone %s %s %s", id, k.user, k.cmid)
		}
	}
	for name, d := range s.devices {
		add("device %s install %d generation %d", name, d.install, d.generation)
		if d.route != nil {
			add("route %s %s generation %d", name, d.route.gateway, d.route.generation)
		}
	}
	slices.Sort(out)
	return out
}

// Reported is what Dump leaves out of read positions, as sorted lines: what users reported last, and in which epoch.
func (s *Store) Reported() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for id, c := range s.convs {
		for user, p := range c.reads {
			out = append(out, fmt.Sprintf("position %s %s epoch %d at %d", id, user, p.epoch, p.seq))
		}
	}
	slices.Sort(out)
	return out
}

// Head is a conversation's last seq, 0 if there is no such conversation.
func (s *Store) Head(conv string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.convs[conv]; c != nil {
		return c.head()
	}
	return 0
}

// Epoch is a conversation's present epoch, 0 if there is no such conversation.
func (s *Store) Epoch(conv string) int32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.convs[conv]; c != nil {
		return c.epoch
	}
	return 0
}

// Install is a device's present installation, 0 if there is no such device.
func (s *Store) Install(device string) int32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.devices[device]; d != nil {
		return d.install
	}
	return 0
}

// SeqOf is the place that a request's key was used for, 0 if there is none or retention removed it.
func (s *Store) SeqOf(r im.SendReq) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.convs[r.Conv]; c != nil {
		return c.requests[key{r.From.User, r.CMID}].seq
	}
	return 0
}

// Users are those who are members of a conversation now, and those who have left it, each in order.
func (s *Store) Users(conv string) (members, past []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.convs[conv]
	for _, u := range sorted(s.users) {
		if c == nil {
			break
		}
		if c.open(u) {
			members = append(members, u)
		} else if _, ever := c.headOf(u); ever {
			past = append(past, u)
		}
	}
	return members, past
}

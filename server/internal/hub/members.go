package hub

import (
	"slices"
	"strings"

	"imbench/server/internal/im"
)

// member is a membership period that is open, past one that has ended, with the last seq that the user may see. Ended
// ones are rare and apart, so that the others take 16 bytes. Each counts as one of its user's refs.
type (
	member struct {
		user *user
		from int64
	}
	past struct {
		user     *user
		from, to int64
	}
)

// entry is what a shard knows of a conversation. It belongs to the shard's worker; nothing in it is locked.
//
// The membership periods are complete for the seqs lo..hi: for each of these, the members are the users who have a
// period that contains it. A message or recall at hi+1 extends the interval, a join or leave at hi+1 changes the
// periods and extends it; anything further on leaves a gap, and the periods must be read again (08-cache-version: a
// cache that is behind the event is not used).
type entry struct {
	conv        string
	lo, hi      int64 // hi = 0: the periods are not known
	first, last int64 // of what was fanned out, hinted or passed over, without a gap; last = 0: nothing yet
	members     []member
	ended       []past
	counted     int32 // periods, as the cache counts them
	hintAbove   int32 // the conversation's own thresholds, as im.ConvInfo has them
	openOnly    int32
	pull        bool
	direct      bool

	prev, next *entry // least recently used order
}

// maxEnded is how many ended periods an entry keeps before those that lie behind what was fanned out are dropped.
const maxEnded = 64

// valid says whether the members at seq are known, or will be once the events between hi and seq were applied.
func (e *entry) valid(seq int64) bool { return e.hi > 0 && seq >= e.lo && seq <= e.hi+1 }

// done notes that from..to was fanned out.
func (e *entry) done(from, to int64) {
	if e.last == 0 {
		e.first, e.last = from, to
		return
	}
	e.first, e.last = min(e.first, from), max(e.last, to)
}

// told says whether seq was fanned out.
func (e *entry) told(seq int64) bool { return e.last > 0 && seq >= e.first && seq <= e.last }

// load replaces what is known with what was read from the store, complete for from..info.Head.
func (e *entry) load(r *registry, info im.ConvInfo, from int64) {
	open := 0
	for i := range info.Periods {
		if info.Periods[i].To == 0 {
			open++
		}
	}
	members, ended := make([]member, 0, open), []past(nil)
	if n := len(info.Periods) - open; n > 0 {
		ended = make([]past, 0, n)
	}
	r.mu.Lock()
	for i := range info.Periods {
		p := &info.Periods[i]
		u := r.holdLocked(p.User)
		if p.To == 0 {
			members = append(members, member{u, p.From})
		} else {
			ended = append(ended, past{u, p.From, p.To})
		}
	}
	r.mu.Unlock()
	e.forget(r) // after, as most of the users are the same
	e.pull, e.direct = info.Mode == im.Pull, info.Kind == kindDirect
	e.hintAbove, e.openOnly = info.HintAbove, info.OpenOnlyAbove
	e.lo, e.hi = from, max(info.Head, from-1)
	e.members, e.ended = members, ended
}

// kindDirect is the kind of a conversation between two users.
const kindDirect = "direct"

// forget makes the periods unknown.
func (e *entry) forget(r *registry) {
	if len(e.members)+len(e.ended) > 0 {
		r.mu.Lock()
		for i := range e.members {
			r.releaseLocked(e.members[i].user)
		}
		for i := range e.ended {
			r.releaseLocked(e.ended[i].user)
		}
		r.mu.Unlock()
	}
	e.hi, e.members, e.ended = 0, nil, nil
}

// apply extends the interval by the event at hi+1; events up to hi are in it already. It returns false for a gap.
func (e *entry) apply(r *registry, ev *im.Event) bool {
	if ev.Seq <= e.hi {
		return ev.Seq >= e.lo
	}
	if ev.Seq != e.hi+1 {
		return false
	}
	e.hi = ev.Seq
	switch ev.Kind {
	case im.KindJoin:
		r.mu.Lock()
		u := r.holdLocked(ev.User)
		r.mu.Unlock()
		e.join(member{u, ev.Seq})
	case im.KindLeave:
		e.leave(ev.User, ev.Seq)
	}
	return true
}

// join adds a period. It grows the list by an eighth: thousands of groups are cached and few grow.
func (e *entry) join(m member) {
	if n := len(e.members); n == cap(e.members) {
		grown := make([]member, n, n+1+n/8)
		copy(grown, e.members)
		e.members = grown
	}
	e.members = append(e.members, m)
}

// leave ends the user's period; the leave itself is the last event that he sees.
func (e *entry) leave(user string, seq int64) {
	for i, m := range e.members {
		if m.user.id == user {
			last := len(e.members) - 1
			e.members[i] = e.members[last]
			e.members[last] = member{}
			e.members = e.members[:last]
			e.ended = append(e.ended, past{m.user, m.from, seq})
			return
		}
	}
}

// compact drops periods that ended before seq, when there are many.
func (e *entry) compact(r *registry, seq int64) {
	if len(e.ended) <= maxEnded {
		return
	}
	r.mu.Lock()
	e.ended = slices.DeleteFunc(e.ended, func(p past) bool {
		if p.to < seq {
			r.releaseLocked(p.user)
		}
		return p.to < seq
	})
	r.mu.Unlock()
	e.lo = max(e.lo, seq)
}

// each calls f for the user of each period that contains a seq of from..to, until it returns false.
func (e *entry) each(from, to int64, f func(*user) bool) {
	for i := range e.members {
		if m := &e.members[i]; m.from <= to && !f(m.user) {
			return
		}
	}
	for i := range e.ended {
		if p := &e.ended[i]; p.from <= to && p.to >= from && !f(p.user) {
			return
		}
	}
}

// count is the number of members at seq.
func (e *entry) count(seq int64) (n int) {
	e.each(seq, seq, func(*user) bool {
		n++
		return true
	})
	return n
}

// cache holds the entries of a shard, the least recently used of which go first. It is bounded in conversations and in
// periods.
type cache struct {
	registry   *registry
	entries    map[string]*entry
	root       entry // root.next is the most recently used
	periods    int
	maxEntries int
	maxPeriods int
}

func newCache(r *registry, maxEntries, maxPeriods int) *cache {
	c := &cache{registry: r, entries: map[string]*entry{}, maxEntries: max(1, maxEntries), maxPeriods: max(1, maxPeriods)}
	c.root.next, c.root.prev = &c.root, &c.root
	return c
}

// get returns the entry and makes it the most recently used, or nil.
func (c *cache) get(conv string) *entry {
	e := c.entries[conv]
	if e != nil {
		c.unlink(e)
		c.link(e)
	}
	return e
}

// add makes an empty entry.
func (c *cache) add(conv string) *entry {
	e := &entry{conv: strings.Clone(conv)}
	c.entries[e.conv] = e
	c.link(e)
	return e
}

// resized counts e's periods anew, and evicts what is too much, but never e itself.
func (c *cache) resized(e *entry) {
	if c.entries[e.conv] != e {
		return // evicted meanwhile
	}
	n := len(e.members) + len(e.ended)
	c.periods += n - int(e.counted)
	e.counted = int32(n)
	for len(c.entries) > c.maxEntries || c.periods > c.maxPeriods {
		old := c.root.prev
		if old == e || old == &c.root {
			return
		}
		c.remove(old)
	}
}

func (c *cache) remove(e *entry) {
	c.unlink(e)
	delete(c.entries, e.conv)
	c.periods -= int(e.counted)
	e.forget(c.registry)
}

func (c *cache) link(e *entry) {
	e.prev, e.next = &c.root, c.root.next
	e.prev.next, e.next.prev = e, e
}

func (c *cache) unlink(e *entry) { e.prev.next, e.next.prev = e.next, e.prev }

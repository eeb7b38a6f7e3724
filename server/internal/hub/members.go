package hub

import (
	"strings"

	"imbench/server/internal/im"
)

// entry is what a shard knows of a conversation. It belongs to the shard's worker; nothing in it is locked.
//
// The membership periods are complete for the seqs lo..hi: for each of these, the members are the users who have a
// period that contains it. A message or recall at hi+1 extends the interval, a join or leave at hi+1 changes the
// periods and extends it; anything further on leaves a gap, and the periods must be read again (08-cache-version: a
// cache that is behind the event is not used).
type entry struct {
	conv    string
	mode    im.Mode
	lo, hi  int64 // hi = 0: the periods are not known
	periods []im.Period
	closed  int   // periods that have ended
	last    int64 // everything up to here was fanned out (or hinted); 0 = unknown
	counted int   // periods, as the cache counts them

	prev, next *entry // least recently used order
}

// maxClosed is how many ended periods an entry keeps before those that lie behind what was fanned out are dropped.
const maxClosed = 64

// valid says whether the members at seq are known, or will be once the events between hi and seq were applied.
func (e *entry) valid(seq int64) bool { return e.hi > 0 && seq >= e.lo && seq <= e.hi+1 }

// load replaces what is known with what was read from the store, complete for from..info.Head.
func (e *entry) load(info im.ConvInfo, from int64) {
	e.mode, e.lo, e.hi = info.Mode, from, max(info.Head, from-1)
	e.periods = info.Periods
	e.closed = 0
	for _, p := range e.periods {
		if p.To != 0 {
			e.closed++
		}
	}
}

// apply extends the interval by the event at hi+1; events up to hi are in it already. It returns false for a gap.
func (e *entry) apply(ev *im.Event) bool {
	if ev.Seq <= e.hi {
		return ev.Seq >= e.lo
	}
	if ev.Seq != e.hi+1 {
		return false
	}
	e.hi = ev.Seq
	switch ev.Kind {
	case im.KindJoin:
		e.periods = append(e.periods, im.Period{User: strings.Clone(ev.User), From: ev.Seq})
	case im.KindLeave:
		for i := range e.periods {
			if p := &e.periods[i]; p.User == ev.User && p.To == 0 {
				p.To = ev.Seq // the leave itself is the last event that the user sees
				e.closed++
			}
		}
	}
	return true
}

// compact drops periods that ended before seq, when there are many.
func (e *entry) compact(seq int64) {
	if e.closed <= maxClosed {
		return
	}
	kept := e.periods[:0]
	for _, p := range e.periods {
		if p.To == 0 || p.To >= seq {
			kept = append(kept, p)
		}
	}
	e.closed -= len(e.periods) - len(kept)
	clear(e.periods[len(kept):])
	e.periods, e.lo = kept, max(e.lo, seq)
}

// contains says whether a period contains seq.
func contains(p *im.Period, seq int64) bool { return p.From <= seq && (p.To == 0 || seq <= p.To) }

// count is the number of members at seq.
func (e *entry) count(seq int64) int {
	n := 0
	for i := range e.periods {
		if contains(&e.periods[i], seq) {
			n++
		}
	}
	return n
}

// cache holds the entries of a shard, the least recently used of which go first. It is bounded in conversations and in
// periods.
type cache struct {
	entries    map[string]*entry
	root       entry // root.next is the most recently used
	periods    int
	maxEntries int
	maxPeriods int
}

func newCache(maxEntries, maxPeriods int) *cache {
	c := &cache{entries: map[string]*entry{}, maxEntries: max(1, maxEntries), maxPeriods: max(1, maxPeriods)}
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
	c.periods += len(e.periods) - e.counted
	e.counted = len(e.periods)
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
	c.periods -= e.counted
}

func (c *cache) link(e *entry) {
	e.prev, e.next = &c.root, c.root.next
	e.prev.next, e.next.prev = e, e
}

func (c *cache) unlink(e *entry) { e.prev.next, e.next.prev = e.next, e.prev }

package ledger

import "sort"

// conv is one conversation: its devices, and the part of its log that is not folded. All of it is guarded by the shard.
type conv struct {
	base    int64  // where it stands when the run begins: the run's messages come behind it
	first   int64  // seq of entries[0]
	sum     uint64 // digest of the folded entries, base < seq < first
	entries []entry
	pairs   []pair // connected devices of the members, by device
	holes   bool   // something unknown was folded: sum proves nothing
	done    bool   // the export had this conversation
	ours    int32  // messages of this run among the folded
}

// pair is one device in one conversation.
type pair struct {
	sum    uint64 // of the digests of all messages applied
	last   int64  // highest seq applied
	device int32
	count  uint32 // messages applied, each counted once
}

// entry is what is known of one seq.
type entry struct {
	mid    uint64 // keyed hash
	body   uint64
	plan   int64
	device int32 // who said it first
	state  state
}

// state is the standing of an entry.
type state uint8

const (
	hole  state = iota // nobody has said anything yet
	told               // a device applied it; not confirmed
	sent               // a sent reply, or the export, confirms it
	other              // an event that is no message, or, of Config.Shared, none of this run's
)

func (e *entry) same(b entry) bool { return e.mid == b.mid && e.body == b.body }

// maxAhead bounds how far beyond the known log a seq may lie and still get an entry.
const maxAhead = 1 << 16

func (c *conv) pair(device int32) *pair {
	i := sort.Search(len(c.pairs), func(i int) bool { return c.pairs[i].device >= device })
	if i < len(c.pairs) && c.pairs[i].device == device {
		return &c.pairs[i]
	}
	return nil
}

// at gives the entry of a seq; nil if it was folded or is not known.
func (c *conv) at(seq int64) *entry {
	if i := seq - c.first; i >= 0 && i < int64(len(c.entries)) {
		return &c.entries[i]
	}
	return nil
}

// claim holds what someone says of a seq against what is known of it, and names who was wrong. sh.mu must be held.
func (l *Ledger) claim(c *conv, sh *shard, ci int32, seq int64, e entry) {
	if seq < c.first || seq-c.first > int64(len(c.entries))+maxAhead {
		l.folded.Add(1)
		return
	}
	for seq-c.first >= int64(len(c.entries)) {
		c.entries = append(c.entries, entry{})
		l.entries.Add(1)
	}
	known := c.at(seq)
	switch {
	case known.state == hole:
		*known = e
	case e.state == sent && known.state == other && l.cfg.Shared:
		// Which devices took it for something else, the digests tell at the end; the first is known by name.
		l.mismatch(sh, pairKey{ci, known.device}, seq, "applied as what is none of this run's messages, and the sent reply has one of them here")
		*known = e
	case (e.state == other) != (known.state == other):
		l.mismatch(sh, pairKey{ci, e.device}, seq, "an event of another kind than was told before")
	case e.state == told && known.state == told && !known.same(e):
		l.dispute(sh, ci, seq, e)
	case e.state == told && !known.same(e):
		l.mismatch(sh, pairKey{ci, e.device}, seq, "content differs from the sent reply")
	case e.state == sent && known.state == told:
		l.confirm(c, sh, ci, seq, known, e, "content differs from the sent reply")
	case e.state == sent && !known.same(e):
		l.blame(mismatched, e.device, ci, seq, "two messages were answered with this seq")
	}
	if l.entries.Load() > l.cfg.MaxEntries {
		l.fold(c, sh, ci)
	}
}

// confirm sets the truth of a seq of which only devices had spoken. Those who applied something else are named: the
// ones that agreed with the first, if the first was wrong, and the ones that disagreed with it, if they were.
func (l *Ledger) confirm(c *conv, sh *shard, ci int32, seq int64, known *entry, truth entry, detail string) {
	wrong := !known.same(truth)
	*known = truth
	if !wrong && len(sh.faulty) == 0 {
		return
	}
	for i := range c.pairs {
		p := &c.pairs[i]
		f := sh.faulty[pairKey{ci, p.device}]
		said, disputed := f.takeDispute(seq)
		bad := wrong && !disputed && p.last >= seq && !f.lacks(seq) || disputed && !said.same(truth)
		if bad {
			l.mismatch(sh, pairKey{ci, p.device}, seq, detail)
		}
	}
}

// fold gives up the older half of a conversation's entries. sh.mu must be held.
func (l *Ledger) fold(c *conv, sh *shard, ci int32) { l.foldFirst(c, sh, ci, max(1, len(c.entries)/2)) }

// foldFirst gives up the first n entries of a conversation. sh.mu must be held.
func (l *Ledger) foldFirst(c *conv, sh *shard, ci int32, n int) {
	for i := range c.entries[:n] {
		e := &c.entries[i]
		seq := c.first + int64(i)
		switch e.state {
		case hole:
			c.holes = true
		case told, sent:
			c.sum += l.digest(seq, e.mid, e.body)
			c.ours++
		}
		if len(sh.faulty) > 0 {
			l.undecided(c, sh, ci, seq)
		}
	}
	kept := copy(c.entries, c.entries[n:])
	clear(c.entries[kept:])
	c.entries = c.entries[:kept]
	c.first += int64(n)
	l.entries.Add(-int64(n))
}

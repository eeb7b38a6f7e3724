package ledger

import (
	"fmt"
	"slices"
)

// merge adds one conversation of a part.
func (l *Ledger) merge(p partConv) error {
	c, sh, ok := l.lock(p.Conv)
	if !ok {
		return fmt.Errorf("conversation %d is not of this population", p.Conv)
	}
	defer sh.mu.Unlock()
	w := &conv{base: c.base, first: p.First, sum: p.Sum, holes: p.Holes}
	if p.First <= c.base {
		return fmt.Errorf("%s: its log begins at seq %d, before the run's first message %d", l.pop.Convs[p.Conv].ID, p.First, c.base+1)
	}
	for _, e := range p.Entries {
		if state(e.State) > other {
			return fmt.Errorf("%s: an entry of unknown state %d", l.pop.Convs[p.Conv].ID, e.State)
		}
		w.entries = append(w.entries, e.entry())
	}
	l.entries.Add(int64(len(w.entries)))
	for _, x := range p.Pairs {
		own := c.pair(x.Device)
		if own == nil || own.last != c.base {
			return fmt.Errorf("%s: device %d is in two parts, or in none of this run", l.pop.Convs[p.Conv].ID, x.Device)
		}
		w.pairs = append(w.pairs, pair{sum: x.Sum, last: x.Last, device: x.Device, count: x.Count})
	}
	for _, f := range p.Faults {
		l.addFault(sh.fault(pairKey{p.Conv, f.Device}), f)
	}
	l.unite(c, w, sh, p.Conv)
	for _, x := range w.pairs { // only now: until here c's pairs are those that had agreed with c's entries
		*c.pair(x.device) = x
	}
	for l.entries.Load() > l.cfg.MaxEntries && len(c.entries) > 0 {
		l.fold(c, sh, p.Conv)
	}
	return nil
}

func (l *Ledger) addFault(f *fault, p partFault) {
	f.located = f.located || p.Located
	for _, m := range p.Missing {
		l.gaps.Add(1)
		f.missing = append(f.missing, span{m[0], m[1]})
	}
	for _, d := range p.Disputes {
		f.disputes = append(f.disputes, claimAt{d.Seq, d.Entry.entry()})
	}
}

// unite brings what w knows of the log into c. sh.mu must be held.
func (l *Ledger) unite(c, w *conv, sh *shard, ci int32) {
	l.foldTo(w, sh, ci, c.first)
	l.foldTo(c, sh, ci, w.first)
	switch {
	case w.holes:
	case c.holes:
		c.sum, c.holes = w.sum, false
	case c.sum != w.sum:
		l.blame(mismatched, -1, ci, c.first-1, "up to this seq two workers were told different contents; the entries had been folded")
	}
	for i := range w.entries {
		if i == len(c.entries) {
			c.entries = append(c.entries, w.entries[i:]...)
			return
		}
		l.reconcile(c, w, sh, ci, c.first+int64(i), &w.entries[i])
		l.entries.Add(-1)
	}
}

// foldTo folds a conversation up to, not including, a seq. What lies beyond its entries is not known, and leaves a hole.
func (l *Ledger) foldTo(c *conv, sh *shard, ci int32, seq int64) {
	if n := seq - c.first; n > 0 {
		l.foldFirst(c, sh, ci, int(min(n, int64(len(c.entries)))))
	}
	if c.first < seq {
		c.first, c.holes = seq, true
	}
}

// reconcile holds what w knows of a seq against what c knows of it, and leaves the better of both in c. sh.mu must be held.
func (l *Ledger) reconcile(c, w *conv, sh *shard, ci int32, seq int64, e *entry) {
	known := c.at(seq)
	switch {
	case e.state == hole:
	case known.state == hole:
		*known = *e
	case (e.state == other) != (known.state == other):
		l.mismatch(sh, pairKey{ci, e.device}, seq, "an event of another kind than was told before")
	case e.state == other:
	case e.state == sent && known.state == sent:
		if !known.same(*e) {
			l.blame(mismatched, e.device, ci, seq, "two messages were answered with this seq")
		}
	case e.state == sent:
		l.confirm(c, sh, ci, seq, known, *e, "content differs from the sent reply")
	case known.state == sent:
		l.confirm(w, sh, ci, seq, e, *known, "content differs from the sent reply")
	case !known.same(*e):
		l.disagree(w, sh, ci, seq, *e)
	}
}

// disagree notes that the devices of w which took its word on a seq contradict others; the truth is not known yet.
func (l *Ledger) disagree(w *conv, sh *shard, ci int32, seq int64, e entry) {
	for i := range w.pairs {
		p := &w.pairs[i]
		f := sh.faulty[pairKey{ci, p.device}]
		if p.last < seq || f.lacks(seq) || f.disputed(seq) {
			continue
		}
		e.device = p.device
		l.dispute(sh, ci, seq, e)
	}
}

// Forget takes devices out of the ledger of which nothing is known: nothing is expected of them. It belongs to the owner of
// Import, and comes behind it.
func (l *Ledger) Forget(device func(int32) bool) {
	for i := range l.convs {
		c, sh, _ := l.lock(int32(i))
		c.pairs = slices.DeleteFunc(c.pairs, func(p pair) bool { return device(p.device) })
		sh.mu.Unlock()
	}
}

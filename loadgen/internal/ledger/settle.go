package ledger

import (
	"cmp"
	"fmt"
	"slices"
)

// settlement compares the pairs with a log that passes by once, in the order of conversation and seq.
type settlement struct {
	ci       int32
	c        *conv // the conversation under way; nil between two
	prev     int64 // seq of the last row
	sum      uint64
	blind    bool     // sum is not known here: devices that stand here cannot be compared
	order    []int32  // indices of the pairs, by last
	next     int      // order[:next] stand at or before prev
	faults   []faulty // of this conversation
	expected int64
	byChoice int64 // not expected: the device does not read the conversation
	rows     int64
	nameless int64 // rows of which nobody knows the plan index
	outside  int64 // rows of conversations outside the population
	prior    int64 // rows from before the run
	passed   int64 // events of others that a device never applied, and later ones it did
	plans    bitset
}

// faulty is a pair with its fault.
type faulty struct {
	p *pair
	f *fault
}

// AddLog gives one message of the exported log: conversation (population index, or -1 if unknown), seq, mid, body hash
// (as payload.Hash), and the plan index, or -1 if the caller cannot tell. The rows of a conversation come together and in
// order of seq; the error says where they do not, and the export is then of no use (Settle with exported=false).
func (l *Ledger) AddLog(conv int32, seq int64, mid string, bodyHash uint64, plan int64) error {
	s := &l.settle
	if conv < 0 || int(conv) >= len(l.convs) {
		s.outside++
		return nil
	}
	if s.c != nil && s.ci != conv {
		l.end()
	}
	c, sh, _ := l.lock(conv)
	defer sh.mu.Unlock()
	if s.c == nil {
		if c.done {
			return fmt.Errorf("log export: the rows of %s do not come together", l.pop.Convs[conv].ID)
		}
		l.begin(c, sh, conv)
	}
	if seq <= c.base {
		s.prior++
		return nil
	}
	if seq <= s.prev {
		return fmt.Errorf("log export: seq %d of %s comes after %d", seq, l.pop.Convs[conv].ID, s.prev)
	}
	if gap := seq - s.prev - 1; gap > maxAhead {
		return fmt.Errorf("log export: %d seqs are missing before seq %d of %s", gap, seq, l.pop.Convs[conv].ID)
	}
	for gap := s.prev + 1; gap < seq; gap++ {
		l.absent(sh, gap, true)
	}
	e := entry{mid: l.hash(mid), body: bodyHash, plan: plan, device: -1, state: sent}
	if known := c.at(seq); known != nil {
		l.compare(sh, seq, known, &e)
	}
	l.row(sh, seq, e, true)
	if folded := c.first - 1; seq == folded && !c.holes && s.sum != c.sum {
		l.blame(mismatched, -1, conv, seq, "up to this seq the log differs from what was told; the entries had been folded")
		s.blind = true
	}
	return nil
}

// compare holds an exported row against what replies and devices had told. The shard's lock must be held.
func (l *Ledger) compare(sh *shard, seq int64, known, e *entry) {
	s := &l.settle
	if e.plan < 0 {
		e.plan = known.plan
	}
	switch {
	case known.state == hole:
		*known = *e
	case known.state == told:
		l.confirm(s.c, sh, s.ci, seq, known, *e, "content differs from the log")
	case known.state == other:
		l.blame(mismatched, known.device, s.ci, seq, "told as an event of another kind than the log has")
	case !known.same(*e):
		l.blame(mismatched, known.device, s.ci, seq, "the log's content differs from the sent reply")
		s.blind = true
	}
}

// begin starts a conversation. The shard's lock must be held.
func (l *Ledger) begin(c *conv, sh *shard, ci int32) {
	s := &l.settle
	s.ci, s.c, s.prev, s.sum, s.blind, s.next = ci, c, c.base, 0, false, 0
	s.order, s.faults = s.order[:0], s.faults[:0]
	for i := range c.pairs {
		s.order = append(s.order, int32(i))
		if len(sh.faulty) > 0 {
			if f := sh.faulty[pairKey{ci, c.pairs[i].device}]; f != nil {
				s.faults = append(s.faults, faulty{&c.pairs[i], f})
			}
		}
	}
	slices.SortFunc(s.order, func(a, b int32) int { return cmp.Compare(c.pairs[a].last, c.pairs[b].last) })
	l.stand(sh)
}

// row is one message of the log. Whoever must see it and does not have it is named, unless it lags by choice. known=false: its content is not
// known. The shard's lock must be held.
func (l *Ledger) row(sh *shard, seq int64, e entry, known bool) {
	s := &l.settle
	var d uint64
	if known {
		d = l.digest(seq, e.mid, e.body)
		s.sum += d
	}
	s.rows++
	if e.plan < 0 {
		s.nameless++
	} else {
		l.unknown.resolve(e.plan)
		if s.plans.set(e.plan) {
			l.blame(loggedTwice, e.device, s.ci, seq, fmt.Sprintf("plan index %d is in the log at an earlier seq, too", e.plan))
		}
	}
	s.expected += l.audience(seq)
	for _, x := range s.faults {
		if x.f.lacks(seq) {
			x.f.absent += d
			x.f.located = x.f.located || !known
			l.blame(lost, x.p.device, s.ci, seq, "never applied; later ones were")
		}
	}
	for _, i := range s.order[:s.next] {
		switch p := &s.c.pairs[i]; {
		case !l.sees(p.device, seq):
		case l.cfg.Reads != nil && !l.cfg.Reads(p.device, s.ci):
			s.expected--
			s.byChoice++
		default:
			l.blame(lost, p.device, s.ci, seq, "never applied, nor any later one")
		}
	}
	s.prev = seq
	l.stand(sh)
}

// sees says whether a device of the conversation under way may see the seq.
func (l *Ledger) sees(device int32, seq int64) bool {
	return l.cfg.Member == nil || l.cfg.Member(l.settle.ci, l.pop.Devices[device].User, seq)
}

// audience is how many connected devices may see the seq.
func (l *Ledger) audience(seq int64) (n int64) {
	if l.cfg.Member == nil {
		return int64(len(l.settle.c.pairs))
	}
	for i := range l.settle.c.pairs {
		if l.sees(l.settle.c.pairs[i].device, seq) {
			n++
		}
	}
	return n
}

// stand compares the digests of the devices that stand where the log now is. Hidden events, which have no row, leave
// devices before prev: what they stand at is the last row.
func (l *Ledger) stand(sh *shard) {
	s := &l.settle
	for ; s.next < len(s.order); s.next++ {
		p := &s.c.pairs[s.order[s.next]]
		if p.last > s.prev {
			return
		}
		var absent uint64
		located := s.blind || l.cfg.Member != nil // whose view has holes is checked seq by seq only
		if f := sh.faulty[pairKey{s.ci, p.device}]; f != nil {
			absent, located = f.absent, located || f.located
		}
		if !located && p.sum+absent != s.sum {
			l.blame(mismatched, p.device, s.ci, p.last, "the digest of all that was applied up to this seq differs from the log's")
		}
	}
}

// absent is a seq that the export does not have; inside: it has later ones. The shard's lock must be held.
func (l *Ledger) absent(sh *shard, seq int64, inside bool) {
	s := &l.settle
	e := s.c.at(seq)
	s.prev = seq
	if e != nil && e.state == other {
		l.stand(sh)
		return
	}
	if inside {
		l.blame(logGap, -1, s.ci, seq, "the log has later seqs, and not this one")
	}
	if e != nil && e.state == sent {
		l.blame(unlogged, e.device, s.ci, seq, "answered with this seq, which is not in the log")
	}
	for i := range s.c.pairs {
		p := &s.c.pairs[i]
		k := pairKey{s.ci, p.device}
		if p.last < seq || sh.faulty[k].lacks(seq) {
			continue
		}
		l.blame(foreign, p.device, s.ci, seq, "applied, and not in the log")
		sh.fault(k).located = true
	}
	l.stand(sh)
}

// end closes the conversation under way: what lies beyond the log's head is in no log.
func (l *Ledger) end() {
	s := &l.settle
	if s.c == nil {
		return
	}
	_, sh, _ := l.lock(s.ci)
	defer sh.mu.Unlock()
	top := s.c.first + int64(len(s.c.entries)) - 1
	head := s.prev
	for i := range s.c.pairs {
		p := &s.c.pairs[i]
		top = max(top, p.last)
		if p.last > head+maxAhead {
			l.blame(foreign, p.device, s.ci, p.last, "applied, and far beyond the log's head")
		}
	}
	for seq := head + 1; seq <= min(top, head+maxAhead); seq++ {
		l.absent(sh, seq, false)
	}
	s.c.done, s.c = true, nil
}

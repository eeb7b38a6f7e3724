package ledger

import (
	"fmt"
	"slices"

	"imbench/reports/rundir"
)

// Settle closes the books. full: the settle phase ran in full, so that what has not arrived is lost; without it, it is
// only undelivered. exported: AddLog was given the whole log; without it, the log is what replies and devices told, and a
// message that neither told is not known.
func (l *Ledger) Settle(full, exported bool) rundir.Ledger {
	if exported {
		l.end()
	} else if l.settle.c != nil { // the export broke off: go on with our own log
		_, sh, _ := l.lock(l.settle.ci)
		l.ownLog(sh)
		sh.mu.Unlock()
		l.end()
	}
	for i := range l.convs {
		c, sh, _ := l.lock(int32(i))
		if c.done {
			sh.mu.Unlock()
			continue
		}
		l.begin(c, sh, int32(i))
		if !exported {
			l.ownLog(sh)
		}
		sh.mu.Unlock()
		l.end()
	}
	return l.result(full, exported)
}

// ownLog passes on what replies and devices told of the conversation under way, from where the rows ended. The shard's
// lock must be held.
func (l *Ledger) ownLog(sh *shard) {
	s := &l.settle
	c := s.c
	if l.cfg.Shared {
		l.oursOnly(sh)
		return
	}
	for s.prev < c.first-1 {
		s.blind = true
		seq := s.prev + 1
		if seq == c.first-1 {
			s.sum, s.blind = c.sum, c.holes
		}
		l.row(sh, seq, entry{plan: -1, device: -1}, false)
	}
	for i := max(s.prev+1-c.first, 0); i < int64(len(c.entries)); i++ {
		e, seq := c.entries[i], c.first+i
		if len(sh.faulty) > 0 {
			l.undecided(c, sh, s.ci, seq)
		}
		switch e.state {
		case other:
			s.prev = seq
			l.stand(sh)
		case hole:
			e.plan, e.device = -1, -1
			l.row(sh, seq, e, false)
		default:
			l.row(sh, seq, e, true)
		}
	}
}

// oursOnly passes on the messages of this run; what lies between is background. Of those that were folded only the number
// and the digest are known. The shard's lock must be held.
func (l *Ledger) oursOnly(sh *shard) {
	s := &l.settle
	c := s.c
	if s.prev < c.first-1 {
		for i, x := range s.order { // those that never got past the fold
			p := &c.pairs[x]
			if p.last >= c.first-1 {
				break
			}
			s.next = max(s.next, i+1)
			if n := int64(c.ours) - int64(p.count); n > 0 && (l.cfg.Reads == nil || l.cfg.Reads(p.device, s.ci)) {
				l.report.addLost(n)
			}
		}
		s.rows += int64(c.ours)
		s.expected += int64(c.ours) * int64(len(c.pairs))
		s.prev, s.sum, s.blind = c.first-1, c.sum, c.holes
		l.stand(sh)
	}
	for i, e := range c.entries {
		seq := c.first + int64(i)
		if len(sh.faulty) > 0 {
			l.undecided(c, sh, s.ci, seq)
		}
		if e.state == told || e.state == sent {
			l.row(sh, seq, e, true)
			continue
		}
		for _, x := range s.faults {
			if x.f.lacks(seq) {
				s.passed++
			}
		}
		s.prev = seq
		l.stand(sh)
	}
}

func (l *Ledger) result(full, exported bool) rundir.Ledger {
	r := rundir.Ledger{LedgerSummary: l.Summary()}
	s := &l.settle
	r.Expected, r.Messages, r.Settled, r.Exported = s.expected, s.rows, full, exported
	l.unknown.mu.Lock()
	open := int64(len(l.unknown.plans))
	r.Committed, r.Unresolved = l.unknown.found, l.unknown.over
	l.unknown.mu.Unlock()
	if exported { // a row without a plan index may be any of them
		r.Unresolved += min(open, s.nameless)
	} else {
		r.Unresolved += open
	}
	l.report.mu.Lock()
	unnamed := l.report.unnamed
	l.report.mu.Unlock()
	r.Lost += unnamed
	l.report.into(&r, full)
	if l.cfg.Shared {
		r.Notes = append(r.Notes, fmt.Sprintf("background: %d messages of others in the conversations of this run, of which devices applied %d events; they are no part of the proof", l.others.Load(), l.background.Load()))
	}
	if !exported {
		r.Notes = append(r.Notes, "no export of the log: compared with the sent replies and with what devices agree on")
	}
	for _, n := range []struct {
		n    int64
		what string
	}{
		{s.outside, "messages of the export belong to conversations outside the population"},
		{s.prior, "messages of the export are older than the run"},
		{s.byChoice, "deliveries were not expected: devices that do not read a conversation lag by choice"},
		{s.passed, "events of others were passed over by a device that applied later ones"},
		{l.moves.Load(), "pairs of a device and a conversation were left out of the proof: their users joined or left in mid-run"},
		{l.backfill.Load(), "events from before the run were applied"},
		{l.fetched.Load(), "fetched events were compared with what had been told of them"},
		{unnamed, "missing messages could not be kept by name"},
	} {
		if n.n > 0 {
			r.Notes = append(r.Notes, fmt.Sprintf("%d %s", n.n, n.what))
		}
	}
	return r
}

// into writes the culprits, and takes what did not arrive for lost only after a full settle.
func (rep *report) into(r *rundir.Ledger, full bool) {
	rep.mu.Lock()
	defer rep.mu.Unlock()
	r.Culprits, r.Counts = slices.Clone(rep.culprits), map[string]int64{}
	for k, n := range rep.counts {
		if n > 0 {
			r.Counts[kindNames[k]] = n
		}
	}
	if !full {
		r.Undelivered, r.Lost = r.Lost, 0
		r.Culprits = slices.DeleteFunc(r.Culprits, func(c rundir.Culprit) bool { return c.Kind == kindNames[lost] })
		delete(r.Counts, kindNames[lost])
		r.Notes = append(r.Notes, "the settle phase did not run in full: what was not there yet does not count as lost")
	}
}

// bitset is a set of plan indices below maxPlan; those beyond are in no set.
type bitset []uint64

const maxPlan = 1 << 30 // 128 MB

// at says whether i is in the set.
func (b bitset) at(i int64) bool { return i/64 < int64(len(b)) && b[i/64]&(1<<(i%64)) != 0 }

// set adds i and says whether it had been there.
func (b *bitset) set(i int64) bool {
	if i >= maxPlan {
		return false
	}
	for int64(len(*b)) <= i/64 {
		*b = append(*b, 0)
	}
	had := (*b)[i/64]&(1<<(i%64)) != 0
	(*b)[i/64] |= 1 << (i % 64)
	return had
}

package ledger

import (
	"slices"
	"sort"
	"sync/atomic"
)

// fault is what is kept of a pair with which something is, or was, wrong.
type fault struct {
	missing  []span    // jumped over and not applied since, in order of seq
	disputes []claimAt // contradicts another device, the truth is not known yet
	located  bool      // a difference in content has been named: the digest will differ, and is no news
	absent   uint64    // at settle: the log's digests of what is missing
}

// span is a range of seqs, both ends included.
type span struct{ from, to int64 }

// claimAt is a device's word on a seq.
type claimAt struct {
	seq int64
	e   entry
}

// Bounds of what is kept of faults.
const (
	maxGaps     = 1 << 16 // in all
	maxDisputes = 16      // a pair
)

func (sh *shard) fault(k pairKey) *fault {
	f := sh.faulty[k]
	if f == nil {
		f = &fault{}
		if sh.faulty == nil {
			sh.faulty = map[pairKey]*fault{}
		}
		sh.faulty[k] = f
	}
	return f
}

// step moves a pair by one seq and judges the order; false: it had been applied before, and counts no more.
// sh.mu must be held.
func (l *Ledger) step(c *conv, sh *shard, p *pair, ci int32, seq int64) bool {
	k := pairKey{ci, p.device}
	switch {
	case seq == p.last+1:
		p.last = seq
	case seq > p.last:
		l.jump(sh, k, p.last+1, seq-1)
		p.last = seq
	case sh.faulty[k].take(seq, &l.gaps):
		l.blame(reordered, p.device, ci, seq, "applied after a later one")
	default:
		l.blame(duplicated, p.device, ci, seq, "applied twice")
		return false
	}
	return true
}

// jump notes that a device went past seqs which it must see.
func (l *Ledger) jump(sh *shard, k pairKey, from, to int64) {
	f := sh.fault(k)
	if l.cfg.Member == nil {
		l.miss(f, k, span{from, to})
		return
	}
	user := l.pop.Devices[k.device].User
	for s := from; s <= to && s-from < maxAhead; s++ {
		if l.cfg.Member(k.conv, user, s) {
			l.miss(f, k, span{s, s})
		}
	}
}

func (l *Ledger) miss(f *fault, k pairKey, gap span) {
	if l.gaps.Load() >= maxGaps {
		f.located = true
		l.report.addLost(gap.to - gap.from + 1)
		return
	}
	l.gaps.Add(1)
	f.missing = append(f.missing, gap)
}

// take removes a seq from what is missing.
func (f *fault) take(seq int64, gaps *atomic.Int64) bool {
	if f == nil {
		return false
	}
	i := f.find(seq)
	if i < 0 {
		return false
	}
	gap := f.missing[i]
	var rest []span
	if gap.from < seq {
		rest = append(rest, span{gap.from, seq - 1})
	}
	if seq < gap.to {
		rest = append(rest, span{seq + 1, gap.to})
	}
	gaps.Add(int64(len(rest) - 1))
	f.missing = slices.Replace(f.missing, i, i+1, rest...)
	return true
}

// find gives the index of the gap that holds seq, or -1. Gaps are in order: each new one lies ahead of all others.
func (f *fault) find(seq int64) int {
	i := sort.Search(len(f.missing), func(i int) bool { return f.missing[i].to >= seq })
	if i < len(f.missing) && f.missing[i].from <= seq {
		return i
	}
	return -1
}

func (f *fault) lacks(seq int64) bool { return f != nil && f.find(seq) >= 0 }

// dispute keeps a device's word that contradicts another's until the truth is known.
func (l *Ledger) dispute(sh *shard, ci int32, seq int64, e entry) {
	k := pairKey{ci, e.device}
	f := sh.fault(k)
	if len(f.disputes) >= maxDisputes {
		l.mismatch(sh, k, seq, "content differs from what another device applied")
		return
	}
	f.disputes = append(f.disputes, claimAt{seq, e})
}

// said is what the device was told of a seq, if others were told something else and the truth is not known yet.
func (f *fault) said(seq int64) (e entry, disputed bool) {
	if f == nil {
		return entry{}, false
	}
	for _, d := range f.disputes {
		if d.seq == seq {
			return d.e, true
		}
	}
	return entry{}, false
}

func (f *fault) takeDispute(seq int64) (e entry, ok bool) {
	if f == nil {
		return entry{}, false
	}
	for i, d := range f.disputes {
		if d.seq == seq {
			f.disputes = append(f.disputes[:i], f.disputes[i+1:]...)
			return d.e, true
		}
	}
	return entry{}, false
}

// disputed says whether the device's word on a seq is among the disputes.
func (f *fault) disputed(seq int64) bool {
	return f != nil && slices.ContainsFunc(f.disputes, func(d claimAt) bool { return d.seq == seq })
}

// undecided names the devices whose word on a seq contradicts another's when the truth cannot be known any more.
func (l *Ledger) undecided(c *conv, sh *shard, ci int32, seq int64) {
	for i := range c.pairs {
		k := pairKey{ci, c.pairs[i].device}
		if _, ok := sh.faulty[k].takeDispute(seq); ok {
			l.mismatch(sh, k, seq, "content differs from what another device applied")
		}
	}
}

func (l *Ledger) mismatch(sh *shard, k pairKey, seq int64, detail string) {
	sh.fault(k).located = true
	l.blame(mismatched, k.device, k.conv, seq, detail)
}

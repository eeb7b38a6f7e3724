package ledger

import (
	"bufio"
	"encoding/gob"
	"fmt"
	"io"
	"slices"
	"sync/atomic"

	"imbench/reports/rundir"
)

// A part is what one worker's ledger holds, as a stream of gob values: a head, the conversations of which it knows
// something, and a tail. Writing and reading it needs the memory of the largest conversation.
type partHead struct {
	Format int
	Key    uint64
	Convs  int // of the population
	Parts  int // conversations that follow
}

const partFormat = 1

type partConv struct {
	Conv    int32
	First   int64
	Sum     uint64
	Holes   bool
	Entries []partEntry
	Pairs   []partPair
	Faults  []partFault
}

type partEntry struct {
	MID, Body uint64
	Plan      int64
	Device    int32
	State     uint8
}

type partPair struct {
	Device int32
	Count  uint32
	Last   int64
	Sum    uint64
}

type partFault struct {
	Device   int32
	Missing  [][2]int64
	Disputes []partDispute
	Located  bool
}

type partDispute struct {
	Seq   int64
	Entry partEntry
}

type partTail struct {
	Counts                    [numKinds]int64
	Culprits                  []rundir.Culprit
	Unnamed                   int64
	Repeats, Backfill, Folded int64
	Fetched                   int64
	Unknown                   []int64
	UnknownOver               int64
}

// Export writes all that the ledger knows, for Import. It belongs to the owner of AddLog and Settle, and comes in their
// place. The error is the writer's.
func (l *Ledger) Export(w io.Writer) error {
	b := bufio.NewWriterSize(w, 64<<10)
	enc := gob.NewEncoder(b)
	var parts []int32
	for i := range l.convs {
		if l.convs[i].told() {
			parts = append(parts, int32(i))
		}
	}
	if err := enc.Encode(partHead{partFormat, l.key, len(l.convs), len(parts)}); err != nil {
		return err
	}
	for _, i := range parts {
		if err := enc.Encode(l.partOf(i)); err != nil {
			return err
		}
	}
	if err := enc.Encode(l.tail()); err != nil {
		return err
	}
	return b.Flush()
}

// told says whether anybody has said anything of the conversation.
func (c *conv) told() bool {
	return c.first != c.base+1 || len(c.entries) > 0 || slices.ContainsFunc(c.pairs, func(p pair) bool { return p.last != c.base })
}

func (l *Ledger) partOf(ci int32) partConv {
	c, sh, _ := l.lock(ci)
	defer sh.mu.Unlock()
	p := partConv{Conv: ci, First: c.first, Sum: c.sum, Holes: c.holes, Entries: make([]partEntry, len(c.entries))}
	for i, e := range c.entries {
		p.Entries[i] = e.part()
	}
	for _, x := range c.pairs {
		if x.last != c.base {
			p.Pairs = append(p.Pairs, partPair{x.device, x.count, x.last, x.sum})
		}
		f := sh.faulty[pairKey{ci, x.device}]
		if f == nil {
			continue
		}
		pf := partFault{Device: x.device, Located: f.located}
		for _, m := range f.missing {
			pf.Missing = append(pf.Missing, [2]int64{m.from, m.to})
		}
		for _, d := range f.disputes {
			pf.Disputes = append(pf.Disputes, partDispute{d.seq, d.e.part()})
		}
		p.Faults = append(p.Faults, pf)
	}
	return p
}

func (e entry) part() partEntry {
	return partEntry{e.mid, e.body, e.plan, e.device, uint8(e.state)}
}

func (e partEntry) entry() entry { return entry{e.MID, e.Body, e.Plan, e.Device, state(e.State)} }

func (l *Ledger) tail() partTail {
	t := partTail{Repeats: l.repeats.Load(), Backfill: l.backfill.Load(), Folded: l.folded.Load(), Fetched: l.fetched.Load(), Unknown: l.Unknown()}
	l.unknown.mu.Lock()
	t.UnknownOver = l.unknown.over
	l.unknown.mu.Unlock()
	r := &l.report
	r.mu.Lock()
	defer r.mu.Unlock()
	t.Counts, t.Culprits, t.Unnamed = r.counts, slices.Clone(r.culprits), r.unnamed
	return t
}

// Import adds what another ledger of the same run, key and population has exported. Each device's part comes from one
// ledger only. It belongs to the owner of AddLog and Settle, and comes before them. The error is the reader's, or says what
// is wrong with the part; the ledger is of no use then.
//
// What the parts say of a message is held against each other as a single ledger would have done it: who applied something
// else than a sent reply told, or than another device applied, is named.
func (l *Ledger) Import(r io.Reader) error {
	dec := gob.NewDecoder(bufio.NewReaderSize(r, 64<<10))
	var head partHead
	if err := dec.Decode(&head); err != nil {
		return fmt.Errorf("a part of the ledger: %w", err)
	}
	if head.Format != partFormat || head.Key != l.key || head.Convs != len(l.convs) {
		return fmt.Errorf("a part of the ledger is not of this run: format %d, %d conversations, want format %d, %d conversations and the same key",
			head.Format, head.Convs, partFormat, len(l.convs))
	}
	for range head.Parts {
		var p partConv // a fresh one each time: gob leaves zero fields as they were
		if err := dec.Decode(&p); err != nil {
			return fmt.Errorf("a part of the ledger: %w", err)
		}
		if err := l.merge(p); err != nil {
			return fmt.Errorf("a part of the ledger: %w", err)
		}
	}
	var t partTail
	if err := dec.Decode(&t); err != nil {
		return fmt.Errorf("a part of the ledger: %w", err)
	}
	l.addTail(t)
	return nil
}

func (l *Ledger) addTail(t partTail) {
	for n, a := range map[*atomic.Int64]int64{&l.repeats: t.Repeats, &l.backfill: t.Backfill, &l.folded: t.Folded, &l.fetched: t.Fetched} {
		n.Add(a)
	}
	for _, plan := range t.Unknown {
		l.unknown.add(plan)
	}
	l.unknown.mu.Lock()
	l.unknown.over += t.UnknownOver
	l.unknown.mu.Unlock()
	r := &l.report
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unnamed += t.Unnamed
	for k, n := range t.Counts {
		r.counts[k] += n
	}
	for _, c := range t.Culprits {
		if k := slices.Index(kindNames[:], c.Kind); k >= 0 {
			r.name(kind(k), c)
		}
	}
}

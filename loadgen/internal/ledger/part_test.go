package ledger

import (
	"bytes"
	"encoding/gob"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"imbench/loadgen/internal/population"
	"imbench/loadgen/internal/sample"
	"imbench/reports/rundir"
)

// split feeds a stream to as many ledgers as there are workers, each with the devices that fall to it, and brings their
// parts together in a new one.
func (s *stream) split(rng *rand.Rand, workers int, cfg Config) (*Ledger, error) {
	cfg.Key = 99
	own := make([]*population.Population, workers)
	ledgers := make([]*Ledger, workers)
	for w := range workers {
		p := *s.pop
		p.Devices = slices.Clone(p.Devices)
		own[w] = &p
	}
	of := make([]int, len(s.pop.Devices))
	for d := range of {
		of[d] = rng.IntN(workers)
		for w := range workers {
			own[w].Devices[d].Connected = s.pop.Devices[d].Connected && w == of[d]
		}
	}
	for w := range workers {
		ledgers[w] = New(own[w], cfg)
	}
	for _, o := range s.ops {
		if o.send != nil {
			ledgers[of[o.send.Device]].Send(*o.send)
		} else {
			ledgers[of[o.del.Device]].Deliver(*o.del)
		}
	}
	all := New(s.pop, cfg)
	for _, l := range ledgers {
		var b bytes.Buffer
		if err := l.Export(&b); err != nil {
			return nil, err
		}
		if err := all.Import(&b); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// comparable leaves out of a result what says how it was come by.
func comparable(l rundir.Ledger) string {
	l.BytesUsed, l.Unverified = 0, 0
	var named []string
	for _, c := range l.Culprits {
		named = append(named, fmt.Sprint(c.Kind, c.Device, c.Conv, c.Seq))
	}
	slices.Sort(named)
	l.Culprits = nil
	return fmt.Sprintf("%+v %v", l, named)
}

// An honest run that several workers drove gives no complaint, folded or not, exported or not, and the counts of one.
func TestHonestPartsAreAsOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := newRand(rapid.Uint64().Draw(t, "seed"))
		pop := world(rng, rapid.IntRange(3, 20).Draw(t, "users"), rapid.IntRange(1, 12).Draw(t, "convs"))
		s := honest(rng, pop, rapid.IntRange(0, 400).Draw(t, "messages"))
		exported, full := rapid.Bool().Draw(t, "exported"), rapid.Bool().Draw(t, "full")
		want, err := s.settle(Config{}, full, exported)
		if err != nil {
			t.Fatal(err)
		}
		l, err := s.split(rng, rapid.IntRange(1, 4).Draw(t, "workers"), Config{MaxEntries: rapid.Int64Range(1, 500).Draw(t, "entries")})
		if err != nil {
			t.Fatal(err)
		}
		if exported {
			if err := s.export(l); err != nil {
				t.Fatal(err)
			}
		}
		if got := l.Settle(full, exported); got.Broken() || comparable(got) != comparable(want) {
			t.Fatalf("got  %s\nwant %s", comparable(got), comparable(want))
		}
	})
}

// A fault is found, counted and named by the parts as by a single ledger, whoever saw what.
func TestFaultsInPartsAreAsInOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := newRand(rapid.Uint64().Draw(t, "seed"))
		s := honest(rng, world(rng, 12, 8), 200)
		pairs := map[[2]int32]bool{}
		for range rapid.IntRange(1, 6).Draw(t, "faults") {
			f := selfTest[rng.IntN(len(selfTest))]
			for {
				i := rng.IntN(len(s.ops))
				if d := s.ops[i].del; d != nil && pairs[[2]int32{d.Device, d.Conv}] {
					continue
				}
				if p, ok := f.plant(rng, s, i); ok {
					pairs[[2]int32{p.device, p.conv}] = true
					break
				}
			}
		}
		exported := rapid.Bool().Draw(t, "exported")
		want, err := s.settle(Config{}, true, exported)
		if err != nil {
			t.Fatal(err)
		}
		l, err := s.split(rng, rapid.IntRange(1, 4).Draw(t, "workers"), Config{})
		if err != nil {
			t.Fatal(err)
		}
		if exported {
			if err := s.export(l); err != nil {
				t.Fatal(err)
			}
		}
		if got := l.Settle(true, exported); comparable(got) != comparable(want) {
			t.Fatalf("got  %s\nwant %s", comparable(got), comparable(want))
		}
	})
}

// Two workers that folded what they were told, and were told different things, do not hide it from each other.
func TestFoldedPartsThatDiffer(t *testing.T) {
	all := New(tiny(), Config{Key: 7})
	for d := range int32(2) {
		own := tiny()
		own.Devices[1-d].Connected = false
		l := New(own, Config{Key: 7, MaxEntries: 1})
		for seq := int64(3); seq < 20; seq++ {
			mid := fmt.Sprint("m", seq)
			if seq == 5 && d == 1 {
				mid = "another"
			}
			l.Deliver(sample.Delivery{Device: d, Seq: seq, MID: mid, Kind: "msg", BodyHash: uint64(seq), Plan: seq})
		}
		var b bytes.Buffer
		if err := l.Export(&b); err != nil {
			t.Fatal(err)
		}
		if err := all.Import(&b); err != nil {
			t.Fatal(err)
		}
	}
	if got := all.Settle(true, false); got.Mismatched == 0 {
		t.Errorf("%+v", got.LedgerSummary)
	}
}

// What no ledger of the run exported is refused with a sentence.
func TestForeignPartIsRefused(t *testing.T) {
	of := func(key uint64) []byte {
		l := New(tiny(), Config{Key: key})
		deliver(l, 0, 3)
		var b bytes.Buffer
		if err := l.Export(&b); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	made := func(p partConv) io.Reader {
		var b bytes.Buffer
		enc := gob.NewEncoder(&b)
		if err := enc.Encode(partHead{partFormat, 1, 2, 1}); err != nil {
			t.Fatal(err)
		}
		if err := enc.Encode(p); err != nil {
			t.Fatal(err)
		}
		return &b
	}
	good := of(1)
	for name, r := range map[string]io.Reader{
		"another key": bytes.NewReader(of(2)), "cut off": bytes.NewReader(good[:len(good)-3]), "empty": strings.NewReader(""), "text": strings.NewReader("hello"),
		"no such conversation": made(partConv{Conv: 9, First: 3}), "no such device": made(partConv{First: 3, Pairs: []partPair{{Device: 2, Last: 3}}}),
		"a log from before": made(partConv{First: 1}), "no such state": made(partConv{First: 3, Entries: []partEntry{{State: 9}}}),
	} {
		if err := New(tiny(), Config{Key: 1}).Import(r); err == nil || !strings.HasPrefix(err.Error(), "a part of the ledger") {
			t.Errorf("%s: %v", name, err)
		}
	}
	l := New(tiny(), Config{Key: 1})
	if err := l.Import(bytes.NewReader(good)); err != nil {
		t.Error(err)
	}
	if err := l.Import(bytes.NewReader(good)); err == nil {
		t.Error("the same part was taken twice")
	}
}

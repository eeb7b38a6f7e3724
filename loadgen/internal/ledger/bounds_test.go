package ledger

import (
	"sync"
	"testing"

	"imbench/loadgen/internal/sample"
)

// With room for a single entry everything is folded at once; the digests still find changed content.
func TestFoldedContentIsStillProven(t *testing.T) {
	rng := newRand(5)
	s := honest(rng, world(rng, 12, 6), 600)
	for i, o := range s.ops {
		if o.del != nil && i > len(s.ops)/2 {
			changed := *o.del
			changed.BodyHash++
			s.ops[i].del = &changed
			got, err := s.settle(Config{MaxEntries: 1}, true, true)
			if err != nil {
				t.Fatal(err)
			}
			if got.Mismatched == 0 || got.Unverified == 0 {
				t.Fatalf("not found: %+v", got.LedgerSummary)
			}
			return
		}
	}
	t.Fatal("no delivery in the stream")
}

// Devices report at the same time; the race detector looks on.
func TestConcurrentReports(t *testing.T) {
	rng := newRand(3)
	s := honest(rng, world(rng, 30, 80), 3000)
	l := New(s.pop, Config{MaxEntries: 1000})
	queues := map[int32][]op{}
	for _, o := range s.ops {
		if o.send != nil {
			queues[-1] = append(queues[-1], o)
		} else {
			queues[o.del.Device] = append(queues[o.del.Device], o)
		}
	}
	var wg sync.WaitGroup
	for _, q := range queues {
		wg.Go(func() { (&stream{ops: q}).feed(l) })
	}
	wg.Go(func() {
		for range 50 {
			l.Summary()
		}
	})
	wg.Wait()
	if err := s.export(l); err != nil {
		t.Fatal(err)
	}
	if got := l.Settle(true, true); got.Broken() || got.Delivered != s.expected() {
		t.Errorf("%+v", got.LedgerSummary)
	}
}

func TestCulpritsAreBounded(t *testing.T) {
	l := New(tiny(), Config{})
	deliver(l, 0, 3)
	for range 1000 {
		deliver(l, 0, 3)
		l.Deliver(sample.Delivery{Device: 0, Conv: 1, Seq: 3})
	}
	got := l.Settle(true, false)
	if got.Duplicated != 1000 || got.Leaked != 1000 || len(got.Culprits) != maxCulprits {
		t.Errorf("duplicated %d, leaked %d, named %d", got.Duplicated, got.Leaked, len(got.Culprits))
	}
	if got.Counts["duplicated"] != 1000 {
		t.Errorf("counts %v", got.Counts)
	}
}

func TestGapsAndUnknownsAreBounded(t *testing.T) {
	l := New(tiny(), Config{})
	for i := range int64(maxGaps + 100) {
		deliver(l, 0, 3+2*i)
	}
	if n := l.gaps.Load(); n != maxGaps {
		t.Errorf("%d gaps are kept", n)
	}
	l.unknown.room = 100
	for i := range int64(105) {
		l.unknown.add(i)
	}
	if n := len(l.Unknown()); n != 100 {
		t.Errorf("%d unknown outcomes are kept", n)
	}
	if n := l.Summary().Unknown; n != 105 {
		t.Errorf("%d unknown outcomes are counted", n)
	}
	if got := l.Settle(true, true); got.Unresolved != 5 {
		t.Errorf("%d are unresolved, 5 were not kept", got.Unresolved)
	}
}

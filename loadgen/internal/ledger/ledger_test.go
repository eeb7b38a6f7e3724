package ledger

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"imbench/reports/rundir"
)

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

// An honest run gives no complaint, in whatever order replies and pushes come, folded or not, exported or not.
func TestHonestStreamHasNoComplaint(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := newRand(rapid.Uint64().Draw(t, "seed"))
		pop := world(rng, rapid.IntRange(3, 20).Draw(t, "users"), rapid.IntRange(1, 12).Draw(t, "convs"))
		s := honest(rng, pop, rapid.IntRange(0, 400).Draw(t, "messages"))
		exported, full := rapid.Bool().Draw(t, "exported"), rapid.Bool().Draw(t, "full")
		got, err := s.settle(Config{MaxEntries: rapid.Int64Range(1, 500).Draw(t, "entries")}, full, exported)
		if err != nil {
			t.Fatal(err)
		}
		if got.Broken() || got.Undelivered != 0 || len(got.Culprits) != 0 {
			t.Fatalf("complaint about an honest run: %+v", got)
		}
		if got.Expected != s.expected() || got.Delivered != got.Expected || got.Messages != int64(len(s.log)) {
			t.Fatalf("expected %d, delivered %d, messages %d; want %d, the same, %d",
				got.Expected, got.Delivered, got.Messages, s.expected(), len(s.log))
		}
	})
}

// naive judges one pair by the plain definition: each seq of the log once, in order.
func naive(applied []int64, base, head int64) (lost, dup, reordered int64) {
	seen := map[int64]bool{}
	top := base
	for _, s := range applied {
		switch {
		case seen[s]:
			dup++
		case s < top:
			reordered++
		}
		seen[s] = true
		top = max(top, s)
	}
	for s := base + 1; s <= head; s++ {
		if !seen[s] {
			lost++
		}
	}
	return lost, dup, reordered
}

// Whatever a device applies, the counts are those of the plain definition.
func TestCountsAgreeWithTheDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const base, head = 2, 14
		l := New(tiny(), Config{MaxEntries: rapid.Int64Range(1, 40).Draw(t, "entries")})
		var want rundir.LedgerSummary
		for d := range int32(2) {
			applied := rapid.SliceOfN(rapid.Int64Range(base+1, head), 0, 30).Draw(t, "applied")
			lost, dup, re := naive(applied, base, head)
			want.Lost, want.Duplicated, want.Reordered = want.Lost+lost, want.Duplicated+dup, want.Reordered+re
			for _, seq := range applied {
				deliver(l, d, seq)
			}
		}
		for seq := int64(base + 1); seq <= head; seq++ {
			if err := l.AddLog(0, seq, fmt.Sprint("m", seq), uint64(seq), seq); err != nil {
				t.Fatal(err)
			}
		}
		got := l.Settle(true, true)
		if got.Lost != want.Lost || got.Duplicated != want.Duplicated || got.Reordered != want.Reordered || got.Mismatched != 0 {
			t.Fatalf("got %+v\nwant %+v", got.LedgerSummary, want)
		}
	})
}

// A member who may see only a part is expected to see only that, and nothing else.
func TestMembershipBySeq(t *testing.T) {
	sees := func(_, user int32, seq int64) bool { return user != 1 || seq != 4 }
	l := New(tiny(), Config{Member: sees})
	for seq := int64(3); seq <= 5; seq++ {
		deliver(l, 0, seq)
		if seq != 4 {
			deliver(l, 1, seq)
		}
	}
	deliver(l, 1, 4)
	logged(t, l, 3, 4, 5)
	got := l.Settle(true, true)
	if got.Expected != 5 || got.Delivered != 5 || got.Leaked != 1 || got.Lost != 0 {
		t.Errorf("%+v", got.LedgerSummary)
	}
}

// Of a device that does not read, no more is expected than it applied; within that, nothing may be missing.
func TestUnreadIsNotLost(t *testing.T) {
	l := New(tiny(), Config{Reads: func(device, _ int32) bool { return device != 1 }})
	for seq := int64(3); seq <= 8; seq++ {
		if seq != 8 {
			deliver(l, 0, seq)
		}
		if seq <= 6 && seq != 4 {
			deliver(l, 1, seq)
		}
	}
	logged(t, l, 3, 4, 5, 6, 7, 8)
	got := l.Settle(true, true)
	if got.Expected != 10 || got.Delivered != 8 || got.Lost != 2 {
		t.Errorf("%+v", got.LedgerSummary)
	}
	for i, want := range []rundir.Culprit{{Device: "b1", Seq: 4}, {Device: "a1", Seq: 8}} {
		if c := got.Culprits; len(c) != 2 || c[i].Device != want.Device || c[i].Seq != want.Seq {
			t.Errorf("named %+v", c)
			break
		}
	}
}

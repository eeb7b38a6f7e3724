package ledger

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestExportOutOfOrderIsRefused(t *testing.T) {
	l := New(tiny(), Config{})
	logged(t, l, 3)
	if err := l.AddLog(0, 3, "m3", 3, 3); err == nil {
		t.Error("the same seq again was taken")
	}
	if err := l.AddLog(0, 1<<40, "m", 3, 3); err == nil {
		t.Error("an impossible hole was taken")
	}
	if err := l.AddLog(1, 3, "m", 3, 4); err != nil {
		t.Error(err)
	}
	if err := l.AddLog(0, 4, "m4", 4, 5); err == nil {
		t.Error("a conversation that came twice was taken")
	}
}

// An export that breaks off anywhere is as good as none: the rest is taken from what devices told.
func TestBrokenExport(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := newRand(rapid.Uint64().Draw(t, "seed"))
		s := honest(rng, world(rng, 10, 5), 200)
		l := New(s.pop, Config{MaxEntries: rapid.Int64Range(1, 400).Draw(t, "entries")})
		s.feed(l)
		all := s.log
		s.log = nil
		stop := rapid.IntRange(0, len(all)).Draw(t, "rows")
		rows := slices.Clone(all)
		slices.SortStableFunc(rows, func(a, b message) int { return int(a.conv - b.conv) })
		s.log = rows[:stop]
		if err := s.export(l); err != nil {
			t.Fatal(err)
		}
		if got := l.Settle(true, false); got.Broken() || got.Expected != got.Delivered {
			t.Fatalf("%+v", got)
		}
	})
}

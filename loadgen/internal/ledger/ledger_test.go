package ledger

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"imbench/loadgen/internal/population"
	"imbench/loadgen/internal/sample"
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

// tiny is two users with one device each and a direct conversation between them: base 2, first message seq 3.
func tiny() *population.Population {
	return &population.Population{
		Users:   []population.User{{ID: "a", Devices: []int32{0}}, {ID: "b", Devices: []int32{1}}, {ID: "c", Devices: []int32{2}}},
		Devices: []population.Device{{ID: "a1", User: 0, Connected: true}, {ID: "b1", User: 1, Connected: true}, {ID: "c1", User: 2}},
		Convs:   []population.Conv{{ID: "ab", Members: []int32{0, 1}}, {ID: "bc", Members: []int32{1, 2}}},
	}
}

func deliver(l *Ledger, device int32, seq int64) {
	l.Deliver(sample.Delivery{Device: device, Seq: seq, MID: fmt.Sprint("m", seq), Kind: "msg", BodyHash: uint64(seq), Plan: seq})
}

func answered(l *Ledger, seq int64) {
	l.Send(sample.Send{Plan: seq, Seq: seq, MID: fmt.Sprint("m", seq), BodyHash: uint64(seq), Start: 1, Done: 2})
}

func logged(t *testing.T, l *Ledger, seqs ...int64) {
	t.Helper()
	for _, seq := range seqs {
		if err := l.AddLog(0, seq, fmt.Sprint("m", seq), uint64(seq), seq); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCases(t *testing.T) {
	tests := []struct {
		name           string
		run            func(t *testing.T, l *Ledger)
		full, exported bool
		want           rundir.LedgerSummary
	}{
		{"unknown outcome, committed", func(t *testing.T, l *Ledger) {
			l.Send(sample.Send{Plan: 3, Code: "timeout", Start: 1, Done: 2})
			deliver(l, 0, 3)
			deliver(l, 1, 3)
			logged(t, l, 3)
		}, true, true, rundir.LedgerSummary{Expected: 2, Delivered: 2, Messages: 1, Unknown: 1, Committed: 1}},
		{"unknown outcome, not committed", func(_ *testing.T, l *Ledger) {
			l.Send(sample.Send{Plan: 3, Code: "UNAVAILABLE", Start: 1, Done: 2})
			l.Send(sample.Send{Plan: 4, Censored: true}) // never left the device
		}, true, true, rundir.LedgerSummary{Unknown: 1}},
		{"unknown outcome without an export stays unresolved", func(_ *testing.T, l *Ledger) {
			l.Send(sample.Send{Plan: 3, Code: "disconnected", Start: 1, Done: 2})
		}, true, false, rundir.LedgerSummary{Unknown: 1, Unresolved: 1}},
		{"committed, and seen by nobody", func(t *testing.T, l *Ledger) {
			l.Send(sample.Send{Plan: 3, Code: "timeout", Start: 1, Done: 2})
			logged(t, l, 3)
		}, true, true, rundir.LedgerSummary{Expected: 2, Lost: 2, Messages: 1, Unknown: 1, Committed: 1}},
		{"a tail that one device lacks", func(t *testing.T, l *Ledger) {
			answered(l, 3)
			deliver(l, 0, 3)
			logged(t, l, 3)
		}, true, true, rundir.LedgerSummary{Expected: 2, Delivered: 1, Lost: 1, Messages: 1}},
		{"the same, interrupted", func(t *testing.T, l *Ledger) {
			answered(l, 3)
			deliver(l, 0, 3)
			logged(t, l, 3)
		}, false, true, rundir.LedgerSummary{Expected: 2, Delivered: 1, Undelivered: 1, Messages: 1}},
		{"the same by the replies alone", func(_ *testing.T, l *Ledger) {
			answered(l, 3)
			deliver(l, 0, 3)
		}, true, false, rundir.LedgerSummary{Expected: 2, Delivered: 1, Lost: 1, Messages: 1}},
		{"all lack a middle one", func(t *testing.T, l *Ledger) {
			for d := range int32(2) {
				deliver(l, d, 3)
				deliver(l, d, 5)
			}
		}, true, false, rundir.LedgerSummary{Expected: 6, Delivered: 4, Lost: 2, Messages: 3}},
		{"seen again on the wire", func(t *testing.T, l *Ledger) {
			for d := range int32(2) {
				deliver(l, d, 3)
			}
			l.Deliver(sample.Delivery{Device: 1, Seq: 3, WireRepeat: true})
			logged(t, l, 3)
		}, true, true, rundir.LedgerSummary{Expected: 2, Delivered: 2, Messages: 1, WireRepeats: 1}},
		{"applied, but in no log", func(t *testing.T, l *Ledger) {
			for d := range int32(2) {
				deliver(l, d, 3)
				deliver(l, d, 4)
			}
			logged(t, l, 3)
		}, true, true, rundir.LedgerSummary{Expected: 2, Delivered: 4, Messages: 1, Foreign: 2}},
		{"applied, far beyond the log", func(t *testing.T, l *Ledger) {
			deliver(l, 0, 3)
			deliver(l, 1, 3)
			deliver(l, 1, 1<<40)
			logged(t, l, 3)
		}, true, true, rundir.LedgerSummary{Expected: 2, Delivered: 3, Messages: 1, Foreign: 1, Unverified: 1}},
		{"a hole in the log", func(t *testing.T, l *Ledger) {
			for d := range int32(2) {
				deliver(l, d, 3)
				deliver(l, d, 4)
			}
			logged(t, l, 4)
		}, true, true, rundir.LedgerSummary{Expected: 2, Delivered: 4, Messages: 1, Foreign: 2, LogGaps: 1}},
		{"one message twice in the log", func(t *testing.T, l *Ledger) {
			for d := range int32(2) {
				deliver(l, d, 3)
				l.Deliver(sample.Delivery{Device: d, Seq: 4, MID: "m4", BodyHash: 4, Plan: 3})
			}
			logged(t, l, 3)
			if err := l.AddLog(0, 4, "m4", 4, 3); err != nil {
				t.Fatal(err)
			}
		}, true, true, rundir.LedgerSummary{Expected: 4, Delivered: 4, Messages: 2, LoggedTwice: 1}},
		{"the log holds other content than everybody saw", func(t *testing.T, l *Ledger) {
			answered(l, 3)
			deliver(l, 0, 3)
			deliver(l, 1, 3)
			if err := l.AddLog(0, 3, "m3", 99, 3); err != nil {
				t.Fatal(err)
			}
		}, true, true, rundir.LedgerSummary{Expected: 2, Delivered: 2, Messages: 1, Mismatched: 1}},
		{"the first to tell was wrong", func(t *testing.T, l *Ledger) {
			l.Deliver(sample.Delivery{Device: 0, Seq: 3, MID: "m3", BodyHash: 99, Plan: 3})
			deliver(l, 1, 3)
			answered(l, 3)
			logged(t, l, 3)
		}, true, true, rundir.LedgerSummary{Expected: 2, Delivered: 2, Messages: 1, Mismatched: 1}},
		{"the first to tell was wrong, as the log shows", func(t *testing.T, l *Ledger) {
			l.Deliver(sample.Delivery{Device: 0, Seq: 3, MID: "m3", BodyHash: 99, Plan: 3})
			deliver(l, 1, 3)
			logged(t, l, 3)
		}, true, true, rundir.LedgerSummary{Expected: 2, Delivered: 2, Messages: 1, Mismatched: 1}},
		{"two disagree, and nobody knows", func(t *testing.T, l *Ledger) {
			l.Deliver(sample.Delivery{Device: 0, Seq: 3, MID: "m3", BodyHash: 99, Plan: 3})
			deliver(l, 1, 3)
		}, true, false, rundir.LedgerSummary{Expected: 2, Delivered: 2, Messages: 1, Mismatched: 1}},
		{"two sends, one seq", func(_ *testing.T, l *Ledger) {
			answered(l, 3)
			l.Send(sample.Send{Plan: 4, Seq: 3, MID: "m4", BodyHash: 4, Start: 1, Done: 2})
			deliver(l, 0, 3)
			deliver(l, 1, 3)
		}, true, false, rundir.LedgerSummary{Expected: 2, Delivered: 2, Messages: 1, Mismatched: 1}},
		{"a refused send is in no log", func(_ *testing.T, l *Ledger) {
			l.Send(sample.Send{Plan: 3, Code: "NOT_MEMBER", Start: 1, Done: 2})
		}, true, true, rundir.LedgerSummary{}},
		{"from before the run", func(_ *testing.T, l *Ledger) { deliver(l, 0, 1) }, true, true, rundir.LedgerSummary{}},
		{"nobody we know", func(_ *testing.T, l *Ledger) {
			l.Deliver(sample.Delivery{Device: 77, Seq: 3})
			l.Deliver(sample.Delivery{Conv: 77, Seq: 3})
			l.Send(sample.Send{Conv: -1, Start: 1})
			l.Deliver(sample.Delivery{Device: 2, Conv: 1, Seq: 3}) // a member's device that is not online
		}, true, true, rundir.LedgerSummary{Foreign: 4}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := New(tiny(), Config{})
			tt.run(t, l)
			got := l.Settle(tt.full, tt.exported)
			tt.want.Settled, tt.want.Exported = tt.full, tt.exported
			tt.want.Pairs, tt.want.BytesUsed = 3, got.BytesUsed
			if got.LedgerSummary != tt.want {
				t.Errorf("got  %+v\nwant %+v\n%+v", got.LedgerSummary, tt.want, got.Culprits)
			}
			if got.BytesUsed <= 0 {
				t.Error("no memory use is told")
			}
		})
	}
}

// Who was wrong is named at the seq where they were wrong, whether a reply or the export shows it, and nobody else is.
func TestTheWrongOneIsNamed(t *testing.T) {
	wrong := func(l *Ledger, device int32) {
		l.Deliver(sample.Delivery{Device: device, Seq: 3, MID: "m3", BodyHash: 99, Plan: 3})
	}
	tests := []struct {
		name string
		run  func(t *testing.T, l *Ledger)
		want string
	}{
		{"the first, by the reply", func(_ *testing.T, l *Ledger) { wrong(l, 0); deliver(l, 1, 3); answered(l, 3) }, "a1 3"},
		{"the second, by the reply", func(_ *testing.T, l *Ledger) { deliver(l, 0, 3); wrong(l, 1); answered(l, 3) }, "b1 3"},
		{"the first, by the export", func(_ *testing.T, l *Ledger) { wrong(l, 0); deliver(l, 1, 3) }, "a1 3"},
		{"the second, by the export", func(_ *testing.T, l *Ledger) { deliver(l, 0, 3); wrong(l, 1) }, "b1 3"},
		{"the first, who had skipped it, is not", func(_ *testing.T, l *Ledger) { wrong(l, 1); answered(l, 3) }, "b1 3"},
		{"a reply that is folded already", func(_ *testing.T, l *Ledger) {
			l.cfg.MaxEntries = 1
			l.Send(sample.Send{Plan: 3, Seq: 3, MID: "m3", BodyHash: 99, Start: 1, Done: 2})
			answered(l, 4)
			deliver(l, 0, 3)
			deliver(l, 1, 3)
		}, " 3"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := New(tiny(), Config{})
			tt.run(t, l)
			for d := range int32(2) {
				deliver(l, d, 4)
			}
			logged(t, l, 3, 4)
			var named []string
			for _, c := range l.Settle(true, true).Culprits {
				if c.Kind == "mismatched" {
					named = append(named, fmt.Sprint(c.Device, " ", c.Seq))
				}
			}
			if len(named) != 1 || named[0] != tt.want {
				t.Errorf("named %q, want %q", named, tt.want)
			}
		})
	}
}

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

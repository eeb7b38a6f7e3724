package ledger

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"imbench/loadgen/internal/population"
	"imbench/loadgen/internal/sample"
	"imbench/reports/rundir"
)

// there is tiny, brought: its conversation stood at 100 before the run.
func there() *population.Population {
	p := tiny()
	p.Brought = true
	for i := range p.Convs {
		p.Convs[i].Head = 100
	}
	return p
}

// others is an event of someone else that a device applies.
func others(l *Ledger, device int32, seq int64) {
	l.Deliver(sample.Delivery{Device: device, Seq: seq, MID: fmt.Sprint("x", seq), Kind: "msg", BodyHash: 7, Plan: -1})
}

func moved(l *Ledger, device int32, seq int64, kind string) {
	l.Deliver(sample.Delivery{Device: device, Seq: seq, Kind: kind, Moved: true, Plan: -1})
}

// Among the messages of others those of the run are proven as ever, from the head on at which the conversation stood.
func TestShared(t *testing.T) {
	both := func(do func(l *Ledger, device int32, seq int64), l *Ledger, seqs ...int64) {
		for _, seq := range seqs {
			do(l, 0, seq)
			do(l, 1, seq)
		}
	}
	for _, c := range []struct {
		name string
		run  func(l *Ledger)
		want rundir.LedgerSummary
		say  string // in the notes or culprits
	}{
		{"all is well", func(l *Ledger) {
			both(others, l, 101)
			both(deliver, l, 102)
			both(others, l, 103)
			both(deliver, l, 104)
			answered(l, 102)
			answered(l, 104)
		}, rundir.LedgerSummary{Expected: 4, Delivered: 4, Messages: 2, Background: 4}, "background: 2 messages of others in the conversations of this run, of which devices applied 4 events"},
		{"what others wrote last has not come to all", func(l *Ledger) {
			both(deliver, l, 101)
			answered(l, 101)
			others(l, 0, 102)
			others(l, 0, 103)
		}, rundir.LedgerSummary{Expected: 2, Delivered: 2, Messages: 1, Background: 2}, ""},
		{"what others wrote was passed over", func(l *Ledger) {
			others(l, 0, 101)
			both(deliver, l, 102)
			answered(l, 102)
		}, rundir.LedgerSummary{Expected: 2, Delivered: 2, Messages: 1, Background: 1}, "1 events of others were passed over"},
		{"a seq of which nobody knows anything", func(l *Ledger) {
			answered(l, 102)
			both(deliver, l, 102)
		}, rundir.LedgerSummary{Expected: 2, Delivered: 2, Messages: 1}, ""},
		{"one is lost in the middle", func(l *Ledger) {
			both(others, l, 101)
			deliver(l, 0, 102)
			both(others, l, 103)
			answered(l, 102)
		}, rundir.LedgerSummary{Expected: 2, Delivered: 1, Messages: 1, Lost: 1, Background: 4}, "{lost b1 b ab 102"},
		{"one is lost at the end", func(l *Ledger) {
			both(others, l, 101)
			deliver(l, 0, 102)
			answered(l, 102)
		}, rundir.LedgerSummary{Expected: 2, Delivered: 1, Messages: 1, Lost: 1, Background: 2}, "{lost b1 b ab 102"},
		{"one that no reply told is lost", func(l *Ledger) {
			deliver(l, 0, 101)
			both(others, l, 102)
		}, rundir.LedgerSummary{Expected: 2, Delivered: 1, Messages: 1, Lost: 1, Background: 2}, "{lost b1 b ab 101"},
		{"twice", func(l *Ledger) {
			both(deliver, l, 101)
			deliver(l, 1, 101)
		}, rundir.LedgerSummary{Expected: 2, Delivered: 2, Messages: 1, Duplicated: 1}, ""},
		{"out of order", func(l *Ledger) {
			both(others, l, 101)
			both(deliver, l, 103, 102)
		}, rundir.LedgerSummary{Expected: 4, Delivered: 4, Messages: 2, Reordered: 2, Background: 2}, ""},
		{"other content", func(l *Ledger) {
			answered(l, 101)
			deliver(l, 0, 101)
			l.Deliver(sample.Delivery{Device: 1, Seq: 101, MID: "m101", Kind: "msg", BodyHash: 9, Plan: 101})
		}, rundir.LedgerSummary{Expected: 2, Delivered: 2, Messages: 1, Mismatched: 1}, ""},
		{"the marker is gone from one, and the reply comes first", func(l *Ledger) {
			answered(l, 101)
			deliver(l, 0, 101)
			others(l, 1, 101)
		}, rundir.LedgerSummary{Expected: 2, Delivered: 1, Messages: 1, Mismatched: 1, Background: 1}, "{mismatched b1 b ab 101"},
		{"the marker is gone from one, and the reply comes last", func(l *Ledger) {
			others(l, 1, 101)
			answered(l, 101)
			deliver(l, 0, 101)
		}, rundir.LedgerSummary{Expected: 2, Delivered: 1, Messages: 1, Mismatched: 1, Background: 1}, "{mismatched b1 b ab 101"},
		{"the same message at two seqs", func(l *Ledger) {
			both(deliver, l, 101)
			l.Send(sample.Send{Plan: 101, Seq: 102, MID: "m102", BodyHash: 102, Start: 1, Done: 2})
			for d := range int32(2) {
				l.Deliver(sample.Delivery{Device: d, Seq: 102, MID: "m102", Kind: "msg", BodyHash: 102, Plan: 101})
			}
		}, rundir.LedgerSummary{Expected: 4, Delivered: 4, Messages: 2, LoggedTwice: 1}, ""},
		{"a stranger", func(l *Ledger) {
			both(deliver, l, 101)
			deliver(l, 2, 101)
		}, rundir.LedgerSummary{Expected: 2, Delivered: 2, Messages: 1, Leaked: 1}, ""},
		{"who left is left out", func(l *Ledger) {
			both(deliver, l, 101)
			moved(l, 1, 102, "leave")
			l.Deliver(sample.Delivery{Device: 0, Seq: 102, Kind: "leave", Plan: -1})
			deliver(l, 0, 103)
			answered(l, 103)
		}, rundir.LedgerSummary{Expected: 2, Delivered: 2, Messages: 2, Background: 2}, "1 pairs of a device and a conversation were left out"},
		{"who was let in is no leak", func(l *Ledger) {
			both(deliver, l, 101)
			moved(l, 2, 102, "join")
			deliver(l, 2, 103)
			both(deliver, l, 103)
		}, rundir.LedgerSummary{Expected: 4, Delivered: 4, Messages: 2, Background: 2}, "1 pairs of a device and a conversation were left out"},
		{"a reply that never came, of what arrived", func(l *Ledger) {
			l.Send(sample.Send{Plan: 101, Code: "timeout", Start: 1, Done: 2})
			both(deliver, l, 101)
		}, rundir.LedgerSummary{Expected: 2, Delivered: 2, Messages: 1, Unknown: 1, Committed: 1}, ""},
	} {
		l := New(there(), Config{Shared: true})
		c.run(l)
		got := l.Settle(true, false)
		c.want.Settled, c.want.Pairs, c.want.BytesUsed = true, got.Pairs, got.BytesUsed
		if fmt.Sprint(got.LedgerSummary) != fmt.Sprint(c.want) {
			t.Errorf("%s: %+v\nwant %+v\n%v", c.name, got.LedgerSummary, c.want, got.Culprits)
		}
		said := strings.Join(got.Notes, "\n")
		for _, x := range got.Culprits {
			said += fmt.Sprintf("\n{%s %s %s %s %d", x.Kind, x.Device, x.User, x.Conv, x.Seq)
		}
		if !strings.Contains(said, c.say) {
			t.Errorf("%s: %q\nwant %q", c.name, said, c.say)
		}
	}
}

// A device that has nothing, and one that stops in the middle, are missed also where no entries are kept any more.
func TestSharedBelowTheFold(t *testing.T) {
	for had, lost := range map[int64]int64{0: 20, 5: 15, 20: 0} {
		l := New(there(), Config{Shared: true, MaxEntries: 4})
		for seq := int64(101); seq <= 120; seq++ {
			deliver(l, 0, seq)
			answered(l, seq)
			if seq-100 <= had {
				deliver(l, 1, seq)
			}
		}
		got := l.Settle(true, false)
		if got.Lost != lost || got.Expected != 40 || got.Delivered != 20+had || got.Mismatched != 0 {
			t.Errorf("had %d: %+v", had, got.LedgerSummary)
		}
	}
}

// However the messages of others lie between, however little is kept, an honest run has no complaint, and a message that is
// taken away from one device is missed.
func TestSharedStream(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := newRand(rapid.Uint64().Draw(t, "seed"))
		l := New(there(), Config{Shared: true, MaxEntries: rapid.Int64Range(1, 60).Draw(t, "entries")})
		n := rapid.IntRange(1, 80).Draw(t, "messages")
		ours := make([]bool, n)
		var mine []int
		for i := range ours {
			if ours[i] = rng.IntN(3) > 0; ours[i] {
				mine = append(mine, i)
			}
		}
		without := -1
		if len(mine) > 0 && rapid.Bool().Draw(t, "one is lost") {
			without = mine[rng.IntN(len(mine))]
		}
		next := [2]int{}
		replies := rng.IntN(2) == 0
		for next[0] < n || next[1] < n {
			d := rng.IntN(2)
			i := next[d]
			if i == n || d == 1 && i == next[0] { // the first has each first: of what nobody had when it was folded nothing is known
				continue
			}
			next[d]++
			seq := int64(101 + i)
			switch {
			case !ours[i]:
				others(l, int32(d), seq)
			case d == 1 && i == without:
			default:
				deliver(l, int32(d), seq)
			}
			if d == 0 && ours[i] && replies {
				answered(l, seq)
			}
		}
		got := l.Settle(true, false)
		missing := int64(0)
		if without >= 0 {
			missing = 1
		}
		if got.Expected != int64(2*len(mine)) || got.Delivered != got.Expected-missing || got.Messages != int64(len(mine)) {
			t.Fatalf("%d of this run's, %d missing: %+v", len(mine), missing, got.LedgerSummary)
		}
		if got.Broken() != (without >= 0) {
			t.Fatalf("one lost: %v, and the ledger says %+v\n%v", without >= 0, got.LedgerSummary, got.Culprits)
		}
	})
}

package ledger

import (
	"fmt"
	"testing"

	"imbench/loadgen/internal/population"
	"imbench/loadgen/internal/sample"
	"imbench/reports/rundir"
)

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

// fetched has a device ask for a seq and get a content that belongs to another, or to the same.
func fetched(l *Ledger, device int32, seq int64, body uint64) {
	l.Deliver(sample.Delivery{Device: device, Seq: seq, MID: fmt.Sprint("m", seq), Kind: "msg", BodyHash: body, Plan: seq, Path: sample.Fetched})
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
		{"fetched as it was told", func(t *testing.T, l *Ledger) {
			answered(l, 3)
			deliver(l, 0, 3)
			deliver(l, 1, 3)
			fetched(l, 0, 3, 3)
			fetched(l, 1, 1, 77) // from before the run: nobody has told of it
			logged(t, l, 3)
		}, true, true, rundir.LedgerSummary{Expected: 2, Delivered: 2, Messages: 1}},
		{"fetched with another content", func(t *testing.T, l *Ledger) {
			answered(l, 3)
			deliver(l, 0, 3)
			deliver(l, 1, 3)
			fetched(l, 1, 3, 99)
			logged(t, l, 3)
		}, true, true, rundir.LedgerSummary{Expected: 2, Delivered: 2, Messages: 1, Mismatched: 1}},
		{"fetched as it is, where another device was told something else", func(t *testing.T, l *Ledger) {
			l.Deliver(sample.Delivery{Device: 0, Seq: 3, MID: "m3", BodyHash: 99, Plan: 3})
			deliver(l, 1, 3)
			fetched(l, 1, 3, 3)
			answered(l, 3)
			logged(t, l, 3)
		}, true, true, rundir.LedgerSummary{Expected: 2, Delivered: 2, Messages: 1, Mismatched: 1}},
		{"fetched with another content before the reply", func(t *testing.T, l *Ledger) {
			deliver(l, 0, 3)
			deliver(l, 1, 3)
			fetched(l, 1, 3, 99)
			answered(l, 3)
			logged(t, l, 3)
		}, true, true, rundir.LedgerSummary{Expected: 2, Delivered: 2, Messages: 1, Mismatched: 1}},
		{"fetched as another kind", func(t *testing.T, l *Ledger) {
			deliver(l, 0, 3)
			deliver(l, 1, 3)
			l.Deliver(sample.Delivery{Device: 1, Seq: 3, Kind: "join", Plan: -1, Path: sample.Fetched})
			logged(t, l, 3)
		}, true, true, rundir.LedgerSummary{Expected: 2, Delivered: 2, Messages: 1, Mismatched: 1}},
		{"fetched before anybody told of it", func(t *testing.T, l *Ledger) {
			fetched(l, 1, 3, 99)
			answered(l, 3)
			deliver(l, 0, 3)
			deliver(l, 1, 3)
			logged(t, l, 3)
		}, true, true, rundir.LedgerSummary{Expected: 2, Delivered: 2, Messages: 1}},
		{"fetched by one who is no member", func(_ *testing.T, l *Ledger) { fetched(l, 2, 3, 3) }, true, true, rundir.LedgerSummary{Leaked: 1}},
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

package ledger

import (
	"math/rand/v2"
	"slices"
	"testing"

	"imbench/loadgen/internal/sample"
	"imbench/reports/rundir"
)

// planted is one fault and how it must be named.
type planted struct {
	device, conv int32
	seq          int64
}

// selfTest are the faults that the ledger must find, each planted at about one delivery in ten thousand.
var selfTest = []struct {
	name  string
	kind  string
	plant func(rng *rand.Rand, s *stream, i int) (planted, bool)
	count func(rundir.Ledger) int64
}{
	{"lose", "lost", func(_ *rand.Rand, s *stream, i int) (planted, bool) {
		d := s.ops[i].del
		if d == nil {
			return planted{}, false
		}
		s.ops = slices.Delete(s.ops, i, i+1)
		return planted{d.Device, d.Conv, d.Seq}, true
	}, func(l rundir.Ledger) int64 { return l.Lost }},
	{"repeat", "duplicated", func(rng *rand.Rand, s *stream, i int) (planted, bool) {
		d := s.ops[i].del
		if d == nil {
			return planted{}, false
		}
		s.ops = slices.Insert(s.ops, i+1+rng.IntN(len(s.ops)-i), op{del: d})
		return planted{d.Device, d.Conv, d.Seq}, true
	}, func(l rundir.Ledger) int64 { return l.Duplicated }},
	{"reorder", "reordered", func(_ *rand.Rand, s *stream, i int) (planted, bool) {
		d := s.ops[i].del
		if d == nil {
			return planted{}, false
		}
		for j := i + 1; j < len(s.ops); j++ {
			if e := s.ops[j].del; e != nil && e.Device == d.Device && e.Conv == d.Conv {
				s.ops[i], s.ops[j] = s.ops[j], s.ops[i]
				return planted{d.Device, d.Conv, d.Seq}, true
			}
		}
		return planted{}, false
	}, func(l rundir.Ledger) int64 { return l.Reordered }},
	{"leak", "leaked", func(rng *rand.Rand, s *stream, i int) (planted, bool) {
		d := s.ops[i].del
		stranger := int32(rng.IntN(len(s.pop.Devices)))
		if d == nil || slices.Contains(s.pop.Convs[d.Conv].Members, s.pop.Devices[stranger].User) {
			return planted{}, false
		}
		seen := *d
		seen.Device, seen.Own = stranger, false
		s.ops = slices.Insert(s.ops, i, op{del: &seen})
		return planted{stranger, d.Conv, d.Seq}, true
	}, func(l rundir.Ledger) int64 { return l.Leaked }},
	{"change content", "mismatched", func(_ *rand.Rand, s *stream, i int) (planted, bool) {
		d := s.ops[i].del
		if d == nil {
			return planted{}, false
		}
		changed := *d
		changed.BodyHash ^= 1 << 40
		s.ops[i].del = &changed
		return planted{d.Device, d.Conv, d.Seq}, true
	}, func(l rundir.Ledger) int64 { return l.Mismatched }},
	{"another mid", "mismatched", func(_ *rand.Rand, s *stream, i int) (planted, bool) {
		d := s.ops[i].del
		if d == nil {
			return planted{}, false
		}
		changed := *d
		changed.MID = "another"
		s.ops[i].del = &changed
		return planted{d.Device, d.Conv, d.Seq}, true
	}, func(l rundir.Ledger) int64 { return l.Mismatched }},
	{"sent without a row", "unlogged", func(_ *rand.Rand, s *stream, i int) (planted, bool) {
		x := s.ops[i].send
		if x == nil {
			return planted{}, false
		}
		s.log = slices.DeleteFunc(s.log, func(m message) bool { return m.plan == x.Plan })
		return planted{x.Device, x.Conv, x.Seq}, true
	}, func(l rundir.Ledger) int64 { return l.Unlogged }},
}

// The ledger's self-test: each fault at one in ten thousand is found, counted exactly and named.
func TestPlantedFaultsAreFoundAndNamed(t *testing.T) {
	for _, f := range selfTest {
		t.Run(f.name, func(t *testing.T) {
			rng := newRand(11)
			s := honest(rng, world(rng, 40, 60), 3500)
			var faults []planted
			pairs := map[[2]int32]bool{}
			for n := 0; n < len(s.ops)/10_000+1; {
				i := rng.IntN(len(s.ops))
				if d := s.ops[i].del; d != nil && pairs[[2]int32{d.Device, d.Conv}] {
					continue // two faults in one pair may look like one of another kind
				}
				if p, ok := f.plant(rng, s, i); ok {
					faults = append(faults, p)
					pairs[[2]int32{p.device, p.conv}] = true
					n++
				}
			}
			got, err := s.settle(Config{}, true, true)
			if err != nil {
				t.Fatal(err)
			}
			if n := f.count(got); n != int64(len(faults)) || !got.Broken() {
				t.Fatalf("%d found, %d planted: %+v", n, len(faults), got.LedgerSummary)
			}
			for _, p := range faults {
				d := s.pop.Devices[p.device]
				if !slices.ContainsFunc(got.Culprits, func(c rundir.Culprit) bool {
					return c.Kind == f.kind && c.Device == d.ID && c.User == s.pop.Users[d.User].ID &&
						c.Conv == s.pop.Convs[p.conv].ID && c.Seq == p.seq
				}) {
					t.Errorf("device %s, conversation %s, seq %d is not named: %+v", d.ID, s.pop.Convs[p.conv].ID, p.seq, got.Culprits)
				}
			}
			for kind, n := range got.Counts { // and of nothing else is there a complaint, where the fault has no other face
				if kind != f.kind && f.kind != "unlogged" {
					t.Errorf("%d × %s, planted was %s", n, kind, f.kind)
				}
			}
		})
	}
}

// BenchmarkDeliver is the cost of one delivery at the size of the baseline's groups.
func BenchmarkDeliver(b *testing.B) {
	rng := newRand(1)
	pop := world(rng, 2000, 3000)
	l := New(pop, Config{})
	head := make([]int64, len(pop.Convs))
	devices := make([][]int32, len(pop.Convs))
	for c := range head {
		head[c], devices[c] = int64(len(pop.Convs[c].Members)), online(pop, int32(c))
	}
	b.ReportAllocs()
	b.ResetTimer()
	n := 0
	for n < b.N {
		c := int32(rng.IntN(len(head)))
		head[c]++
		for _, d := range devices[c] {
			l.Deliver(sample.Delivery{Device: d, Conv: c, Seq: head[c], MID: "0190b5c0-0000-7000-8000-000000000000", Kind: "msg",
				BodyHash: uint64(head[c]), Plan: head[c]})
			n++
		}
	}
	b.StopTimer()
	s := l.Summary()
	if s.Delivered > 0 {
		b.ReportMetric(float64(s.BytesUsed)/float64(s.Delivered), "B/delivery")
	}
}

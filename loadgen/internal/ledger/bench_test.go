package ledger

import (
	"fmt"
	"runtime"
	"testing"

	"imbench/loadgen/internal/population"
	"imbench/loadgen/internal/sample"
)

// likeBaseline is a population of the baseline's size: 9 000 users with 14 400 devices, 5 040 of them connected, in 1 500
// groups of 30 and 45 000 direct chats.
func likeBaseline() *population.Population {
	rng := newRand(1)
	p := &population.Population{Namespace: "b"}
	for u := range 9000 {
		user := population.User{ID: fmt.Sprintf("u%d", u)}
		for d := range 1 + min(1, u%5/2) { // three users in five have two
			user.Devices = append(user.Devices, int32(len(p.Devices)))
			p.Devices = append(p.Devices, population.Device{ID: fmt.Sprintf("u%d-d%d", u, d), User: int32(u), Connected: len(p.Devices)%20 < 7})
		}
		p.Users = append(p.Users, user)
	}
	add := func(kind string, n, size int) {
		for i := range n {
			c := population.Conv{ID: fmt.Sprintf("%s%d", kind, i), Kind: kind, Mode: "push"}
			for seen := map[int32]bool{}; len(c.Members) < size; {
				if u := int32(rng.IntN(len(p.Users))); !seen[u] {
					seen[u] = true
					c.Members = append(c.Members, u)
					p.Users[u].Convs = append(p.Users[u].Convs, int32(len(p.Convs)))
				}
			}
			p.Convs = append(p.Convs, c)
		}
	}
	add("group", 1500, 30)
	add("direct", 45_000, 2)
	return p
}

// inUse is the live heap.
func inUse() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// BenchmarkTenMillion proves ten million deliveries of the baseline's population, two messages in five to a group, against
// the replies and an export of the log, and reports the memory that the ledger holds at its fullest and the time of each
// delivery, its part of the comparison included. The aim is under 200 MB.
func BenchmarkTenMillion(b *testing.B) {
	const deliveries = 10_000_000
	pop := likeBaseline()
	devices := make([][]int32, len(pop.Convs))
	for c := range devices {
		devices[c] = online(pop, int32(c))
	}
	type row struct {
		conv int32
		seq  int64
	}
	for range b.N {
		rng := newRand(2)
		before := inUse()
		l := New(pop, Config{})
		head := make([]int64, len(pop.Convs))
		for c := range head {
			head[c] = int64(len(pop.Convs[c].Members))
		}
		mid := func(r row) string { return fmt.Sprintf("0190b5c0-0000-7000-%04d-%012d", r.conv%10_000, r.seq) }
		planOf := func(r row) int64 { return int64(r.conv)<<24 | r.seq }
		for n := 0; n < deliveries; {
			c := int32(1500 + rng.IntN(45_000))
			if rng.IntN(5) < 2 {
				c = int32(rng.IntN(1500))
			}
			if len(devices[c]) == 0 {
				continue
			}
			head[c]++
			r := row{c, head[c]}
			plan := planOf(r)
			id, hash := mid(r), uint64(plan)*7919
			l.Send(sample.Send{Plan: plan, Device: devices[c][0], Conv: c, Intended: 1, Start: 1, Written: 1, Done: 2, Seq: r.seq, MID: id, BodyHash: hash})
			for _, d := range devices[c] {
				l.Deliver(sample.Delivery{Device: d, Conv: c, Seq: r.seq, MID: id, Kind: "msg", BodyHash: hash, Plan: plan, Intended: 1, At: 2})
				n++
			}
		}
		full := inUse() - before
		for c := range head {
			for seq := int64(len(pop.Convs[c].Members)) + 1; seq <= head[c]; seq++ {
				r := row{int32(c), seq}
				if err := l.AddLog(r.conv, seq, mid(r), uint64(planOf(r))*7919, planOf(r)); err != nil {
					b.Fatal(err)
				}
			}
		}
		got := l.Settle(true, true)
		if got.Broken() || got.Delivered < deliveries || got.Delivered != got.Expected {
			b.Fatalf("%+v", got.LedgerSummary)
		}
		runtime.KeepAlive(l)
		b.ReportMetric(full/1e6, "MB")
		b.ReportMetric(float64(got.BytesUsed)/1e6, "MB-told")
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(got.Delivered), "ns/delivery")
	}
}

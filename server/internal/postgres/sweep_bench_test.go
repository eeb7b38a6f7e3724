package postgres

import (
	"fmt"
	"io"
	"testing"
	"time"

	"imbench/server/internal/im"
)

// BenchmarkSweepStore measures the two questions of the repair sweep's level in the store, by devices and by conversations a
// device (groups of 30): what was written lately, which each period asks, and who lags behind a full part of it (1 024
// conversations, 4 096 rows), which is asked only for what a gateway was not told of. Nobody has acknowledged anything.
func BenchmarkSweepStore(b *testing.B) {
	for _, devices := range []int{1000, 5000} {
		for _, convs := range []int{15, 50} {
			b.Run(fmt.Sprintf("devices=%d/conversations=%d", devices, convs), func(b *testing.B) { benchSweep(b, devices, convs) })
		}
	}
}

func benchSweep(b *testing.B, devices, convs int) {
	const size, atOnce, rows = 30, 1024, 4096
	s, ctx := openTest(b, durable), b.Context()
	var list []any
	user := func(i int) string { return fmt.Sprintf("b-u%05d", i%devices) }
	for i := range devices {
		list = append(list, PopulationUser{user(i), []string{user(i) + "-d1"}})
	}
	groups := devices * convs / size
	var sends []im.SendReq
	for g := range groups {
		var members []string
		for i := range size { // each round over the users has another step, so that groups differ
			members = append(members, user((g*size+i)*(1+2*(g*size/devices))+g*size/devices))
		}
		seen := map[string]bool{}
		kept := members[:0]
		for _, u := range members {
			if !seen[u] {
				seen[u] = true
				kept = append(kept, u)
			}
		}
		id := fmt.Sprintf("b-g%05d", g)
		list = append(list, newConv(id, "group", "push", kept))
		if g < atOnce {
			sends = append(sends, im.SendReq{From: im.Principal{User: kept[0], Device: kept[0] + "-d1", Install: 1}, Conv: id, CMID: "k", Body: "x"})
		}
	}
	if _, err := s.CreatePopulation(ctx, PopulationSpec{Namespace: "b", Owner: "bench", Lease: time.Hour, Next: items(io.EOF, list...)}); err != nil {
		b.Fatal(err)
	}
	var claims []im.RouteClaim
	for i := range devices {
		claims = append(claims, im.RouteClaim{User: user(i), Device: user(i) + "-d1", Install: 1, Gateway: "g1", Conn: int64(i + 1)})
	}
	if _, err := s.ClaimRoutes(ctx, claims); err != nil {
		b.Fatal(err)
	}
	began := time.Now()
	for len(sends) > 0 {
		n := min(len(sends), 200)
		if _, err := s.SendBatch(ctx, sends[:n], false); err != nil {
			b.Fatal(err)
		}
		sends = sends[n:]
	}
	if _, err := s.pool.Exec(ctx, `ANALYZE`); err != nil {
		b.Fatal(err)
	}
	var look, ask time.Duration
	found := 0
	for b.Loop() {
		t0 := time.Now()
		written, err := s.Written(ctx, 0, time.Since(began))
		if err != nil {
			b.Fatal(err)
		}
		t1 := time.Now()
		lags, err := s.Lagging(ctx, "g1", written[:min(len(written), atOnce)], rows)
		if err != nil {
			b.Fatal(err)
		}
		look, ask, found = look+t1.Sub(t0), ask+time.Since(t1), len(lags)
	}
	b.ReportMetric(float64(look.Microseconds())/1000/float64(b.N), "ms/look")
	b.ReportMetric(float64(ask.Microseconds())/1000/float64(b.N), "ms/ask")
	b.ReportMetric(float64(found), "rows/ask")
}

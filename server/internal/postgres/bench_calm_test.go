package postgres

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"imbench/server/internal/batch"
	"imbench/server/internal/im"
)

// baselineRate is the baseline's sends a second.
const baselineRate = 1250

// arrivals calls start at the times of a Poisson stream, whatever became of earlier calls, until d has passed; then it
// waits until all that were started are done. It returns the latencies in ms from the intended times, sorted.
func arrivals(b *testing.B, perSecond float64, d time.Duration, start func(r *rand.Rand, done func(error))) []float64 {
	b.Helper()
	r := rand.New(rand.NewPCG(rand.Uint64(), 1))
	var mu sync.Mutex
	var ms []float64
	var failed error
	var open sync.WaitGroup
	timer := time.NewTimer(0)
	defer timer.Stop()
	began := time.Now()
	for next := time.Duration(0); next < d; next += time.Duration(r.ExpFloat64() / perSecond * float64(time.Second)) {
		timer.Reset(time.Until(began.Add(next)))
		<-timer.C
		open.Add(1)
		intended := began.Add(next)
		start(r, func(err error) {
			mu.Lock()
			ms = append(ms, float64(time.Since(intended).Microseconds())/1000)
			failed = errors.Join(failed, err)
			mu.Unlock()
			open.Done()
		})
	}
	open.Wait()
	if failed != nil {
		b.Fatal(failed)
	}
	slices.Sort(ms)
	return ms
}

func percentile(sorted []float64, p float64) float64 {
	return sorted[min(int(p*float64(len(sorted))), len(sorted)-1)]
}

// sends starts a send of the ring.
func (g *sendGateway) sends(pick func(int, *rand.Rand) (im.Principal, string)) func(*rand.Rand, func(error)) {
	return func(r *rand.Rand, done func(error)) {
		from, conv := pick(0, r)
		g.sender.Submit(im.SendReq{From: from, Conv: conv, CMID: benchCMID(r), Body: benchBody}, func(r im.SendResult) { done(r.Err) })
	}
}

// BenchmarkDisturbed measures the latencies of sends at half the baseline's rate, and what disturbs them: another
// transaction that holds the lock of one conversation, to which a hundredth of the sends go (those are not counted), a
// checkpoint, and a vacuum of the written tables at autovacuum's pace. x-quiet is p99 ÷ p99 of the round without.
func BenchmarkDisturbed(b *testing.B) {
	s, ctx := openRing(b), context.Background()
	g := newSendGateway(b, s, true)
	const rate = baselineRate / 2
	span := 3 * turn()
	plain := func() []float64 { return arrivals(b, rate, span, g.sends(spread)) }
	beside := func(sql ...string) []float64 {
		done := make(chan error, 1)
		go func() {
			conn, err := s.pool.Acquire(ctx)
			if err == nil {
				for _, q := range append(sql, "RESET ALL") {
					_, e := conn.Exec(ctx, q)
					err = errors.Join(err, e)
				}
				conn.Release()
			}
			done <- err
		}()
		ms := plain()
		if err := <-done; err != nil {
			b.Fatal(err)
		}
		return ms
	}
	arms := []struct {
		name string
		run  func() []float64
	}{
		{"quiet", plain},
		{"locked", func() []float64 { return besideLocked(b, g, rate, span) }},
		{"checkpoint", func() []float64 { return beside(`SET statement_timeout = 0`, `CHECKPOINT`) }},
		{"vacuum", func() []float64 {
			return beside(`SET statement_timeout = 0`, `SET lock_timeout = 0`, `SET vacuum_cost_delay = '2ms'`, `VACUUM events`, `VACUUM conversations`)
		}},
	}
	for range b.N {
		plain()
		p99 := make(map[string][]float64)
		for range rounds() {
			for _, a := range arms {
				p99[a.name] = append(p99[a.name], percentile(a.run(), 0.99))
			}
		}
		for _, a := range arms {
			b.ReportMetric(median(p99[a.name]), a.name+"-p99-ms")
			if a.name != "quiet" {
				reportRatio(b, a.name+"-x-quiet", p99[a.name], p99["quiet"])
			}
		}
	}
	hideTime(b)
}

// besideLocked holds a conversation's lock as a transaction does that is stuck, while sends go on. Those to it wait in
// the contended lane until the lock is let go.
func besideLocked(b *testing.B, g *sendGateway, rate float64, span time.Duration) []float64 {
	ctx := context.Background()
	stuck, err := g.pool.Begin(ctx)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := stuck.Exec(ctx, `SELECT 1 FROM conversations WHERE conv_id = 'r-hot' FOR UPDATE`); err != nil {
		b.Fatal(err)
	}
	var late sync.WaitGroup
	others := g.sends(spread)
	ms := arrivals(b, rate, span, func(r *rand.Rand, done func(error)) {
		if r.IntN(100) == 0 {
			late.Add(1)
			from, conv := hot(r.IntN(ringHot), r)
			g.sender.Submit(im.SendReq{From: from, Conv: conv, CMID: benchCMID(r), Body: benchBody}, func(im.SendResult) { late.Done() })
		}
		others(r, done)
	})
	if err := stuck.Rollback(ctx); err != nil {
		b.Fatal(err)
	}
	late.Wait()
	return ms
}

// BenchmarkOpenLoop measures what the baseline's operations cost the database at the baseline's rates, where batches are
// small: sends (1 250/s), acknowledgements (2 500/s), the events of fan-out (1 250/s, read five at a time) and syncs of a
// few events (300/s). Of sends, it also gives how many batches had one message, up to 4, up to 16, and more.
func BenchmarkOpenLoop(b *testing.B) {
	s, ctx := openRing(b), context.Background()
	g := newSendGateway(b, s, true)
	acker := batch.NewAcker(s, batch.AckerConfig{})
	b.Cleanup(func() {
		if err := acker.Close(ctx); err != nil {
			b.Error(err)
		}
	})
	slots, seq := make(chan struct{}, 64), int64(1000)
	blocking := func(call func(r *rand.Rand) error) func(*rand.Rand, func(error)) {
		return func(r *rand.Rand, done func(error)) {
			own := rand.New(rand.NewPCG(r.Uint64(), 1))
			slots <- struct{}{}
			go func() {
				err := call(own)
				<-slots
				done(err)
			}()
		}
	}
	for _, c := range []struct {
		name      string
		rate, ops float64 // calls a second, operations a call
		start     func(*rand.Rand, func(error))
	}{
		{"send", baselineRate, 1, g.sends(spread)},
		{"fanout", baselineRate / 5, 5, blocking(func(r *rand.Rand) error {
			ranges := make([]im.SeqRange, 5)
			for i := range ranges {
				ranges[i] = im.SeqRange{Conv: ringPair(r.IntN(ringConvs)), From: 2, To: 2}
			}
			_, err := s.Events(ctx, ranges)
			return err
		})},
		{"sync", 300, 1, blocking(func(r *rand.Rand) error {
			from, conv := spread(0, r)
			_, err := s.Sync(ctx, im.SyncReq{From: from, Conv: conv, After: 1})
			return err
		})},
		{"ack", 2 * baselineRate, 1, func(r *rand.Rand, done func(error)) {
			seq++
			from, conv := spread(0, r)
			acker.Submit(im.AckReq{From: from, Conv: conv, Seq: seq, Epoch: 1}, func(a im.AckResult) { done(a.Err) })
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			for range b.N {
				if c.name == "ack" { // heads that acknowledgements never reach
					if _, err := s.pool.Exec(ctx, `UPDATE conversations SET next_seq = 1000000000000`); err != nil {
						b.Fatal(err)
					}
				}
				arrivals(b, c.rate, turn(), c.start)
				before := g.sender.Stats()
				cpu, wal := serverCPU(b, s), walBytes(b, s)
				ms := arrivals(b, c.rate, 5*turn(), c.start)
				n := float64(len(ms)) * c.ops
				b.ReportMetric(float64((serverCPU(b, s)-cpu).Microseconds())/n, "db-cpu-us/op")
				b.ReportMetric(float64(walBytes(b, s)-wal)/n, "wal-B/op")
				b.ReportMetric(percentile(ms, 0.5), "p50-ms")
				b.ReportMetric(percentile(ms, 0.99), "p99-ms")
				if c.name == "send" {
					reportSizes(b, before.Counters, g.sender.Stats().Counters)
				}
			}
			hideTime(b)
		})
	}
}

// reportSizes gives the part of the batches that had up to 1, 2–4, 5–16 and more messages, and their mean size.
func reportSizes(b *testing.B, from, to batch.Counters) {
	total := float64(to.Batches - from.Batches)
	b.ReportMetric(float64(to.Requests-from.Requests)/total, "msg/batch")
	names := []string{"1", "2-4", "5-16", "17-up"}
	var parts [4]float64
	for i := range to.Sizes {
		k := 3
		if i < len(batch.SizeBuckets) {
			switch size := batch.SizeBuckets[i]; {
			case size <= 1:
				k = 0
			case size <= 4:
				k = 1
			case size <= 16:
				k = 2
			}
		}
		parts[k] += float64(to.Sizes[i] - from.Sizes[i])
	}
	for k, p := range parts {
		b.ReportMetric(p/total, "of-"+names[k])
	}
}

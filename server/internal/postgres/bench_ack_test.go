package postgres

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"imbench/server/internal/im"
)

const singleAckSQL = `
INSERT INTO device_cursors AS d (conv_id, device_id, install_epoch, epoch, delivered_seq) VALUES ($1, $2, 1, 1, $3)
ON CONFLICT (conv_id, device_id) DO UPDATE SET delivered_seq = GREATEST(d.delivered_seq, EXCLUDED.delivered_seq)`

// BenchmarkAck compares acknowledgements written in bulk, on one connection or on two, with an upsert for each at eight
// connections that checks nothing: x-single is how many times as many are written. They are of what the gateway had pushed to
// the device, as almost all are; "checked" are those of which it does not know. An op is an acknowledgement.
func BenchmarkAck(b *testing.B) {
	s := openRing(b)
	if _, err := s.pool.Exec(context.Background(), `UPDATE conversations SET next_seq = 1000000000000`); err != nil {
		b.Fatal(err)
	}
	var seq atomic.Int64
	seq.Store(1000)
	for _, c := range []struct {
		size, writers int
		told          bool
	}{{50, 1, true}, {256, 1, true}, {256, 2, true}, {256, 1, false}} {
		size := c.size
		b.Run(fmt.Sprintf("%dx%d%s", size, c.writers, map[bool]string{false: "-checked"}[c.told]), func(b *testing.B) {
			bulk := closedLoop("bulk", c.writers, func(ctx context.Context, i int, r *rand.Rand) error {
				return ackMany(ctx, s, size, seq.Add(1), c.told, r)
			})
			one := bulk.run
			bulk.run = func(ctx context.Context) (int64, error) {
				n, err := one(ctx)
				return n * int64(size), err
			}
			single := closedLoop("single", 8, func(ctx context.Context, i int, r *rand.Rand) error {
				from, conv := spread(i, r)
				_, err := s.pool.Exec(ctx, singleAckSQL, conv, from.Device, seq.Add(1))
				return err
			})
			for range b.N {
				measure(b, s, single) // connections and plans
				res := interleave(b, s, bulk, single)
				report(b, "", res["bulk"])
				report(b, "single-", res["single"])
				reportRatio(b, "x-single", each(res["bulk"], rate), each(res["single"], rate))
			}
			hideTime(b)
		})
	}
}

// ackMany acknowledges seq in as many conversations, each by one of its members.
func ackMany(ctx context.Context, s *Store, size int, seq int64, told bool, r *rand.Rand) error {
	reqs := make([]im.AckReq, size)
	for i := range reqs {
		from, conv := spread(i, r)
		reqs[i] = im.AckReq{From: from, Conv: conv, Seq: seq, Epoch: 1, Told: told}
	}
	res, err := s.AckBatch(ctx, reqs)
	for i := 0; err == nil && i < len(res); i++ {
		err = res[i].Err
	}
	return err
}

// BenchmarkReadBatch measures what a report of a read position costs: an op is one of 256 that are written at once, and
// that move positions which are there. HOT is the part of the updates that no index learned of.
func BenchmarkReadBatch(b *testing.B) {
	s, ctx := openRing(b), context.Background()
	// A log of 200 messages a conversation, with nothing in it but their numbers: enough for the subtraction.
	if _, err := s.pool.Exec(ctx, `INSERT INTO events (conv_id, seq, kind, sender_user, msg_no)
		SELECT conv_id, n, 'msg', 'nobody', n - 2 FROM conversations, generate_series(3, 202) n WHERE kind = 'direct' AND conv_id < $1`, ringPair(1000)); err != nil {
		b.Fatal(err)
	}
	if _, err := s.pool.Exec(ctx, `UPDATE conversations SET next_seq = 203, msg_count = 200 WHERE conv_id < $1`, ringPair(1000)); err != nil {
		b.Fatal(err)
	}
	const size = 256
	r, seq := rand.New(rand.NewPCG(1, 2)), int64(2)
	report := func() {
		seq++
		reqs := make([]im.ReadReq, size)
		for i := range reqs {
			n := r.IntN(1000)
			reqs[i] = im.ReadReq{From: ringUser(n + r.IntN(2)), Conv: ringPair(n), Seq: min(seq, 202), Epoch: 1}
		}
		res, err := s.ReadBatch(ctx, reqs)
		for i := 0; err == nil && i < len(res); i++ {
			err = res[i].Err
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	const batches = 150 // the log ends after 200
	for range b.N {
		seq = 2
		if _, err := s.pool.Exec(ctx, `UPDATE read_positions SET read_seq = 0`); err != nil {
			b.Fatal(err)
		}
		for range 40 { // by then the positions are there
			report()
		}
		done, hot := cost(b, s), hotShare(b, s, "read_positions")
		for range batches {
			report()
		}
		done("op", batches*size)
		hot()
	}
	hideTime(b)
}

// hotShare measures between two calls which part of a table's updates needed no index entry.
func hotShare(b *testing.B, s *Store, table string) func() {
	b.Helper()
	counts := func() (updates, hot float64) {
		if err := s.pool.QueryRow(context.Background(), `SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relid = $1::text::regclass`,
			table).Scan(&updates, &hot); err != nil {
			b.Fatal(err)
		}
		return updates, hot
	}
	u0, h0 := counts()
	return func() {
		b.Helper()
		if u, h := counts(); u > u0 {
			b.ReportMetric((h-h0)/(u-u0), "HOT")
		}
	}
}

// BenchmarkCursorGrowth makes as many updates of each cursor as the baseline does in an hour (2 500 acknowledgements a
// second on 216 000 cursors: 42 each), and vacuums as often as autovacuum looks, sixty times in all. x-size is the size of
// table and index after it ÷ before.
func BenchmarkCursorGrowth(b *testing.B) {
	s, ctx := openRing(b), context.Background()
	if _, err := s.pool.Exec(ctx, `UPDATE conversations SET next_seq = 1000000000000`); err != nil {
		b.Fatal(err)
	}
	if _, err := s.pool.Exec(ctx, `ALTER TABLE device_cursors SET (autovacuum_enabled = off)`); err != nil {
		b.Fatal(err)
	}
	size := func() (n float64) {
		if err := s.pool.QueryRow(ctx, `SELECT pg_total_relation_size('device_cursors')`).Scan(&n); err != nil {
			b.Fatal(err)
		}
		return n
	}
	updates, seq := 42*2*ringConvs, int64(1000)
	if testing.Short() {
		updates /= 10
	}
	for range b.N {
		before, hot, done, r := size(), hotShare(b, s, "device_cursors"), cost(b, s), rand.New(rand.NewPCG(1, 2))
		for i := range updates / 256 {
			seq++
			if err := ackMany(ctx, s, 256, seq, true, r); err != nil {
				b.Fatal(err)
			}
			if every := max(updates/256/60, 1); i%every == every-1 {
				if _, err := s.pool.Exec(ctx, `VACUUM device_cursors`); err != nil {
					b.Fatal(err)
				}
			}
		}
		done("op", updates)
		hot()
		b.ReportMetric(size()/before, "x-size")
	}
	hideTime(b)
}

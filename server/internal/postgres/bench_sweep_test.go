package postgres

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"imbench/server/internal/im"
)

// naiveSweepSQL is the sweep as the document has it: for each connected device, those of its conversations whose cursor
// lags behind the head. It is one statement for all devices of a gateway, and the planner may read whole tables.
const naiveSweepSQL = `
SELECT r.device_id, u.conv_id, coalesce(d.delivered_seq, 0), c.next_seq - 1, c.delivery_mode
FROM routes r
JOIN user_conversations u USING (user_id)
JOIN membership_periods m ON m.conv_id = u.conv_id AND m.user_id = u.user_id AND m.to_seq IS NULL
JOIN conversations c ON c.conv_id = u.conv_id
LEFT JOIN device_cursors d ON d.conv_id = u.conv_id AND d.device_id = r.device_id AND d.install_epoch = r.install_epoch AND d.epoch = c.epoch
WHERE r.gateway_id = $1 AND coalesce(d.delivered_seq, 0) < c.next_seq - 1`

// sweepPopulation is the baseline's, with half of its 5 040 connected devices on one of two gateways, after 2 500
// messages, those of two seconds, that one device of a hundred has not got. began is the time before the first of them.
func sweepPopulation(b *testing.B) (s *Store, began time.Time) {
	s, ctx, r := openBench(b), context.Background(), rand.New(rand.NewPCG(1, 2))
	if err := s.pool.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&began); err != nil { // after the population's joins
		b.Fatal(err)
	}
	var claims []im.RouteClaim
	for i := range 2 * 2520 {
		u := fmt.Sprintf("b-u%05d", i)
		claims = append(claims, im.RouteClaim{User: u, Device: u + "-d1", Install: 1, Gateway: fmt.Sprint("g", 1+i%2), Conn: int64(i)})
	}
	if _, err := s.ClaimRoutes(ctx, claims); err != nil {
		b.Fatal(err)
	}
	for i := range 50 {
		var reqs []im.SendReq
		for k := range 50 {
			p, conv := groupSender(r)
			if r.IntN(5) < 4 { // as in the baseline, four of five go to pairs
				n := r.IntN(benchPairs)
				p.User, conv = fmt.Sprintf("b-u%05d", n%benchUsers), fmt.Sprintf("b-p%05d", n)
				p.Device = p.User + "-d1"
			}
			reqs = append(reqs, im.SendReq{From: p, Conv: conv, CMID: fmt.Sprintf("%d-%d", i, k), Body: benchBody})
		}
		if _, err := s.SendBatch(ctx, reqs, false); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := s.pool.Exec(ctx, `SET statement_timeout = 0; UPDATE device_cursors d SET delivered_seq = c.next_seq - 1 FROM conversations c
		WHERE c.conv_id = d.conv_id AND d.delivered_seq < c.next_seq - 1 AND hashtext(d.device_id || d.conv_id) % 100 <> 0; RESET statement_timeout`, pgx.QueryExecModeSimpleProtocol); err != nil {
		b.Fatal(err)
	}
	if err := s.vacuum(ctx); err != nil {
		b.Fatal(err)
	}
	return s, began
}

// BenchmarkSweep asks which devices of a gateway lag, in turn the document's way and ours, which looks only at what was
// written lately; both give the same rows. x-naive is how often ours goes into the document's time.
func BenchmarkSweep(b *testing.B) {
	s, began := sweepPopulation(b)
	ctx := context.Background()
	naive, err := pgx.Connect(ctx, s.cfg.URL) // without what the store's connections are set to
	if err != nil {
		b.Fatal(err)
	}
	defer naive.Close(ctx)
	var theirs, ours []im.Lag
	byDevice := func() error {
		rows, err := naive.Query(ctx, naiveSweepSQL, "g1")
		if err == nil {
			theirs, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (l im.Lag, err error) {
				err = row.Scan(&l.Device, &l.Conv, &l.Delivered, &l.Head, &l.Mode)
				return l, err
			})
		}
		return err
	}
	byMessage := func() error {
		written, err := s.Written(ctx, 0, time.Since(began))
		if err == nil {
			ours, err = s.Lagging(ctx, "g1", written, 100_000)
		}
		return err
	}
	for range b.N {
		alternate(b, 20, "x-naive", byDevice, byMessage)
	}
	order := func(a, b im.Lag) int { return cmp.Or(cmp.Compare(a.Conv, b.Conv), cmp.Compare(a.Device, b.Device)) }
	slices.SortFunc(theirs, order)
	slices.SortFunc(ours, order)
	if len(ours) == 0 || !slices.Equal(ours, theirs) {
		b.Errorf("%d devices lag by ours, %d by the document's", len(ours), len(theirs))
	}
	b.ReportMetric(float64(len(ours)), "lagging")
	hideTime(b)
}

package postgres

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"imbench/server/internal/im"
)

// ownWhere is what im_send_batch notes by.
const ownWhere = "WHERE o.last > 64 AND o.last > 64 +"

// ownArms are the ways of knowing what a user sent last in a conversation, as changes of im_send_batch or of the tables.
var ownArms = []struct {
	name        string
	replace, by string // in the function's text
	also        string
}{
	{"none", ownWhere, "WHERE false AND o.last > 64 +", ""},
	{"third-row", ownWhere, "WHERE o.last > 0 * ", ""},
	{"index", ownWhere, "WHERE false AND o.last > 64 +", `CREATE INDEX events_own ON events (conv_id, sender_user, seq)`},
	{"noted-16", ownWhere, "WHERE o.last > 16 AND o.last > 16 +", ""},
	{"noted-64", ownWhere, ownWhere, ""},
	{"noted-256", ownWhere, "WHERE o.last > 256 AND o.last > 256 +", ""},
}

// BenchmarkOwn compares what the arms cost a message: 40 % of the messages go to groups of 30, the others to pairs, the
// senders are drawn evenly, and nobody reports what they read. Each op is a batch of five to every arm, in turn.
func BenchmarkOwn(b *testing.B) {
	ctx := context.Background()
	stores := make([]*Store, len(ownArms))
	for i, arm := range ownArms {
		s := openTest(b, func(c *Config) { c.URL = strings.Replace(c.URL, "synchronous_commit=off", "synchronous_commit=on", 1) })
		if _, err := s.CreatePopulation(ctx, ownPopulation()); err != nil {
			b.Fatal(err)
		}
		var def string
		if err := s.pool.QueryRow(ctx, `SELECT pg_get_functiondef('im_send_batch'::regproc)`).Scan(&def); err != nil {
			b.Fatal(err)
		}
		if !strings.Contains(def, arm.replace) {
			b.Fatal("the function has changed: ", arm.name)
		}
		if _, err := s.pool.Exec(ctx, strings.Replace(def, arm.replace, arm.by, 1)+";"+arm.also); err != nil {
			b.Fatal(err)
		}
		stores[i] = s
	}
	wal, cpu, wall := make([]int64, len(stores)), make([]time.Duration, len(stores)), make([]time.Duration, len(stores))
	const size, round = 5, 100
	n, r := 0, rand.New(rand.NewPCG(1, 2))
	body := strings.Repeat("x", 200)
	b.ResetTimer()
	for range b.N {
		var batches [round][]im.SendReq
		for i := range batches {
			for range size {
				n++
				p, conv := ownSender(r)
				batches[i] = append(batches[i], im.SendReq{From: p, Conv: conv, CMID: fmt.Sprintf("00000000-0000-4000-8000-%012d", n), Body: body})
			}
		}
		for i, s := range stores {
			w0, c0, t0 := walBytes(b, s), serverCPU(b, s), time.Now()
			for _, reqs := range batches {
				if _, err := s.SendBatch(ctx, reqs, false); err != nil {
					b.Fatal(err)
				}
			}
			wall[i] += time.Since(t0)
			cpu[i] += serverCPU(b, s) - c0
			wal[i] += walBytes(b, s) - w0
		}
	}
	msgs := float64(b.N * size * round)
	for i, arm := range ownArms {
		b.ReportMetric(float64(wal[i])/msgs, arm.name+"-wal-B")
		b.ReportMetric(float64(cpu[i].Microseconds())/msgs, arm.name+"-cpu-µs")
		b.ReportMetric(float64(wall[i].Microseconds())/msgs, arm.name+"-µs")
		var rows int64
		if err := stores[i].pool.QueryRow(ctx, `SELECT n_tup_ins + n_tup_upd FROM pg_stat_user_tables WHERE relname = 'read_positions' AND schemaname = current_schema()`).Scan(&rows); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(rows)/msgs, arm.name+"-rows")
	}
}

const ownGroups, ownPairs = 50, 75

func ownPopulation() PopulationSpec {
	i := 0
	user := func(n int) string { return fmt.Sprintf("own-u%05d", n) }
	return PopulationSpec{Namespace: "own", Owner: "bench", Lease: time.Hour, Next: func() (PopulationItem, error) {
		n := i
		i++
		if n < 300 {
			return PopulationItem{User: &PopulationUser{ID: user(n), Devices: []string{user(n) + "-d1"}}}, nil
		}
		if n -= 300; n < ownGroups {
			c := &PopulationConv{ID: fmt.Sprintf("own-g%05d", n), Kind: "group", Mode: "push"}
			for k := range 30 {
				c.Members = append(c.Members, user(k))
			}
			return PopulationItem{Conv: c}, nil
		}
		if n -= ownGroups; n < ownPairs {
			return PopulationItem{Conv: &PopulationConv{ID: fmt.Sprintf("own-p%05d", n), Kind: "direct", Mode: "push", Members: []string{user(100 + n), user(200 + n)}}}, nil
		}
		return PopulationItem{}, io.EOF
	}}
}

func ownSender(r *rand.Rand) (im.Principal, string) {
	n, conv := 0, ""
	if r.IntN(10) < 4 {
		n, conv = r.IntN(30), fmt.Sprintf("own-g%05d", r.IntN(ownGroups))
	} else {
		pair := r.IntN(ownPairs)
		n, conv = 100+pair+100*r.IntN(2), fmt.Sprintf("own-p%05d", pair)
	}
	u := fmt.Sprintf("own-u%05d", n)
	return im.Principal{User: u, Device: u + "-d1", Install: 1}, conv
}

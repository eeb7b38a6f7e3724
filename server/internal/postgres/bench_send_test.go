package postgres

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"imbench/server/internal/batch"
	"imbench/server/internal/bus"
	"imbench/server/internal/im"
)

// deaf receives announcements and does nothing with them.
type deaf struct{}

func (deaf) Announced([]im.Head)      {}
func (deaf) RouteTaken(string, int64) {}
func (deaf) MembersChanged(string)    {}
func (deaf) ReadMoved([]im.ReadNote)  {}
func (deaf) Resync()                  {}

// sendGateway sends as a gateway does: in shared commits, announced after them.
type sendGateway struct {
	*Store
	sender *batch.Sender
	bus    *bus.Bus
}

func newSendGateway(b *testing.B, s *Store, announce bool) *sendGateway {
	b.Helper()
	g := &sendGateway{Store: s}
	var cfg batch.SenderConfig
	if announce {
		var err error
		if g.bus, err = bus.Start(context.Background(), bus.Config{URL: s.cfg.URL, Gateway: "bench", Log: slog.New(slog.DiscardHandler)}, deaf{}); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(g.bus.Close)
		cfg.OnCommit = func(events []im.Event) {
			heads := make([]im.Head, len(events))
			for i, e := range events {
				heads[i] = im.Head{Conv: e.Conv, From: e.Seq, To: e.Seq}
			}
			g.bus.AnnounceHeads(heads)
		}
	}
	g.sender = batch.NewSender(s, cfg)
	b.Cleanup(func() {
		if err := g.sender.Close(context.Background()); err != nil {
			b.Error(err)
		}
	})
	return g
}

func (g *sendGateway) arm(name string, senders int, pick func(int, *rand.Rand) (im.Principal, string)) arm {
	return closedLoop(name, senders, func(_ context.Context, i int, r *rand.Rand) error {
		from, conv := pick(i, r)
		done := make(chan im.SendResult, 1)
		g.sender.Submit(im.SendReq{From: from, Conv: conv, CMID: benchCMID(r), Body: benchBody}, func(r im.SendResult) { done <- r })
		return (<-done).Err
	})
}

// BenchmarkSend compares a gateway's sends with the document's and with mere insertions. x-naive and x-raw are how many
// times as many messages it commits; cpu-x-naive is how many times as much CPU of the database the document's take. The
// naive way has as many connections as are best for it; x-wide compares with a connection for each of its senders.
func BenchmarkSend(b *testing.B) {
	s := openRing(b)
	ns := openRing(b)
	n := openNaive(b, ns)
	for _, c := range []struct {
		name    string
		senders int
		pick    func(int, *rand.Rand) (im.Principal, string)
	}{{"spread-1", 1, spread}, {"spread-8", 8, spread}, {"spread-64", 64, spread}, {"spread-512", 512, spread}, {"hot-64", 64, hot}} {
		b.Run(c.name, func(b *testing.B) {
			g := newSendGateway(b, s, true)
			for range b.N {
				ours := g.arm("ours", c.senders, c.pick)
				measure(b, s, ours) // connections and plans
				n.tune(b, ns, c.senders, c.pick)
				res := interleave(b, s, ours, n.arm(c.senders, c.pick), n.rawArm(c.senders, c.pick), n.wideArm(c.senders, c.pick))
				report(b, "", res["ours"])
				report(b, "naive-", res["naive"])
				report(b, "raw-", res["raw"])
				reportRatio(b, "x-naive", each(res["ours"], rate), each(res["naive"], rate))
				reportRatio(b, "x-wide", each(res["ours"], rate), each(res["wide"], rate))
				reportRatio(b, "x-raw", each(res["ours"], rate), each(res["raw"], rate))
				reportRatio(b, "cpu-x-naive", each(res["naive"], cpu), each(res["ours"], cpu))
				st := g.sender.Stats()
				b.ReportMetric(float64(st.Requests)/float64(st.Batches), "msg/batch")
			}
			hideTime(b)
		})
	}
}

// BenchmarkAnnounce compares telling of a commit after it, merged, on a connection of its own, with pg_notify in its
// transaction: x-inside is how many times as many messages are committed.
func BenchmarkAnnounce(b *testing.B) {
	after, inside := openRing(b), openRing(b)
	const end = "FROM req q;\n"
	var def string
	if err := inside.pool.QueryRow(context.Background(), `SELECT pg_get_functiondef('im_send_batch'::regproc)`).Scan(&def); err != nil {
		b.Fatal(err)
	}
	if !strings.Contains(def, end) {
		b.Fatal("the function has changed")
	}
	def = strings.Replace(def, end, end+"PERFORM pg_notify('im_events', left(array_to_string(held, ' '), 7900));\n", 1)
	if _, err := inside.pool.Exec(context.Background(), def); err != nil {
		b.Fatal(err)
	}
	for _, senders := range []int{8, 64} {
		b.Run(fmt.Sprint(senders), func(b *testing.B) {
			ga, gi := newSendGateway(b, after, true), newSendGateway(b, inside, false)
			for range b.N {
				res := interleave(b, after, ga.arm("after", senders, spread), gi.arm("inside", senders, spread))
				report(b, "", res["after"])
				reportRatio(b, "x-inside", each(res["after"], rate), each(res["inside"], rate))
			}
			hideTime(b)
		})
	}
}

// BenchmarkTwoGateways compares two gateways that send to one conversation, 32 devices each, with one gateway and 64.
// Each device has four messages under way; their order is checked.
func BenchmarkTwoGateways(b *testing.B) {
	s := openRing(b)
	two, err := Open(context.Background(), s.cfg)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(two.Close)
	ga, gb := newSendGateway(b, s, true), newSendGateway(b, two, true)
	for range b.N {
		res := interleave(b, s, inOrder("one", ga), inOrder("two", ga, gb))
		report(b, "", res["two"])
		reportRatio(b, "x-one", each(res["two"], rate), each(res["one"], rate))
		b.ReportMetric(float64(ga.sender.Stats().Contended+gb.sender.Stats().Contended), "contended")
	}
	hideTime(b)
}

// inOrder is an arm of 64 devices on these gateways, all in the hot conversation.
func inOrder(name string, on ...*sendGateway) arm {
	return arm{name, func(ctx context.Context) (int64, error) {
		var mu sync.Mutex
		var first error
		total := int64(0)
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Go(func() {
				n, err := on[i%len(on)].pipeline(ctx, i)
				mu.Lock()
				defer mu.Unlock()
				if total += n; first == nil {
					first = err
				}
			})
		}
		wg.Wait()
		return total, first
	}}
}

// pipeline sends as device i, four messages at a time, and checks that seqs rise as they were submitted (O5).
func (g *sendGateway) pipeline(ctx context.Context, i int) (int64, error) {
	r := rand.New(rand.NewPCG(rand.Uint64(), uint64(i)))
	free := make(chan struct{}, 4)
	var mu sync.Mutex
	var seqs []int64
	var failed error
	for ctx.Err() == nil {
		free <- struct{}{}
		from, conv := hot(i, r)
		mu.Lock()
		k := len(seqs)
		seqs = append(seqs, 0)
		mu.Unlock()
		g.sender.Submit(im.SendReq{From: from, Conv: conv, CMID: benchCMID(r), Body: benchBody}, func(r im.SendResult) {
			mu.Lock()
			if seqs[k] = r.Seq; r.Err != nil {
				failed = r.Err
			}
			mu.Unlock()
			<-free
		})
	}
	for range cap(free) {
		free <- struct{}{}
	}
	mu.Lock()
	defer mu.Unlock()
	if failed == nil && !slices.IsSorted(seqs) {
		failed = fmt.Errorf("device %d: seqs are not in the order of its sends", i)
	}
	return int64(len(seqs)), failed
}

// BenchmarkSendOne compares the statement for a single message with the one for batches, given one: x-batch is how many
// times as many calls are made, cpu-x-batch how many times as much CPU of the database a call of the other takes.
func BenchmarkSendOne(b *testing.B) {
	s := openRing(b)
	call := func(name string, statement func(sendArgs, bool) sendStatement) arm {
		return closedLoop(name, 1, func(ctx context.Context, i int, r *rand.Rand) error {
			from, conv := spread(i, r)
			reqs, out := []im.SendReq{{From: from, Conv: conv, CMID: benchCMID(r), Body: benchBody}}, make([]im.SendResult, 1)
			args, _ := sends(reqs, out)
			if err := statement(args, false).run(ctx, s.send, reqs, out); err != nil {
				return err
			}
			return out[0].Err
		})
	}
	one, many := call("one", sendArgs.statement), call("batch", sendArgs.batch)
	for range b.N {
		res := interleave(b, s, one, many)
		report(b, "", res["one"])
		reportRatio(b, "x-batch", each(res["one"], rate), each(res["batch"], rate))
		reportRatio(b, "cpu-x-batch", each(res["batch"], cpu), each(res["one"], cpu))
	}
	hideTime(b)
}

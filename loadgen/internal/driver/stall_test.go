package driver

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"imbench/loadgen/internal/clock"
	"imbench/loadgen/internal/population"
	"imbench/loadgen/internal/record"
	"imbench/loadgen/internal/sample"
	"imbench/loadgen/internal/testgate"
	"imbench/loadgen/protocol"
	"imbench/reports/rundir"
	"imbench/server/wire"
)

// hermits are n users with a device and a conversation each, which nobody else is in.
func hermits(n int) *population.Population {
	p := people(n)
	p.Convs = nil
	for i := range n {
		p.Convs = append(p.Convs, population.Conv{ID: fmt.Sprintf("t-g%d", i), Kind: "group", Mode: "push", Members: []int32{int32(i)}})
		p.Users[i].Convs = []int32{int32(i)}
	}
	return p
}

// poisson is a Poisson stream of so many messages, each from a device drawn evenly to its own conversation.
func poisson(rate float64, devices, n int) (list []population.Arrival) {
	r := rand.New(rand.NewPCG(1, 2))
	at := 0.0
	for i := range n {
		at += r.ExpFloat64() / rate
		d := int32(r.IntN(devices))
		list = append(list, population.Arrival{Index: int64(i), At: time.Duration(at * float64(time.Second)), Device: d, Conv: d, CMID: fmt.Sprintf("c%d", i)})
	}
	return list
}

// replay is a plan that was written down.
type replay struct {
	list []population.Arrival
	i    int
}

func (r *replay) Next() (population.Arrival, bool) {
	if r.i == len(r.list) {
		return population.Arrival{}, false
	}
	r.i++
	return r.list[r.i-1], true
}

// TestStall: a server stands still for a second in the middle of the window. What is recorded as send.intended is what an
// ideal open-loop client would have seen, whom no limit holds back: it is computed from the plan. The devices may have 16
// sends in flight and have some 40 to make in that second; those that they could not start count as held.
func TestStall(t *testing.T) {
	const (
		devices, rate = 10, 400.0
		warmup        = 2 * time.Second
		measure       = 8 * time.Second
		delay         = time.Millisecond
		stallAt       = warmup + 3*time.Second // from the beginning of the load
		stall         = time.Second
	)
	plan := poisson(rate, devices, 6000)
	var ideal []float64 // ms
	stalled := make([]int, devices)
	least, after := 0, 0
	for _, a := range plan {
		latency := delay
		if a.At >= stallAt && a.At < stallAt+stall {
			latency += stallAt + stall - a.At
			if stalled[a.Device]++; stalled[a.Device] > 16 {
				least++
			}
		}
		if a.At >= stallAt+stall && a.At < stallAt+stall+5*delay {
			after++
		}
		if a.At >= warmup && a.At < warmup+measure {
			ideal = append(ideal, float64(latency)/1e6)
		}
	}
	slices.Sort(ideal)
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(1)
		pop := hermits(devices)
		s.gate = testgate.New(pop)
		var began atomic.Pointer[time.Time] // when the server stands still
		s.cfg.Wire = &testgate.Wire{Gate: s.gate, Delay: delay, Stalled: func(at time.Time) time.Time {
			if from := began.Load(); from != nil && !at.Before(*from) && at.Before(from.Add(stall)) {
				return from.Add(stall)
			}
			return at
		}}
		out, err := rundir.Create(filepath.Join(t.TempDir(), "run"), rundir.Manifest{Started: time.Now()}, nil)
		if err != nil {
			t.Fatal(err)
		}
		rec := record.New(record.Config{Out: out})
		s.cfg.Population, s.cfg.Sink, s.cfg.Warmup, s.cfg.Measure = pop, rec, warmup, measure
		s.cfg.Arrivals = func() population.Arrivals { return &replay{list: plan} }
		s.cfg.OnPhase = func(p Phase, at clock.Time) {
			switch p {
			case Warmup: // the load begins a moment later
				from := time.Now().Add(poll + stallAt)
				began.Store(&from)
			case Measure:
				rec.SetWindow(at, at.Add(measure))
			}
		}
		if r, err := Run(t.Context(), s.cfg); err != nil || !r.Settled {
			t.Fatalf("%+v, %v", r, err)
		}
		res, err := rec.Finish()
		if err != nil {
			t.Fatal(err)
		}
		m := res.Metrics[rundir.SendIntended]
		if m.Count != int64(len(ideal)) || res.Done != m.Count {
			t.Errorf("%d recorded, %d done of %d", m.Count, res.Done, len(ideal))
		}
		mean := 0.0
		for _, v := range ideal {
			mean += v / float64(len(ideal))
		}
		at := func(q float64) float64 { return ideal[int(math.Ceil(q*float64(len(ideal))))-1] }
		for _, c := range []struct {
			name      string
			got, want float64
		}{{"p50", m.P50, at(0.5)}, {"p95", m.P95, at(0.95)}, {"p99", m.P99, at(0.99)}, {"p99.9", m.P999, at(0.999)},
			{"mean", m.Mean, mean}, {"max", m.Max, ideal[len(ideal)-1]}} {
			if math.Abs(c.got/c.want-1) > 0.02 {
				t.Errorf("%s is %.3f ms, an ideal client sees %.3f", c.name, c.got, c.want)
			}
		}
		if res.Held < int64(least) || res.Held > int64(least+after) || least == 0 {
			t.Errorf("%d sends were held, want %d and at most %d more", res.Held, least, after)
		}
		if late := res.Generator.LateMaxMS; late > 0.001 { // the histogram's resolution
			t.Errorf("the server's stall counts as the generator's lateness: %v ms", late)
		}
		if service := res.Metrics[rundir.SendService]; service.Mean > 0.8*m.Mean {
			t.Errorf("service %.1f ms on average, intended %.1f: those that were held have a short service time", service.Mean, m.Mean)
		}
	})
}

// stalledSends is a Sink that keeps what became of sends.
type stalledSends struct {
	*tally
	done atomic.Int64
}

func (s *stalledSends) Send(x sample.Send) { s.tally.Send(x); s.done.Add(1) }

// TestStallOverSockets: the same in real time. While the server stands still, which it does until enough sends wait, each of
// them has waited from its intended time until the server went on, whatever the machine does meanwhile.
func TestStallOverSockets(t *testing.T) {
	const devices, messages, waiting = 4, 600, 120 // more than 16 each
	pop := hermits(devices)
	gate := testgate.New(pop)
	resume := make(chan struct{})
	var still atomic.Bool
	gate.Before = func(t wire.Type) {
		if t == wire.TSend && still.Load() {
			<-resume
		}
	}
	srv := httptest.NewServer(gate.Handler())
	defer srv.Close()
	s := newSetup(1)
	sink := &stalledSends{tally: &tally{}}
	s.cfg.Wire, s.cfg.Population, s.cfg.Sink, s.cfg.Targets = protocol.NewGateway(protocol.GatewayConfig{}), pop, sink, []string{srv.URL}
	s.cfg.Arrivals = func() population.Arrivals { return &replay{list: poisson(400, devices, messages)} }
	s.cfg.Warmup, s.cfg.Measure, s.cfg.Tail, s.cfg.Sleeper = 100*time.Millisecond, 1200*time.Millisecond, 200*time.Millisecond, nil
	s.cfg.OnPhase = func(Phase, clock.Time) {}
	var began, went clock.Time
	var watch sync.WaitGroup
	// Real sockets, and so real time: what is waited for is a count that nobody tells of.
	watch.Go(func() {
		for sink.done.Load() < 20 {
			time.Sleep(time.Millisecond)
		}
		still.Store(true)
		began = clock.Now()
		n, _ := s.cfg.Counters.Totals()
		for {
			if now, _ := s.cfg.Counters.Totals(); now >= min(n+waiting, messages-5) {
				break
			}
			time.Sleep(time.Millisecond)
		}
		went = clock.Now()
		close(resume)
	})
	r, err := Run(t.Context(), s.cfg)
	watch.Wait()
	if err != nil || !r.Settled || r.Final.Done != r.Final.Offered {
		t.Fatalf("%+v, %v", r, err)
	}
	stalled, held := 0, 0
	for _, x := range sink.sends {
		if x.Intended <= began || x.Intended >= went {
			continue
		}
		stalled++
		if x.Done < went {
			t.Errorf("send %d, due %v before the server went on, was answered before that", x.Plan, went.Sub(x.Intended))
		}
		if x.Written > x.Start {
			held++
			if x.Written < went {
				t.Errorf("send %d was held, and written %v before there was a place", x.Plan, went.Sub(x.Written))
			}
		}
	}
	if least := stalled - devices*16; stalled == 0 || held < least {
		t.Errorf("%d sends were due meanwhile; %d were held, want %d at least", stalled, held, least)
	}
}

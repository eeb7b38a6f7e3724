package driver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"imbench/loadgen/internal/clock"
	"imbench/loadgen/internal/device"
	"imbench/loadgen/internal/pacer"
	"imbench/loadgen/internal/population"
	"imbench/loadgen/internal/sample"
	"imbench/loadgen/internal/testgate"
	"imbench/loadgen/protocol"
	"imbench/server/wire"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tally is a Sink that counts.
type tally struct {
	mu        sync.Mutex
	sends     []sample.Send
	delivered int
}

func (*tally) Frame(sample.Frame)   {}
func (*tally) Op(sample.Op)         {}
func (*tally) Reconnect(int32, int) {}
func (c *tally) Send(s sample.Send) { c.mu.Lock(); c.sends = append(c.sends, s); c.mu.Unlock() }
func (c *tally) Deliver(d sample.Delivery) {
	if d.Applied() {
		c.mu.Lock()
		c.delivered++
		c.mu.Unlock()
	}
}

// even is an endless plan: a message every gap, devices in turn, all to conversation 0.
type even struct {
	gap     time.Duration
	devices int64
	i       int64
}

func (e *even) Next() (population.Arrival, bool) {
	e.i++
	return population.Arrival{Index: e.i - 1, At: time.Duration(e.i-1) * e.gap, Device: int32(e.i % e.devices), CMID: fmt.Sprintf("c%d", e.i)}, true
}

func people(n int) *population.Population {
	p := &population.Population{Namespace: "t", Convs: []population.Conv{{ID: "t-g0", Kind: "group", Mode: "push"}}}
	for i := range n {
		p.Users = append(p.Users, population.User{ID: fmt.Sprintf("t-u%d", i), Devices: []int32{int32(i)}, Convs: []int32{0}})
		p.Devices = append(p.Devices, population.Device{ID: fmt.Sprintf("t-u%d-d1", i), User: int32(i), Connected: true})
		p.Convs[0].Members = append(p.Convs[0].Members, int32(i))
	}
	return p
}

type setup struct {
	gate   *testgate.Gate
	sink   *tally
	phases []Phase
	at     map[Phase]clock.Time
	cfg    Config
}

func newSetup(n int) *setup {
	pop := people(n)
	s := &setup{gate: testgate.New(pop), sink: &tally{}, at: map[Phase]clock.Time{}}
	s.cfg = Config{Wire: &testgate.Wire{Gate: s.gate, Delay: 5 * time.Millisecond}, Population: pop,
		Arrivals: func() population.Arrivals { return &even{gap: 100 * time.Millisecond, devices: int64(n)} }, Targets: []string{"mem"},
		Tokens: func(int32) string { return "" }, Sink: s.sink, Seed: 1, RunID: 3, BodySize: func(int64) int { return 200 },
		Device: device.Default(), ConnectRate: 100, Warmup: 2 * time.Second, Measure: 6 * time.Second, Tail: time.Second,
		Settle: 15 * time.Second, Sleeper: pacer.Timers{}, Counters: &Counters{},
		OnPhase: func(p Phase, at clock.Time) { s.phases = append(s.phases, p); s.at[p] = at }}
	return s
}

// TestWholeRun: the phases come in order and last as long as they should, the window is announced before its first
// arrival, every arrival is offered, and at the end everybody has everything.
func TestWholeRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(10)
		r, err := Run(t.Context(), s.cfg)
		if err != nil || r.Ended != Finished || !r.Settled || r.Interrupted {
			t.Fatalf("ended %+v, %v", r, err)
		}
		if want := []Phase{Connect, Warmup, Measure, Tail, Settle, Close, Finished}; !slices.Equal(s.phases, want) {
			t.Errorf("phases %v", s.phases)
		}
		if r.WindowFrom != s.at[Measure] || r.WindowFrom.Sub(r.LoadStart) != 2*time.Second || r.WindowTo.Sub(r.WindowFrom) != 6*time.Second {
			t.Errorf("window %v–%v after %v", r.WindowFrom, r.WindowTo, r.LoadStart)
		}
		if f := r.Final; f.Offered != 90 || f.Started != 90 || f.Done != 90 || f.Failed != 0 || f.InFlight != 0 || f.Connected != 0 || f.Reconnects != 0 {
			t.Errorf("counters %+v", f)
		}
		if n := len(s.sink.sends); n != 90 || s.sink.delivered != 900 {
			t.Errorf("%d sends, %d deliveries, want 90 and 900", n, s.sink.delivered)
		}
		for _, x := range s.sink.sends {
			if x.Intended != r.LoadStart.Add(time.Duration(x.Plan)*100*time.Millisecond) || x.Start < x.Intended {
				t.Errorf("send %d: intended %v, started %v after the load began", x.Plan, x.Intended.Sub(r.LoadStart), x.Start.Sub(r.LoadStart))
			}
		}
	})
}

// TestChurn: devices leave and come back while the load lasts, and at the end everybody has everything.
func TestChurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(10)
		s.cfg.Churn = func() population.Arrivals {
			return &until{&even{gap: 300 * time.Millisecond, devices: 10}, 9 * time.Second}
		}
		r, err := Run(t.Context(), s.cfg)
		if err != nil || r.Ended != Finished || !r.Settled || r.Final.Done != 90 || s.sink.delivered != 900 {
			t.Fatalf("ended %+v, %v; %d deliveries", r, err, s.sink.delivered)
		}
		// One in 300 ms for 9 s. Who is still away when his turn comes has nothing to leave.
		if n := r.Final.Reconnects; n < 20 || n > 30 {
			t.Errorf("%d came back, want up to 30", n)
		}
	})
}

// TestShortRun: a run of less than a second is as long as it should be, to the poll of a phase's end.
func TestShortRun(t *testing.T) {
	for _, measure := range []time.Duration{time.Millisecond, 300 * time.Millisecond, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			s := newSetup(5)
			s.cfg.Warmup, s.cfg.Measure, s.cfg.Tail = 0, measure, 0
			r, err := Run(t.Context(), s.cfg)
			if err != nil || r.Ended != Finished || r.WindowTo.Sub(r.WindowFrom) != measure {
				t.Fatalf("%+v, %v", r, err)
			}
			if load := s.at[Settle].Sub(r.LoadStart); load < measure || load > measure+2*poll {
				t.Errorf("the load of %v took %v", measure, load)
			}
			if want := int64((measure + 99*time.Millisecond) / (100 * time.Millisecond)); r.Final.Offered != want {
				t.Errorf("%d offered in %v, want %d", r.Final.Offered, measure, want)
			}
		})
	}
}

// asleep is a pacer that does not wake before the plan's second second: what was due before stands in a backlog.
type asleep struct{ pacer.Timers }

func (a asleep) Until(at clock.Time) {
	a.Timers.Until(at)
	<-time.After(1850 * time.Millisecond)
}

// TestBacklogIsOffered: an arrival counts as offered at its intended time, however late it is started.
func TestBacklogIsOffered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(10)
		s.cfg.Sleeper = asleep{}
		var offered, started int64
		s.cfg.OnPhase = func(p Phase, at clock.Time) {
			if p == Warmup {
				time.AfterFunc(at.Sub(clock.Now())+1550*time.Millisecond, func() { offered, started = s.cfg.Counters.Totals() })
			}
		}
		r, err := Run(t.Context(), s.cfg)
		if err != nil || r.Final.Offered != 90 || r.Final.Started != 90 {
			t.Fatalf("%+v, %v", r, err)
		}
		// The load begins 100 ms after the phase.
		if offered != 15 || started != 0 {
			t.Errorf("after 1.45 s %d were offered and %d started, want 15 and 0", offered, started)
		}
	})
}

// TestDevicesHelpThePacer: what is due while the pacer sleeps is started when a device takes a frame, as one does that comes
// back. The pacer alone would start its sends in lumps, one each time it wakes.
func TestDevicesHelpThePacer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(10)
		s.cfg.Sleeper = asleep{}
		s.cfg.Churn = func() population.Arrivals { return population.Evenly(50, 170*time.Millisecond) }
		if r, err := Run(t.Context(), s.cfg); err != nil || r.Final.Started != 90 {
			t.Fatalf("%+v, %v", r, err)
		}
		starts := map[clock.Time]bool{}
		for _, x := range s.sink.sends {
			starts[x.Start] = true
		}
		if len(starts) < 15 {
			t.Errorf("90 sends over 9 s began at %d moments", len(starts))
		}
	})
}

// TestInterrupted: a cancelled run ends at once in every phase, keeps what there is, and leaves nothing behind.
func TestInterrupted(t *testing.T) {
	for after, phase := range map[time.Duration]Phase{
		50 * time.Millisecond:   Connect,
		1500 * time.Millisecond: Warmup,
		5 * time.Second:         Measure,
		8600 * time.Millisecond: Tail,
		9600 * time.Millisecond: Settle,
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newSetup(10)
			s.gate.DropPush = func(_, _ string, seq int64) bool { return seq == 100 } // nobody can settle before the sweep
			ctx, cancel := context.WithTimeout(t.Context(), after)
			defer cancel()
			begun := clock.Now()
			r, err := Run(ctx, s.cfg)
			if err != nil || !r.Interrupted || r.Ended != phase || r.Settled {
				t.Fatalf("interrupted after %v: %+v, %v", after, r, err)
			}
			if d := clock.Now().Sub(begun) - after; d > 100*time.Millisecond {
				t.Errorf("it took another %v to end in %s", d, phase)
			}
			if r.Final.Offered != r.Final.Started {
				t.Errorf("%d offered, %d started", r.Final.Offered, r.Final.Started)
			}
			if int64(len(s.sink.sends)) != r.Final.Started {
				t.Errorf("%d sends reported, %d started", len(s.sink.sends), r.Final.Started)
			}
			if c := s.gate.Connected(); len(c) != 0 {
				t.Errorf("still connected: %v", c)
			}
		})
	}
}

// TestSettlingBeginsAgain: what is confirmed while the run settles has the whole time to arrive everywhere.
func TestSettlingBeginsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(3)
		s.cfg.Device.Seed = 1
		s.gate.DropReply = func(ty wire.Type, n int) bool { return ty == wire.TSent && n == 90 } // the last: sent again after ten seconds
		s.gate.DropPush = func(dev, _ string, seq int64) bool { return seq == 3+90 && dev == "t-u2-d1" }
		tell := s.cfg.OnPhase
		s.cfg.OnPhase = func(p Phase, at clock.Time) {
			tell(p, at)
			if p == Settle { // later than the time for settling, sooner than that after the confirmation
				time.AfterFunc(s.cfg.Settle+2*time.Second, func() { s.gate.Kick("t-u2-d1", wire.CloseSlow.Code, "") })
			}
		}
		r, err := Run(t.Context(), s.cfg)
		if err != nil || !r.Settled {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// TestUnsettled: what nobody repairs is named at the end of the settle time, and is no error of the driver.
func TestUnsettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(3)
		s.cfg.Device.Seed = 1
		s.gate.DropPush = func(dev, _ string, seq int64) bool { return seq == 3+90 && dev == "t-u2-d1" }
		r, err := Run(t.Context(), s.cfg)
		if err != nil || r.Settled || r.UnsettledDevices != 1 || r.Unsettled[0] != "t-u2-d1: t-g0: has 92 of 93" {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// TestLostTarget: without any connection, or without any confirmed send, the run ends and says so.
func TestLostTarget(t *testing.T) {
	for name, fault := range map[string]func(s *setup){
		"no connection": func(s *setup) {
			s.gate.Admit = func(n int) (bool, int) { return n <= 3, 100 }
			s.gate.Kick("", wire.CloseDraining.Code, "")
		},
		"no message was confirmed": func(s *setup) { s.gate.Silent.Store(true) },
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newSetup(3)
			s.gate.Admit = func(int) (bool, int) { return true, 0 }
			var err error
			var r Result
			done := make(chan struct{})
			go func() {
				r, err = Run(t.Context(), s.cfg)
				close(done)
			}()
			time.Sleep(4 * time.Second)
			synctest.Wait()
			fault(s)
			<-done
			var te *TargetError
			if !errors.As(err, &te) || !te.Lost || !strings.Contains(err.Error(), name) {
				t.Fatalf("%s: %v", name, err)
			}
			if r.Ended != Settle && r.Ended != Tail && r.Ended != Measure {
				t.Errorf("%s: ended in %s", name, r.Ended)
			}
			if int64(len(s.sink.sends)) != r.Final.Started || r.WindowFrom == 0 {
				t.Errorf("%s: results were not kept: %+v", name, r)
			}
		})
	}
}

// TestConnectFails: devices that cannot connect end the run before any load, with the reason.
func TestConnectFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(5)
		s.gate.Admit = func(n int) (bool, int) { return n <= 3, 0 }
		_, err := Run(t.Context(), s.cfg)
		var ce *ConnectError
		if !errors.As(err, &ce) || ce.Connected != 3 || ce.Wanted != 5 || !strings.Contains(err.Error(), "4009") {
			t.Errorf("not admitted: %v", err)
		}
		s = newSetup(5)
		s.gate.Refuse = func(r *wire.Request, _ int) (wire.Code, int) {
			if r.T == wire.THello && r.Device == "t-u4-d1" {
				return wire.StaleInstall, 0
			}
			return "", 0
		}
		_, err = Run(t.Context(), s.cfg)
		if !errors.As(err, &ce) || ce.Connected != 4 || !strings.Contains(err.Error(), "STALE_INSTALL") {
			t.Errorf("refused: %v", err)
		}
	})
}

// TestBadTargets: what is no gateway is named before any device connects.
func TestBadTargets(t *testing.T) {
	notFound := httptest.NewServer(http.NotFoundHandler())
	defer notFound.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()                                       // nobody listens there now
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	live := newSetup(2)
	server := httptest.NewServer(live.gate.Handler())
	defer server.Close()
	for target, says := range map[string]string{notFound.URL: "404", "http://" + l.Addr().String(): "connection refused", "http://" + silent.Addr().String(): " accepted the connection and did not answer the handshake in time"} {
		s := newSetup(2)
		s.cfg.Device.DialTimeout = 500 * time.Millisecond
		s.cfg.Wire, s.cfg.Targets = protocol.NewGateway(protocol.GatewayConfig{}), []string{server.URL, target} // half of them are dead
		_, err := Run(t.Context(), s.cfg)
		var te *TargetError
		if !errors.As(err, &te) || te.Target != target || te.Lost || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", target, err)
		}
	}
}

// TestRealSockets: the same run over real WebSockets, with a tenth of the pushes lost and found again.
func TestRealSockets(t *testing.T) {
	s := newSetup(20)
	server := httptest.NewServer(s.gate.Handler())
	defer server.Close()
	s.cfg.Wire, s.cfg.Targets = protocol.NewGateway(protocol.GatewayConfig{}), []string{server.URL, strings.Replace(server.URL, "http", "ws", 1)}
	s.cfg.Arrivals = func() population.Arrivals { return &even{gap: 2 * time.Millisecond, devices: 20} }
	s.cfg.ConnectRate, s.cfg.Sleeper = 2000, nil
	s.cfg.Warmup, s.cfg.Measure, s.cfg.Tail = 200*time.Millisecond, 500*time.Millisecond, 100*time.Millisecond
	s.cfg.Device.Loss, s.cfg.Device.AckDelay = 0.1, 100*time.Millisecond
	over, swept := make(chan struct{}), make(chan struct{})
	go func() { // what is lost at the very end only the sweep finds
		defer close(swept)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-over:
				return
			case <-tick.C:
			}
			for _, d := range s.cfg.Population.Devices {
				s.gate.Hint(d.ID, "t-g0", "sweep")
			}
		}
	}()
	r, err := Run(t.Context(), s.cfg)
	close(over)
	<-swept
	if err != nil || !r.Settled || r.Final.Done != 400 || s.sink.delivered != 400*20 {
		t.Errorf("%+v, %v; %d deliveries, want %d", r, err, s.sink.delivered, 400*20)
	}
}

// TestFileLimit: both numbers are said.
func TestFileLimit(t *testing.T) {
	err := CheckFiles(1 << 40)
	var fe *FileLimitError
	if !errors.As(err, &fe) || fe.Needed != 1<<40+fileMargin || fe.Had == 0 || !strings.Contains(err.Error(), fmt.Sprint(fe.Had)) {
		t.Errorf("%v", err)
	}
	if err := CheckFiles(1); err != nil {
		t.Error(err)
	}
}

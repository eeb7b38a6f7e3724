package driver

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"imbench/loadgen/internal/clock"
	"imbench/loadgen/internal/population"
	"imbench/loadgen/internal/sample"
)

// meeting is where the parts of a run wait for each other.
type meeting struct {
	mu    sync.Mutex
	wait  sync.WaitGroup
	heads []int64
}

func (m *meeting) agree(_ context.Context, heads []int64) ([]int64, error) {
	m.mu.Lock()
	if m.heads == nil {
		m.heads = make([]int64, len(heads))
	}
	for i, h := range heads {
		m.heads[i] = max(m.heads[i], h)
	}
	m.mu.Unlock()
	m.wait.Done()
	m.wait.Wait()
	return m.heads, nil
}

// seen keeps the intended times of deliveries by the sender's and the receiver's part.
type seen struct {
	tally
	shift map[[2]int]time.Duration
	load  clock.Time
	part  int
	of    func(plan int64) int
}

func (s *seen) Deliver(d sample.Delivery) {
	s.tally.Deliver(d)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shift[[2]int{s.of(d.Plan), s.part}] = d.Intended.Sub(s.load.Add(time.Duration(d.Plan) * 100 * time.Millisecond))
}

// TestTwoParts: two drivers with half of the devices each are one run: they start together, each sends what its devices
// send, every device hears of all, and neither has settled before it knows what the other has committed. A clock that is
// ahead changes what is written into bodies and read from them, and nothing else.
func TestTwoParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		whole := newSetup(10)
		load := clock.Now().Add(3 * time.Second)
		const ahead = 250 * time.Millisecond
		var meet meeting
		meet.wait.Add(2)
		var sinks [2]*seen
		var wg sync.WaitGroup
		for part := range 2 {
			s := newSetup(10)
			sinks[part] = &seen{shift: map[[2]int]time.Duration{}, load: load, part: part, of: func(plan int64) int { return int((plan + 1) % 10 % 2) }}
			cfg := s.cfg
			cfg.Wire, cfg.Sink = whole.cfg.Wire, sinks[part]
			cfg.Population = population.Share(s.cfg.Population, part, 2, 1)
			cfg.Arrivals = func() population.Arrivals { return population.Only(s.cfg.Arrivals(), cfg.Population) }
			cfg.Start, cfg.Agree = func(context.Context) (clock.Time, error) { return load, nil }, meet.agree
			cfg.Ahead = time.Duration(part) * ahead
			wg.Go(func() {
				r, err := Run(t.Context(), cfg)
				if err != nil || r.Ended != Finished || !r.Settled || r.LoadStart != load {
					t.Errorf("part %d: %+v, %v", part, r, err)
				}
				if r.Final.Offered != 45 || r.Final.Done != 45 {
					t.Errorf("part %d: %+v", part, r.Final)
				}
			})
		}
		wg.Wait()
		for part, s := range sinks {
			if s.delivered != 450 {
				t.Errorf("part %d: %d deliveries, want all 90 messages at 5 devices", part, s.delivered)
			}
			for _, x := range s.sends {
				if x.Intended != load.Add(time.Duration(x.Plan)*100*time.Millisecond) {
					t.Errorf("part %d: intended %v off", part, x.Intended.Sub(load))
				}
			}
			for way, want := range map[[2]int]time.Duration{{part, part}: 0, {1 - part, part}: time.Duration(2*part-1) * ahead} {
				if got := s.shift[way]; got != want {
					t.Errorf("sent by part %d, read by part %d: intended is off by %v, want %v", way[0], way[1], got, want)
				}
			}
		}
	})
}

// TestHeadsOfOtherParts: a run has not settled while its devices lack what another part says is committed.
func TestHeadsOfOtherParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(4)
		s.cfg.Agree = func(_ context.Context, heads []int64) ([]int64, error) { return []int64{heads[0] + 1}, nil }
		r, err := Run(t.Context(), s.cfg)
		if err != nil || r.Settled || r.UnsettledDevices != 4 {
			t.Errorf("settled %v with %d devices unsettled, %v", r.Settled, r.UnsettledDevices, err)
		}
	})
}

package app

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"imbench/loadgen/internal/clock"
	"imbench/loadgen/internal/scenario"
	"imbench/reports/rundir"
)

const (
	healPoll   = 50 * time.Millisecond // how exact the times of healing are
	ledgerPoll = 4                     // every so many of these the ledger is asked, which walks over all pairs
)

// healing follows how the run recovers from its faults: when every device is connected again, when the sends that were
// due before the fault's end are confirmed, and when the ledger has all of them delivered.
type healing struct {
	total int64 // devices
	crowd crowd

	mu     sync.Mutex
	list   []*recovery
	closed bool // the last look was taken: devices are going down
}

// recovery is one fault. healing.mu guards it, but for what look has.
type recovery struct {
	index  int // in the scenario
	begun  clock.Time
	result rundir.Fault
	notice time.Duration // how long it may take until devices see that their connection is gone
	struck clock.Time    // it does no more harm from here on: what is still to come is its end, or a return; 0 = not yet
	over   bool          // done, with what it ended running again

	looking sync.Mutex // one look at a time; before healing.mu
	away    bool       // a device was away since it began
	marked  bool       // the devices came back, and the sends that were due then are looked at
	headed  bool       // those were confirmed, and their deliveries are looked at
	looks   int
}

func (h *healing) begin(index int, f scenario.Fault, window clock.Time) *recovery {
	r := &recovery{index: index, begun: clock.Now()}
	switch f.Do {
	case scenario.KillGateway, scenario.DrainGateway, scenario.RestartGateway, scenario.CutDevices:
		r.notice = notice
	}
	r.result = rundir.Fault{Fault: f.String(), AtS: r.begun.Sub(window).Seconds()}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.list = append(h.list, r)
	return r
}

// over notes that the fault was done, with what it ended running again.
func (h *healing) over(r *recovery, detail string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r.result.Detail = detail
	if err != nil {
		r.result.Error = err.Error()
		return
	}
	r.result.TookS = r.since(clock.Now())
	r.over = true
	if r.struck == 0 {
		r.struck = clock.Now()
	}
}

// strike notes that the harm is done, before the fault is over.
func (h *healing) strike(r *recovery) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r.struck = clock.Now()
}

func (r *recovery) since(at clock.Time) *float64 {
	s := at.Sub(r.begun).Seconds()
	return &s
}

// follow looks until the fault has healed or ctx ends.
func (h *healing) follow(ctx context.Context, r *recovery, event func(name, detail string)) {
	tick := time.NewTicker(healPoll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if h.look(ctx, r, false) {
			h.mu.Lock()
			name, took := r.result.Fault, *r.result.HealedS
			h.mu.Unlock()
			event(name, fmt.Sprintf("healed %.2f s after its beginning", took))
			return
		}
	}
}

// look takes one look; final asks the ledger in any case. When the crowd cannot be asked (a worker is gone, and the run with it),
// nothing has healed.
func (h *healing) look(ctx context.Context, r *recovery, final bool) (healed bool) {
	r.looking.Lock()
	defer r.looking.Unlock()
	ask, healed := h.devices(ctx, r)
	if !ask || healed {
		return healed
	}
	var heads []int64
	if r.looks++; !r.headed {
		var err error
		if heads, err = h.crowd.Heads(ctx); err != nil {
			return false
		}
	} else if r.looks%ledgerPoll != 0 && !final {
		return false
	}
	n, err := h.crowd.Behind(ctx, r.index, heads)
	if err != nil {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !r.headed {
		r.headed, r.result.Behind = true, n
	}
	if n == 0 {
		r.result.HealedS = r.since(clock.Now())
	}
	return n == 0
}

// notice is for faults that take connections. Before it is over, that nobody is away says nothing.
const notice = 2 * time.Second

// devices looks at connections and sends; ask says that it is now for the ledger to say what is still missing. r.looking must be
// held.
func (h *healing) devices(ctx context.Context, r *recovery) (ask, healed bool) {
	ready, open, err := h.crowd.Stand(ctx, r.index)
	if err != nil {
		return false, false
	}
	back, over, healed := h.connected(r, h.total-ready)
	if over {
		return false, healed
	}
	if back {
		if err := h.crowd.Mark(ctx, r.index); err != nil {
			return false, false
		}
		r.marked, r.headed = true, false
		if _, open, err = h.crowd.Stand(ctx, r.index); err != nil {
			return false, false
		}
	}
	return r.marked && open == 0, false
}

// connected notes how many devices are away; back says that all are there again, so that the sends of now are to be looked at,
// over that there is nothing more to be seen.
func (h *healing) connected(r *recovery, away int64) (back, over, healed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || r.result.HealedS != nil {
		return false, true, r.result.HealedS != nil
	}
	r.result.Away = max(r.result.Away, away)
	r.away = r.away || away > 0
	now := clock.Now()
	switch {
	case r.struck == 0:
	case away > 0:
		r.result.BackS, r.marked = nil, false
	case r.marked:
	case r.away || r.over && now.Sub(r.struck) >= r.notice:
		if r.away {
			r.result.BackS = r.since(now)
		}
		return true, false, false
	}
	return false, false, false
}

// settle takes a last look, before the devices go away.
func (h *healing) settle(ctx context.Context) {
	h.mu.Lock()
	list := slices.Clone(h.list)
	h.mu.Unlock()
	for _, r := range list {
		h.look(ctx, r, true)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
}

// results are the faults that were begun, in the order of the scenario.
func (h *healing) results() []rundir.Fault {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := slices.Clone(h.list)
	slices.SortFunc(list, func(a, b *recovery) int { return a.index - b.index })
	out := make([]rundir.Fault, len(list))
	for i, r := range list {
		out[i] = r.result
	}
	return out
}

// healMetric is what a criterion on heal looks at: the times of all faults. One that did not heal has no time, and is
// longer than any limit.
func healMetric(faults []rundir.Fault) rundir.Metric {
	var times []float64
	m := rundir.Metric{}
	for _, f := range faults {
		if f.HealedS == nil {
			m.Censored++
			times = append(times, unhealedMS)
			continue
		}
		times = append(times, *f.HealedS*1000)
	}
	slices.Sort(times)
	if m.Count = int64(len(times)); m.Count == 0 {
		return m
	}
	at := func(p float64) float64 { return times[min(int(p*float64(len(times))), len(times)-1)] }
	m.P50, m.P95, m.P99, m.P999, m.Max = at(0.5), at(0.95), at(0.99), at(0.999), times[len(times)-1]
	for _, t := range times {
		m.Mean += t / float64(len(times))
	}
	return m
}

// unhealedMS stands for a fault that did not heal in the run: an hour, the longest that a run can settle.
const unhealedMS = 3_600_000

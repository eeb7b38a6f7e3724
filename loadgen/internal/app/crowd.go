package app

import (
	"context"
	"errors"
	"sync"
	"time"

	"imbench/loadgen/internal/clock"
	"imbench/loadgen/internal/driver"
	"imbench/loadgen/internal/fleet"
	"imbench/loadgen/internal/ledger"
	"imbench/loadgen/internal/sample"
)

// handset is what faults do to the devices: those of this process, or of all workers. n is the fault's number in the scenario.
// The errors are those of the way to workers.
type handset interface {
	Cut(ctx context.Context, n int, share float64) (int, error)
	Freeze(ctx context.Context, n int, share float64, length time.Duration) (int, error)
}

// crowd is what is asked of the devices, and of the ledgers, while a fault heals. Numbers and errors are as for a handset.
type crowd interface {
	// Stand is how many devices are connected, and how many of the sends that were due at the fault's last Mark have no outcome.
	Stand(ctx context.Context, n int) (ready, open int64, err error)
	// Mark has Stand look at the sends that are due until now.
	Mark(ctx context.Context, n int) error
	// Heads are the highest seqs told so far; see ledger.Heads.
	Heads(ctx context.Context) ([]int64, error)
	// Behind counts the pairs that have not reached the heads; nil are those of the fault's call before.
	Behind(ctx context.Context, n int, heads []int64) (int64, error)
}

// watch is the crowd of this process, and a sample.Sink for the outcomes of its sends. It is safe for concurrent use.
type watch struct {
	ready  func() int64               // devices connected
	due    func() (int64, clock.Time) // sends that were due, and until when
	heads  func() []int64
	behind func([]int64) int64

	mu       sync.Mutex
	outcomes int64 // of all sends
	marks    map[int]*mark
}

// mark is what is looked at for one fault.
type mark struct {
	due   int64      // sends
	until clock.Time // by their intended time
	later int64      // outcomes of others since then
	heads []int64
}

func newWatch(live *driver.Counters, l *ledger.Ledger) *watch {
	return &watch{ready: func() int64 { return live.Snapshot().Ready }, due: live.Due, heads: l.Heads, behind: l.Behind}
}

// Frame, Op, Deliver and Reconnect implement sample.Sink; they are not looked at.
func (w *watch) Frame(sample.Frame)      {}
func (w *watch) Op(sample.Op)            {}
func (w *watch) Deliver(sample.Delivery) {}
func (w *watch) Reconnect(int32, int)    {}

// Send implements sample.Sink.
func (w *watch) Send(s sample.Send) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.outcomes++
	for _, m := range w.marks {
		if s.Intended > m.until {
			m.later++
		}
	}
}

// mark is the one of a fault; mu must be held.
func (w *watch) mark(n int) *mark {
	if w.marks[n] == nil {
		if w.marks == nil {
			w.marks = map[int]*mark{}
		}
		w.marks[n] = &mark{}
	}
	return w.marks[n]
}

// Stand implements crowd.
func (w *watch) Stand(_ context.Context, n int) (ready, open int64, err error) {
	ready = w.ready()
	w.mu.Lock()
	defer w.mu.Unlock()
	if m := w.marks[n]; m != nil {
		open = m.due - (w.outcomes - m.later)
	}
	return ready, open, nil
}

// Mark implements crowd.
func (w *watch) Mark(_ context.Context, n int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := w.mark(n)
	m.due, m.until = w.due()
	m.later = 0
	return nil
}

// Heads implements crowd.
func (w *watch) Heads(context.Context) ([]int64, error) { return w.heads(), nil }

// Behind implements crowd.
func (w *watch) Behind(_ context.Context, n int, heads []int64) (int64, error) {
	w.mu.Lock()
	m := w.mark(n)
	if heads != nil {
		m.heads = heads
	}
	heads = m.heads
	w.mu.Unlock()
	return w.behind(heads), nil // without mu: it walks over all pairs, and no device waits for that
}

// hands does faults to the devices of this process.
type hands struct{ control *driver.Control }

// Cut implements handset.
func (h hands) Cut(_ context.Context, n int, share float64) (int, error) {
	return h.control.Cut(n, share), nil
}

// Freeze implements handset.
func (h hands) Freeze(_ context.Context, n int, share float64, length time.Duration) (int, error) {
	return h.control.Freeze(n, share, length), nil
}

// fleetCrowd are the devices of all workers: each does what concerns those that it holds.
type fleetCrowd struct{ fleet *fleet.Fleet }

// ask has all workers carry out an order, and adds up what they say.
func (c fleetCrowd) ask(ctx context.Context, o fleetOrder) (sum fleetAnswer, err error) {
	body, err := encodeGob(o)
	if err != nil {
		return sum, err
	}
	answers, err := c.fleet.Ask(ctx, body)
	if err != nil {
		return sum, err
	}
	for _, b := range answers {
		var a fleetAnswer
		if err := decodeGob(b, &a); err != nil {
			return sum, err
		}
		if err := sum.add(a); err != nil {
			return sum, err
		}
	}
	return sum, nil
}

// Cut implements handset.
func (c fleetCrowd) Cut(ctx context.Context, n int, share float64) (int, error) {
	a, err := c.ask(ctx, fleetOrder{Do: orderCut, Fault: n, Share: share})
	return int(a.N), err
}

// Freeze implements handset.
func (c fleetCrowd) Freeze(ctx context.Context, n int, share float64, length time.Duration) (int, error) {
	a, err := c.ask(ctx, fleetOrder{Do: orderFreeze, Fault: n, Share: share, Length: length})
	return int(a.N), err
}

// Stand implements crowd.
func (c fleetCrowd) Stand(ctx context.Context, n int) (ready, open int64, err error) {
	a, err := c.ask(ctx, fleetOrder{Do: orderStand, Fault: n})
	return a.N, a.Open, err
}

// Mark implements crowd. The workers' moments lie apart by as long as a message takes.
func (c fleetCrowd) Mark(ctx context.Context, n int) error {
	_, err := c.ask(ctx, fleetOrder{Do: orderMark, Fault: n})
	return err
}

// Heads implements crowd: what is committed for one worker's devices is owed to another's.
func (c fleetCrowd) Heads(ctx context.Context) ([]int64, error) {
	a, err := c.ask(ctx, fleetOrder{Do: orderHeads})
	return a.Heads, err
}

// Behind implements crowd.
func (c fleetCrowd) Behind(ctx context.Context, n int, heads []int64) (int64, error) {
	a, err := c.ask(ctx, fleetOrder{Do: orderBehind, Fault: n, Heads: heads})
	return a.N, err
}

// add adds another worker's answer.
func (a *fleetAnswer) add(b fleetAnswer) error {
	a.N, a.Open = a.N+b.N, a.Open+b.Open
	if a.Heads == nil {
		a.Heads = b.Heads
	}
	if len(a.Heads) != len(b.Heads) {
		return errors.New("workers tell the heads of different numbers of conversations")
	}
	for i, h := range b.Heads {
		a.Heads[i] = max(a.Heads[i], h)
	}
	return nil
}

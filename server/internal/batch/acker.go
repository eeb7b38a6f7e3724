package batch

import (
	"context"
	"errors"
	"hash/maphash"
	"sync/atomic"
	"time"

	"imbench/server/internal/im"
)

type pendingAck struct {
	req  im.AckReq
	done func(im.AckResult)
}

type cursor struct{ device, conv string }

// Acker gathers acknowledgements for a short window and writes them in bulk: equal (device, conversation) pairs become
// one row with the largest seq (the store merges them). A worker has one write under way at a time.
type Acker struct {
	store Store
	cfg   AckerConfig
	ctx   context.Context // of the calls to the store; ends when Close runs out of time
	stop  context.CancelFunc

	seed    maphash.Seed
	workers []*collector[pendingAck]

	counters
	rows atomic.Int64
}

// NewAcker starts the workers; Close ends them.
func NewAcker(store Store, cfg AckerConfig) *Acker {
	cfg.Workers, cfg.MaxBatch, cfg.Queue = or(cfg.Workers, 1), or(cfg.MaxBatch, 256), or(cfg.Queue, 65536)
	cfg.Window, cfg.Timeout = or(cfg.Window, 20*time.Millisecond), or(cfg.Timeout, 10*time.Second)
	a := &Acker{store: store, cfg: cfg, seed: maphash.MakeSeed()}
	a.ctx, a.stop = context.WithCancel(context.Background())
	window := func(int) time.Duration { return cfg.Window }
	for range cfg.Workers {
		a.workers = append(a.workers, newCollector(cfg.Queue, cfg.MaxBatch, window, a.flush))
	}
	return a
}

// Submit queues one acknowledgement and returns at once; done is called with its outcome, after the commit. The errors
// are those of im.AckResult; a full queue or a closed Acker is im.ErrUnavailable.
func (a *Acker) Submit(req im.AckReq, done func(im.AckResult)) {
	w := a.workers[maphash.String(a.seed, req.From.Device)%uint64(len(a.workers))]
	if a.waiting.Add(1) > int64(a.cfg.Queue) {
		a.refuse(done, errFull)
	} else if !w.add(pendingAck{req, done}) {
		a.refuse(done, errClosed)
	}
}

func (a *Acker) refuse(done func(im.AckResult), err error) {
	a.waiting.Add(-1)
	a.refused.Add(1)
	done(im.AckResult{Err: err})
}

func (a *Acker) flush(batch []pendingAck) {
	reqs := make([]im.AckReq, len(batch))
	for i, p := range batch {
		reqs[i] = p.req
	}
	res := inHalves(reqs, func(part []im.AckReq) ([]im.AckResult, error) {
		ctx, cancel := context.WithTimeout(a.ctx, a.cfg.Timeout)
		defer cancel()
		began := time.Now()
		res, err := a.store.AckBatch(ctx, part)
		a.call(len(part), began)
		return res, err
	}, func(err error) im.AckResult { return im.AckResult{Err: known(err)} })

	rows := make(map[cursor]struct{}, len(batch))
	for i, p := range batch {
		if res[i].Err == nil {
			rows[cursor{p.req.From.Device, p.req.Conv}] = struct{}{}
		} else if errors.Is(res[i].Err, im.ErrUnavailable) {
			a.failed.Add(1)
		}
		a.waiting.Add(-1)
		p.done(res[i])
	}
	a.rows.Add(int64(len(rows)))
}

// Stats is a snapshot of the counters.
func (a *Acker) Stats() AckerStats {
	return AckerStats{Counters: a.snapshot(), Rows: a.rows.Load()}
}

// Close refuses new acknowledgements, writes those that wait, and returns when all goroutines have ended. When ctx ends
// first, the rest gets im.ErrUnavailable and Close returns the context's error. It may be called twice.
func (a *Acker) Close(ctx context.Context) error {
	defer a.stop()
	var err error
	for _, w := range a.workers {
		w.close()
	}
	for _, w := range a.workers {
		err = errors.Join(err, join(ctx, a.stop, w.done))
	}
	return err
}

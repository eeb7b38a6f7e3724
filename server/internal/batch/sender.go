package batch

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"imbench/server/internal/im"
)

// lingerFactor times what a commit took is how long the next batch waits for company at most: a worker's connection is busy
// for a fifth of the time, and a send is answered within six times of what the database needs.
const lingerFactor = 4

// pending is a send on its way.
type pending struct {
	req   im.SendReq
	done  func(im.SendResult)
	since time.Time // submitted
}

// Sender is the application-level group commit of sends: what arrives while a commit is under way shares the next one.
//
// Requests of one conversation are committed in the order of Submit (O5). A conversation whose row is locked elsewhere
// leaves the shared batches, with all its later sends, for the contended lane, until that lane has nothing left of it.
type Sender struct {
	store Store
	cfg   SenderConfig
	ctx   context.Context // of the calls to the store; ends when Close runs out of time
	stop  context.CancelFunc

	spread  spread
	workers []*collector[*pending]
	lanes   *lanes

	counters
	rows, dups, contended, lockWaits, splits atomic.Int64
}

// NewSender starts the workers; Close ends them.
func NewSender(store Store, cfg SenderConfig) *Sender {
	cfg.MaxBatch, cfg.Queue = or(cfg.MaxBatch, 64), or(cfg.Queue, 8192)
	cfg.Waiters, cfg.LaneCap = or(cfg.Waiters, 2), or(cfg.LaneCap, 512)
	cfg.Linger, cfg.LaneTTL = or(cfg.Linger, time.Millisecond), or(cfg.LaneTTL, 10*time.Second)
	cfg.Timeout = or(cfg.Timeout, 10*time.Second)
	s := &Sender{store: store, cfg: cfg, spread: newSpread(or(cfg.Shards, 1), or(cfg.Workers, 1))}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.lanes = newLanes(cfg, s.contend)
	for range s.spread.all() {
		var took time.Duration // by the last flush, which is on the goroutine that asks window
		// After a batch of one there is nobody to wait for; after a larger one, waiting makes the next commit cheaper a head. It
		// is worth the more the longer a commit takes.
		window := func(last int) time.Duration {
			if last > 1 {
				return min(cfg.Linger, lingerFactor*took)
			}
			return 0
		}
		w := newCollector[*pending](cfg.Queue, cfg.MaxBatch, window, nil)
		w.flush = func(batch []*pending) {
			began := time.Now()
			s.flush(batch, w.answering)
			took = time.Since(began)
		}
		s.workers = append(s.workers, w.start())
	}
	return s
}

// Submit queues one message and returns at once; done is called with its outcome, after the commit and after OnCommit.
// The errors are those of im.SendResult; a full queue or a closed Sender is im.ErrUnavailable.
func (s *Sender) Submit(req im.SendReq, done func(im.SendResult)) {
	w := s.workers[s.spread.worker(req.Conv, req.Conv)]
	if s.waiting.Add(1) > int64(s.cfg.Queue) {
		s.refuse(done, errFull)
	} else if !w.add(&pending{req: req, done: done, since: time.Now()}) {
		s.refuse(done, errClosed)
	}
}

func (s *Sender) refuse(done func(im.SendResult), err error) {
	s.waiting.Add(-1)
	s.refused.Add(1)
	done(im.SendResult{Err: err})
}

// Stats is a snapshot of the counters.
func (s *Sender) Stats() SenderStats {
	return SenderStats{
		Counters: s.snapshot(), Rows: s.rows.Load(), Dups: s.dups.Load(), Contended: s.contended.Load(),
		LockWaits: s.lockWaits.Load(), Splits: s.splits.Load(),
	}
}

// Close refuses new sends, commits those that wait, and returns when all goroutines have ended. When ctx ends first,
// the rest gets im.ErrUnavailable and Close returns the context's error. It may be called twice.
func (s *Sender) Close(ctx context.Context) error {
	defer s.stop()
	var err error
	for _, w := range s.workers {
		w.close()
	}
	for _, w := range s.workers {
		err = errors.Join(err, join(ctx, s.stop, w.done))
	}
	s.lanes.close() // only now: the workers may have moved sends there
	return errors.Join(err, join(ctx, s.stop, s.lanes.done))
}

// flush is one shared batch; it runs on a worker's goroutine.
func (s *Sender) flush(batch []*pending, answering func()) {
	mine, refused := s.lanes.divert(batch)
	s.fail(refused, errFull)
	s.contended.Add(int64(len(batch) - len(mine) - len(refused)))
	if len(mine) == 0 {
		return
	}
	busy := s.commit(mine, false, answering)
	if len(busy) == 0 {
		return
	}
	s.contended.Add(int64(len(busy)))
	s.fail(s.lanes.put(busy), errFull)
}

// contend is one turn of the contended lane: sends of one conversation, whose lock this call may wait for. It returns
// those that did not get it and may go on waiting.
func (s *Sender) contend(batch []*pending) []*pending {
	busy := s.commit(batch, true, func() {})
	if len(busy) == 0 {
		return nil
	}
	s.lockWaits.Add(1)
	young := slices.IndexFunc(busy, func(p *pending) bool { return time.Since(p.since) < s.cfg.LaneTTL })
	if young < 0 || s.ctx.Err() != nil {
		young = len(busy)
	}
	s.fail(busy[:young], im.ErrUnavailable)
	return busy[young:]
}

// commit calls the store and answers all but the sends whose conversation is locked elsewhere, which it returns in their
// order. After an error other than an unknown outcome one of the sends is at fault, and the halves are tried apart.
func (s *Sender) commit(batch []*pending, wait bool, answering func()) (busy []*pending) {
	res, err := s.call(batch, wait)
	answering()
	switch {
	case err == nil:
		for i, p := range batch {
			if res[i].Err == im.ErrBusy {
				busy = append(busy, p)
			} else {
				s.finish(p, res[i])
			}
		}
		return busy
	case len(batch) == 1 || errors.Is(err, im.ErrUnavailable):
		s.fail(batch, known(err))
		return nil
	}
	s.splits.Add(1)
	h := len(batch) / 2
	busy = s.commit(batch[:h], wait, answering)
	rest := batch[h:]
	if len(busy) > 0 { // the second half must not overtake what the first half could not commit (O5)
		locked := make(map[string]bool)
		for _, p := range busy {
			locked[p.req.Conv] = true
		}
		rest = nil
		for _, p := range batch[h:] {
			if locked[p.req.Conv] {
				busy = append(busy, p)
			} else {
				rest = append(rest, p)
			}
		}
	}
	if len(rest) > 0 {
		busy = append(busy, s.commit(rest, wait, answering)...)
	}
	return busy
}

// call is one transaction, and the announcement of what it committed.
func (s *Sender) call(batch []*pending, wait bool) ([]im.SendResult, error) {
	reqs := make([]im.SendReq, len(batch))
	for i, p := range batch {
		reqs[i] = p.req
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.cfg.Timeout)
	defer cancel()
	began := time.Now()
	res, err := s.store.SendBatch(ctx, reqs, wait)
	s.counters.call(len(batch), began)
	if err != nil {
		return nil, err
	}
	events := make([]im.Event, 0, len(batch))
	for i, r := range res {
		switch {
		case r.Err != nil:
		case r.Dup:
			s.dups.Add(1)
		default:
			q := reqs[i]
			events = append(events, im.Event{
				Conv: q.Conv, Seq: r.Seq, Epoch: r.Epoch, Kind: im.KindMsg, MID: r.MID, Sender: q.From.User,
				SenderDevice: q.From.Device, CMID: q.CMID, Body: q.Body, MsgNo: r.MsgNo, At: r.At,
			})
		}
	}
	s.rows.Add(int64(len(events)))
	if s.cfg.OnCommit != nil && len(events) > 0 {
		slices.SortFunc(events, func(a, b im.Event) int {
			return cmp.Or(cmp.Compare(a.Conv, b.Conv), cmp.Compare(a.Seq, b.Seq))
		})
		s.cfg.OnCommit(events)
	}
	return res, nil
}

func (s *Sender) finish(p *pending, r im.SendResult) {
	s.waiting.Add(-1)
	p.done(r)
}

func (s *Sender) fail(batch []*pending, err error) {
	s.failed.Add(int64(len(batch)))
	for _, p := range batch {
		s.finish(p, im.SendResult{Err: err})
	}
}

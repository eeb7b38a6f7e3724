package batch

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"imbench/server/internal/im"
)

// row is what requests are merged by: a device's or a user's position in a conversation.
type row struct{ owner, conv string }

type pendingWrite[Q, R any] struct {
	req  Q
	done func(R)
}

// bulk is the common part of Acker, Marker and Syncer: it gathers requests for a short window and writes them in one call,
// in which the store merges those of one row. Rows are spread over the workers by shard and owner; a worker has one call
// under way.
type bulk[Q, R any] struct {
	cfg    AckerConfig
	write  func(context.Context, []Q) ([]R, error)
	key    func(*Q) row
	failed func(error) R
	err    func(*R) error
	wrote  func(reqs []Q, res []R) // called after a write and before the callbacks; nil = nobody asks

	ctx  context.Context // of the calls to the store; ends when Close runs out of time
	stop context.CancelFunc

	spread  spread
	workers []*collector[pendingWrite[Q, R]]

	count counters
	rows  atomic.Int64
}

// start begins the workers; the fields up to wrote must be set.
func (b *bulk[Q, R]) start() {
	b.cfg.MaxBatch, b.cfg.Queue = or(b.cfg.MaxBatch, 256), or(b.cfg.Queue, 65536)
	b.cfg.Window, b.cfg.Timeout = or(b.cfg.Window, 20*time.Millisecond), or(b.cfg.Timeout, 10*time.Second)
	b.spread = newSpread(or(b.cfg.Shards, 1), or(b.cfg.Workers, 1))
	b.ctx, b.stop = context.WithCancel(context.Background())
	window := func(int) time.Duration { return b.cfg.Window }
	for range b.spread.all() {
		b.workers = append(b.workers, newCollector(b.cfg.Queue, b.cfg.MaxBatch, window, b.flush).start())
	}
}

func (b *bulk[Q, R]) submit(req Q, done func(R)) {
	k := b.key(&req)
	w := b.workers[b.spread.worker(k.conv, k.owner)]
	if b.count.waiting.Add(1) > int64(b.cfg.Queue) {
		b.refuse(done, errFull)
	} else if !w.add(pendingWrite[Q, R]{req, done}) {
		b.refuse(done, errClosed)
	}
}

func (b *bulk[Q, R]) refuse(done func(R), err error) {
	b.count.waiting.Add(-1)
	b.count.refused.Add(1)
	done(b.failed(err))
}

func (b *bulk[Q, R]) flush(batch []pendingWrite[Q, R]) {
	reqs := make([]Q, len(batch))
	for i, p := range batch {
		reqs[i] = p.req
	}
	res := inHalves(reqs, func(part []Q) ([]R, error) {
		ctx, cancel := context.WithTimeout(b.ctx, b.cfg.Timeout)
		defer cancel()
		began := time.Now()
		res, err := b.write(ctx, part)
		b.count.call(len(part), began)
		return res, err
	}, func(err error) R { return b.failed(known(err)) })
	if b.wrote != nil {
		b.wrote(reqs, res)
	}
	rows := make(map[row]struct{}, len(batch))
	for i, p := range batch {
		if err := b.err(&res[i]); err == nil {
			rows[b.key(&reqs[i])] = struct{}{}
		} else if errors.Is(err, im.ErrUnavailable) {
			b.count.failed.Add(1)
		}
		b.count.waiting.Add(-1)
		p.done(res[i])
	}
	b.rows.Add(int64(len(rows)))
}

func (b *bulk[Q, R]) stats() BulkStats {
	return BulkStats{Counters: b.count.snapshot(), Rows: b.rows.Load()}
}

func (b *bulk[Q, R]) close(ctx context.Context) error {
	defer b.stop()
	var err error
	for _, w := range b.workers {
		w.close()
	}
	for _, w := range b.workers {
		err = errors.Join(err, join(ctx, b.stop, w.done))
	}
	return err
}

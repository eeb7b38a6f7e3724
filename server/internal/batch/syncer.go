package batch

import (
	"context"
	"fmt"

	"imbench/server/internal/im"
)

// SyncStore is what a Syncer reads from; im.Store satisfies it.
type SyncStore interface {
	SyncBatch(ctx context.Context, reqs []im.SyncReq) ([]im.SyncResult, error)
}

// Syncer gathers the reads of pages that come while others are under way. A hint to a large group makes each of its
// devices ask for the same events at once: those that wait share a call, and the store reads a page once for all who are
// due it. Without a crowd nothing is waited for.
type Syncer struct {
	b bulk[ask, im.SyncResult]
}

// ask is a request with the context of who asks.
type ask struct {
	im.SyncReq
	ctx context.Context
}

// NewSyncer starts the workers; Close ends them. Conversations are spread over the workers; cfg.Window counts nothing.
func NewSyncer(store SyncStore, cfg AckerConfig) *Syncer {
	cfg.Window, cfg.MaxBatch, cfg.Queue = -1, or(cfg.MaxBatch, 64), or(cfg.Queue, 16384)
	s := &Syncer{bulk[ask, im.SyncResult]{
		cfg:    cfg,
		write:  func(ctx context.Context, asks []ask) ([]im.SyncResult, error) { return readWanted(ctx, store, asks) },
		key:    func(q *ask) row { return row{q.Conv, q.Conv} },
		failed: func(err error) im.SyncResult { return im.SyncResult{Err: err} },
		err:    func(r *im.SyncResult) error { return r.Err },
	}}
	s.b.start()
	return s
}

// readWanted reads for those who still wait. The others have gone or asked again: where the store is slower than they are
// patient, answering them would leave it no time for anyone else.
func readWanted(ctx context.Context, store SyncStore, asks []ask) ([]im.SyncResult, error) {
	res, wanted := make([]im.SyncResult, len(asks)), make([]int, 0, len(asks))
	reqs := make([]im.SyncReq, 0, len(asks))
	for i, q := range asks {
		if err := q.ctx.Err(); err != nil {
			res[i].Err = fmt.Errorf("%w: %w", im.ErrUnavailable, err)
			continue
		}
		wanted, reqs = append(wanted, i), append(reqs, q.SyncReq)
	}
	if len(reqs) == 0 {
		return res, nil
	}
	pages, err := store.SyncBatch(ctx, reqs)
	if err != nil {
		return nil, err
	}
	for n, i := range wanted {
		res[i] = pages[n]
	}
	return res, nil
}

// Submit queues one request and returns at once; done is called with its outcome. The errors are those of im.Store's Sync;
// a full queue, a closed Syncer, or a ctx that ended before its turn came is im.ErrUnavailable.
func (s *Syncer) Submit(ctx context.Context, req im.SyncReq, done func(im.SyncResult)) {
	s.b.submit(ask{req, ctx}, done)
}

// Stats is a snapshot of the counters; Rows are the conversations of each call, added up.
func (s *Syncer) Stats() BulkStats { return s.b.stats() }

// Close refuses new requests, reads what waits, and returns when all goroutines have ended. When ctx ends first, the rest
// gets im.ErrUnavailable and Close returns the context's error. It may be called twice.
func (s *Syncer) Close(ctx context.Context) error { return s.b.close(ctx) }

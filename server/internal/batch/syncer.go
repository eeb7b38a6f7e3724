package batch

import (
	"context"

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
	b bulk[im.SyncReq, im.SyncResult]
}

// NewSyncer starts the workers; Close ends them. Conversations are spread over the workers; cfg.Window counts nothing.
func NewSyncer(store SyncStore, cfg AckerConfig) *Syncer {
	cfg.Window, cfg.MaxBatch, cfg.Queue = -1, or(cfg.MaxBatch, 64), or(cfg.Queue, 16384)
	s := &Syncer{bulk[im.SyncReq, im.SyncResult]{
		cfg: cfg, write: store.SyncBatch,
		key:    func(q *im.SyncReq) row { return row{q.Conv, q.Conv} },
		failed: func(err error) im.SyncResult { return im.SyncResult{Err: err} },
		err:    func(r *im.SyncResult) error { return r.Err },
	}}
	s.b.start()
	return s
}

// Submit queues one request and returns at once; done is called with its outcome. The errors are those of im.Store's Sync;
// a full queue or a closed Syncer is im.ErrUnavailable.
func (s *Syncer) Submit(req im.SyncReq, done func(im.SyncResult)) { s.b.submit(req, done) }

// Stats is a snapshot of the counters; Rows are the conversations of each call, added up.
func (s *Syncer) Stats() BulkStats { return s.b.stats() }

// Close refuses new requests, reads what waits, and returns when all goroutines have ended. When ctx ends first, the rest
// gets im.ErrUnavailable and Close returns the context's error. It may be called twice.
func (s *Syncer) Close(ctx context.Context) error { return s.b.close(ctx) }

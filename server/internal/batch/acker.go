package batch

import (
	"context"

	"imbench/server/internal/im"
)

// Acker gathers acknowledgements for a short window and writes them in bulk: equal (device, conversation) pairs become
// one row with the largest seq (the store merges them). A worker has one write under way at a time.
type Acker struct {
	b bulk[im.AckReq, im.AckResult]
}

// NewAcker starts the workers; Close ends them.
func NewAcker(store Store, cfg AckerConfig) *Acker {
	a := &Acker{bulk[im.AckReq, im.AckResult]{
		cfg: cfg, write: store.AckBatch,
		key:    func(q *im.AckReq) row { return row{q.From.Device, q.Conv} },
		failed: func(err error) im.AckResult { return im.AckResult{Err: err} },
		err:    func(r *im.AckResult) error { return r.Err },
	}}
	a.b.start()
	return a
}

// Submit queues one acknowledgement and returns at once; done is called with its outcome, after the commit. The errors
// are those of im.AckResult; a full queue or a closed Acker is im.ErrUnavailable.
func (a *Acker) Submit(req im.AckReq, done func(im.AckResult)) { a.b.submit(req, done) }

// Stats is a snapshot of the counters.
func (a *Acker) Stats() BulkStats { return a.b.stats() }

// Close refuses new acknowledgements, writes those that wait, and returns when all goroutines have ended. When ctx ends
// first, the rest gets im.ErrUnavailable and Close returns the context's error. It may be called twice.
func (a *Acker) Close(ctx context.Context) error { return a.b.close(ctx) }

package batch

import (
	"context"

	"imbench/server/internal/im"
)

// ReadStore is what a Marker writes to; im.Store satisfies it.
type ReadStore interface {
	ReadBatch(ctx context.Context, reqs []im.ReadReq) ([]im.ReadResult, error)
}

// Marker gathers read reports as Acker does acknowledgements: equal (user, conversation) pairs, of whatever devices,
// become one row with the largest seq.
type Marker struct {
	b bulk[im.ReadReq, im.ReadResult]
}

// NewMarker starts the workers; Close ends them.
func NewMarker(store ReadStore, cfg MarkerConfig) *Marker {
	m := &Marker{bulk[im.ReadReq, im.ReadResult]{
		cfg: cfg.AckerConfig, write: store.ReadBatch,
		key:    func(q *im.ReadReq) row { return row{q.From.User, q.Conv} },
		failed: func(err error) im.ReadResult { return im.ReadResult{Err: err} },
		err:    func(r *im.ReadResult) error { return r.Err },
	}}
	if cfg.OnMoved != nil {
		m.b.wrote = func(reqs []im.ReadReq, res []im.ReadResult) { moved(reqs, res, cfg.OnMoved) }
	}
	m.b.start()
	return m
}

// moved tells of the positions that moved, if any did.
func moved(reqs []im.ReadReq, res []im.ReadResult, tell func([]im.ReadNote)) {
	var notes []im.ReadNote
	for i, r := range res {
		if r.Err == nil && r.Moved {
			q := &reqs[i]
			notes = append(notes, im.ReadNote{Conv: q.Conv, User: q.From.User, Device: q.From.Device, Seq: r.Read})
		}
	}
	if len(notes) > 0 {
		tell(notes)
	}
}

// Submit queues one report and returns at once; done is called with its outcome, after the commit and after OnMoved. The
// errors are those of im.ReadResult; a full queue or a closed Marker is im.ErrUnavailable.
func (m *Marker) Submit(req im.ReadReq, done func(im.ReadResult)) { m.b.submit(req, done) }

// Stats is a snapshot of the counters.
func (m *Marker) Stats() BulkStats { return m.b.stats() }

// Close refuses new reports, writes those that wait, and returns when all goroutines have ended. When ctx ends first,
// the rest gets im.ErrUnavailable and Close returns the context's error. It may be called twice.
func (m *Marker) Close(ctx context.Context) error { return m.b.close(ctx) }

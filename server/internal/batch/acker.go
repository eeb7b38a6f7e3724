package batch

import (
	"context"

	"imbench/server/internal/im"
)

// Acker merges acknowledgements.
type Acker struct{}

// NewAcker starts the workers; Close ends them.
func NewAcker(store Store, cfg AckerConfig) *Acker { return &Acker{} }

// Submit queues one acknowledgement and returns at once.
func (a *Acker) Submit(req im.AckReq, done func(im.AckResult)) {}

// Stats is a snapshot of the counters.
func (a *Acker) Stats() AckerStats { return AckerStats{} }

// Close drains and waits.
func (a *Acker) Close(ctx context.Context) error { return nil }

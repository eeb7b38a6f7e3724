package batch

import (
	"context"

	"imbench/server/internal/im"
)

// Claimer merges route claims and releases.
type Claimer struct{}

// NewClaimer starts its workers; Close ends them.
func NewClaimer(store Store, cfg ClaimerConfig) *Claimer { return &Claimer{} }

// Claim asks for a device's route and waits for the outcome.
func (c *Claimer) Claim(ctx context.Context, claim im.RouteClaim) (im.RouteResult, error) {
	return im.RouteResult{}, im.ErrUnavailable
}

// Release queues the release of a route and returns at once.
func (c *Claimer) Release(route im.Route) {}

// Stats is a snapshot of the counters.
func (c *Claimer) Stats() ClaimerStats { return ClaimerStats{} }

// Close drains and waits.
func (c *Claimer) Close(ctx context.Context) error { return nil }

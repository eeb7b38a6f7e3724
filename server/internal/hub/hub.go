package hub

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"imbench/server/internal/im"
)

type Hub struct{}

// New makes a hub and starts its workers; Close ends them.
func New(cfg Config, src Source) *Hub { return &Hub{} }

// Committed hands over events that this process has just committed; their bytes need not be read again. It never blocks.
func (h *Hub) Committed(events []im.Event) {}

// Announced says that these ranges are committed. It never blocks.
func (h *Hub) Announced(heads []im.Head) {}

// MembersChanged says that what is cached of the conversation's members and mode no longer holds.
func (h *Hub) MembersChanged(conv string) {}

// RouteTaken says that the device has a connection of this generation somewhere: an older one here is closed (4003).
func (h *Hub) RouteTaken(device string, generation int64) {}

// Resync reads again what may have been announced while nobody listened. It returns at once; the hub does the work.
func (h *Hub) Resync() {}

// Collectors are the hub's metrics.
func (h *Hub) Collectors() []prometheus.Collector { return nil }

// Close ends the workers and waits for them. Connections must have ended before.
func (h *Hub) Close(ctx context.Context) error { return nil }

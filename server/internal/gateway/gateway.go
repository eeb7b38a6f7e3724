package gateway

import (
	"context"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"imbench/server/internal/hub"
	"imbench/server/internal/im"
)

// Sender takes messages; done is called once, from any goroutine, and must not block (batch.Sender).
type Sender interface {
	Submit(req im.SendReq, done func(im.SendResult))
}

// Acker takes acknowledgements; done is called once, from any goroutine, and must not block (batch.Acker).
type Acker interface {
	Submit(req im.AckReq, done func(im.AckResult))
}

// Routes claims and releases devices' routes (batch.Claimer).
type Routes interface {
	Claim(ctx context.Context, claim im.RouteClaim) (im.RouteResult, error)
	Release(route im.Route)
}

// Reader answers what is read at once (im.Store).
type Reader interface {
	Sync(ctx context.Context, r im.SyncReq) (im.Page, error)
	Convs(ctx context.Context, p im.Principal, after string, limit int) (list []im.ConvState, more bool, err error)
}

// Deps is what a Gateway stands on.
type Deps struct {
	Hub    *hub.Hub
	Sender Sender
	Acker  Acker
	Routes Routes
	Reader Reader
	// Verify reads a bearer token (token.Key.Verify).
	Verify func(text string) (user, device string, expires time.Time, err error)
	// AnnounceRoute tells other gateways of a claimed route (bus.Bus.AnnounceRoute). It must not block.
	AnnounceRoute func(device string, generation int64)
}

// Gateway serves /v1/ws.
type Gateway struct{}

// New makes a gateway; it starts nothing before the first connection.
func New(cfg Config, deps Deps) *Gateway { return &Gateway{} }

// ServeHTTP upgrades the request and returns; the connection lives on.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {}

// Draining says whether Drain was called: readyz is false from then on.
func (g *Gateway) Draining() bool { return false }

// Drain stops admitting, tells devices, and closes all connections in slices over the given time (4010). It returns when
// all are gone and their goroutines have ended, or with ctx's error after it has cut the rest. It may be called again.
func (g *Gateway) Drain(ctx context.Context, over time.Duration) error { return nil }

// Collectors are the gateway's metrics.
func (g *Gateway) Collectors() []prometheus.Collector { return nil }

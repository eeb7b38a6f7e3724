package batch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"imbench/server/internal/im"
)

type pendingClaim struct {
	claim  im.RouteClaim
	result chan im.RouteResult // unbuffered: the caller takes it, or has gone
	gone   <-chan struct{}     // the caller's context
}

// Claimer gathers route claims, and releases, and writes them in bulk.
type Claimer struct {
	store Store
	cfg   ClaimerConfig
	ctx   context.Context // of the calls to the store; ends when Close runs out of time
	stop  context.CancelFunc

	claims   *collector[pendingClaim]
	releases *collector[im.Route]

	claimed, released counters
}

// NewClaimer starts its workers; Close ends them.
func NewClaimer(store Store, cfg ClaimerConfig) *Claimer {
	cfg.MaxBatch, cfg.Queue = or(cfg.MaxBatch, 256), or(cfg.Queue, 16384)
	cfg.Window, cfg.Timeout = or(cfg.Window, 5*time.Millisecond), or(cfg.Timeout, 10*time.Second)
	c := &Claimer{store: store, cfg: cfg}
	c.ctx, c.stop = context.WithCancel(context.Background())
	window := func(int) time.Duration { return cfg.Window }
	c.claims = newCollector(cfg.Queue, cfg.MaxBatch, window, c.flushClaims).start()
	c.releases = newCollector(cfg.Queue, cfg.MaxBatch, window, c.flushReleases).start()
	return c
}

// Claim asks for a device's route and waits for the outcome. The error is the result's: im.ErrUnknownDevice,
// im.ErrStaleInstall or im.ErrUnavailable. When ctx ends first the outcome is im.ErrUnavailable, and the route is
// released again should it have been claimed.
func (c *Claimer) Claim(ctx context.Context, claim im.RouteClaim) (im.RouteResult, error) {
	p := pendingClaim{claim, make(chan im.RouteResult), ctx.Done()}
	c.claimed.waiting.Add(1)
	if !c.claims.add(p) {
		c.claimed.waiting.Add(-1)
		c.claimed.refused.Add(1)
		return im.RouteResult{Err: errFull}, errFull
	}
	select {
	case r := <-p.result:
		return r, r.Err
	case <-ctx.Done():
		err := fmt.Errorf("%w: %w", im.ErrUnavailable, ctx.Err())
		return im.RouteResult{Err: err}, err
	}
}

// Release queues the release of a route and returns at once. It is best effort: a release that is refused (the queue is
// full, or the Claimer closed) or fails leaves a route that the device's next claim replaces, and DropLease removes.
func (c *Claimer) Release(route im.Route) {
	if !c.releases.add(route) {
		c.released.refused.Add(1)
	}
}

func (c *Claimer) flushClaims(batch []pendingClaim) {
	claims := make([]im.RouteClaim, len(batch))
	for i, p := range batch {
		claims[i] = p.claim
	}
	res := inHalves(claims, func(part []im.RouteClaim) ([]im.RouteResult, error) {
		ctx, cancel := context.WithTimeout(c.ctx, c.cfg.Timeout)
		defer cancel()
		began := time.Now()
		res, err := c.store.ClaimRoutes(ctx, part)
		c.claimed.call(len(part), began)
		return res, err
	}, func(err error) im.RouteResult { return im.RouteResult{Err: known(err)} })
	for i, p := range batch {
		if errors.Is(res[i].Err, im.ErrUnavailable) {
			c.claimed.failed.Add(1)
		}
		c.claimed.waiting.Add(-1)
		select {
		case p.result <- res[i]:
		case <-p.gone:
			if res[i].Err == nil {
				c.Release(im.Route{Device: p.claim.Device, Generation: res[i].Generation})
			}
		}
	}
}

func (c *Claimer) flushReleases(batch []im.Route) {
	ctx, cancel := context.WithTimeout(c.ctx, c.cfg.Timeout)
	defer cancel()
	began := time.Now()
	err := c.store.ReleaseRoutes(ctx, batch)
	c.released.call(len(batch), began)
	if err != nil {
		c.released.failed.Add(int64(len(batch)))
	}
}

// Stats is a snapshot of the counters.
func (c *Claimer) Stats() ClaimerStats {
	s := ClaimerStats{Claims: c.claimed.snapshot(), Releases: c.released.snapshot()}
	s.Releases.Waiting = int64(c.releases.waiting())
	return s
}

// Close refuses new claims and releases, writes those that wait, and returns when all goroutines have ended. When ctx
// ends first, the rest gets im.ErrUnavailable and Close returns the context's error. It may be called twice.
func (c *Claimer) Close(ctx context.Context) error {
	defer c.stop()
	c.claims.close()
	err := join(ctx, c.stop, c.claims.done)
	c.releases.close() // only now: an abandoned claim is released by its flush
	return errors.Join(err, join(ctx, c.stop, c.releases.done))
}

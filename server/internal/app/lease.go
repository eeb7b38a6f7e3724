package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"imbench/server/internal/batch"
	"imbench/server/internal/hub"
	"imbench/server/internal/im"
)

const (
	// assertAtOnce is how many routes one call to the store asserts.
	assertAtOnce = 1000
	// assertEvery is how often all routes are compared with the store's without a reason: it finds a device that has
	// connected elsewhere when the announcement of that was lost.
	assertEvery = time.Minute
	// leaseParts: a lease is renewed when this part of it has passed, so that two renewals may fail.
	leaseParts = 3
)

// leases is where a gateway's lease is kept, and what tells of another process of its id; *postgres.Store is it.
type leases interface {
	im.Leases
	// LeaseElsewhere says which lease of this id is in force, if it is another than the given one; until is zero if none is.
	LeaseElsewhere(ctx context.Context, gateway, lease string) (holder string, until time.Time, err error)
	// Connected says whether a connection of this application name is there.
	Connected(ctx context.Context, application string) (bool, error)
}

// lease is this gateway's lease and the care of its routes. One goroutine (keep) writes; token and away may be asked from any.
type lease struct {
	store   leases
	ping    func(ctx context.Context) error
	hub     *hub.Hub
	release func(im.Route)
	gateway string
	ttl     time.Duration
	up      *atomic.Bool  // whether the database answers
	at      *atomic.Int64 // when the lease was last renewed, in nanoseconds since 1970: for the metrics
	log     *slog.Logger

	taken func() // another process of this gateway id has the lease, and lives
	rival rival
	away  atomic.Bool // another process of this gateway id has the lease

	now    atomic.Pointer[string] // the token
	assert chan struct{}          // capacity 1: all routes are to be asserted

	renewed  time.Time      // when the lease was, by this process's clock: it says when to ask, and judges nothing
	todo     []im.HeldRoute // routes that are still to be asserted in this round
	asserted time.Time      // when the last round began
	lapses   atomic.Int64   // times that the lease was lost: it had lapsed, or another process had it
	again    atomic.Int64   // routes asserted
	lost     atomic.Int64   // connections closed because their devices were claimed elsewhere
}

// token is that of the lease as it is now.
func (l *lease) token() string { return *l.now.Load() }

// drop gives the lease up.
func (l *lease) drop(ctx context.Context) error { return l.store.DropLease(ctx, l.gateway, l.token()) }

// assertSoon has all routes asserted: announcements of routes may have been missed.
func (l *lease) assertSoon() {
	select {
	case l.assert <- struct{}{}:
	default:
	}
}

// keep renews the lease, and by that learns whether the database answers. When it finds that the lease had lapsed it
// asserts the routes of all connections: others may have cleared them.
func (l *lease) keep(ctx context.Context) {
	probe := min(time.Second, l.ttl/(leaseParts+1))
	tick := time.NewTicker(probe)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.assert:
			l.round()
		case <-tick.C:
			if time.Since(l.asserted) >= assertEvery && len(l.todo) == 0 {
				l.round()
			}
		}
		l.step(ctx, max(2*probe, time.Second))
	}
}

// step renews the lease if it is time, else looks whether the database answers; and asserts what is to be asserted, until
// the lease is due again. Each call to the store may take limit.
func (l *lease) step(ctx context.Context, limit time.Duration) {
	call := func(do func(context.Context) error) error {
		call, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		return do(call)
	}
	do := l.renew
	if !l.due() && l.up.Load() {
		do = l.ping
	}
	err := call(do)
	if ctx.Err() != nil {
		return
	}
	if up := err == nil; l.up.Swap(up) != up {
		l.log.Warn("the database", "answers", up, "error", err)
	}
	for err == nil && len(l.todo) > 0 && !l.due() && !l.away.Load() {
		err = call(l.assertSome)
	}
	if err != nil && l.up.Load() && ctx.Err() == nil {
		l.log.Warn("routes could not be asserted; trying again", "error", err)
	}
}

// due says whether it is time to renew.
func (l *lease) due() bool { return time.Since(l.renewed) >= l.ttl/leaseParts }

// renew renews the lease, or takes it again if it has lapsed. One that another process of this gateway id holds is left to
// it: as soon as that process is seen to live, this one ends.
func (l *lease) renew(ctx context.Context) error {
	old := l.token()
	now, err := l.store.RenewLease(ctx, l.gateway, old, l.ttl)
	if errors.Is(err, im.ErrLeaseHeld) {
		return l.watch(ctx, old)
	}
	if err != nil {
		return err
	}
	l.renewed, l.rival = time.Now(), rival{}
	l.at.Store(l.renewed.UnixNano())
	counted := l.away.Swap(false)
	if now != old {
		l.now.Store(&now)
		if !counted {
			l.lapses.Add(1)
		}
		l.log.Warn("the lease had lapsed: the routes of all connections are asserted again")
		l.round()
	}
	return nil
}

// watch looks at the lease of another process of this gateway id. While that is in force the routes are that process's, and
// this one asserts none.
func (l *lease) watch(ctx context.Context, own string) error {
	_, until, err := l.store.LeaseElsewhere(ctx, l.gateway, own)
	if err != nil {
		return err
	}
	if !l.away.Swap(true) {
		l.lapses.Add(1)
		l.log.Warn("the lease is held by another process of this gateway id: devices are turned away until it lapses, or until that process is seen to live", "until", until)
	}
	if l.rival.lives(until) {
		l.taken()
	}
	if !until.IsZero() { // else it has just lapsed
		l.renewed = time.Now() // looked at again when it would have been renewed
	}
	return nil
}

// round begins to assert all routes.
func (l *lease) round() {
	l.todo, l.asserted = l.hub.Routes(), time.Now()
}

// assertSome asserts a bounded number of routes. A connection whose device was claimed elsewhere is closed (4003); one that
// has gone meanwhile may have been released before its route was written, and is released again.
func (l *lease) assertSome(ctx context.Context) error {
	n := min(len(l.todo), assertAtOnce)
	part := l.todo[:n]
	lost, err := l.store.AssertRoutes(ctx, l.gateway, part)
	if err != nil {
		return err
	}
	l.todo = l.todo[n:]
	l.again.Add(int64(n - len(lost)))
	gone := make(map[string]bool, len(lost))
	for _, device := range lost {
		gone[device] = true
	}
	for _, r := range part {
		switch {
		case gone[r.Device]:
			if l.hub.Holds(r.Route) {
				l.lost.Add(1)
				l.hub.RouteTaken(r.Device, r.Generation+1)
			}
		case !l.hub.Holds(r.Route):
			l.release(r.Route)
		}
	}
	return nil
}

// claims is what connections ask for their routes: under the lease that is in force when they ask.
type claims struct {
	*batch.Claimer
	lease *lease
}

// Claim is batch.Claimer's.
func (c claims) Claim(ctx context.Context, claim im.RouteClaim) (im.RouteResult, error) {
	claim.Lease = c.lease.token()
	return c.Claimer.Claim(ctx, claim)
}

// takeLease announces the gateway in the database, once no other process has its id. Its row is there before it looks for a
// run of restore-epoch, which looks for such rows before it begins. After an error stop gives it up.
func (p *process) takeLease(ctx context.Context) error {
	p.lease = &lease{store: p.store, ping: p.store.Ping, gateway: p.cfg.gatewayID, ttl: p.cfg.lease, up: &p.dbUp, at: &p.leaseRenewed, log: p.log,
		taken: func() { p.end(errTaken) }, assert: make(chan struct{}, 1)}
	err := p.lease.begin(ctx)
	restoring := false
	if err == nil {
		restoring, err = p.store.EpochRun(ctx)
	}
	switch {
	case errors.Is(err, errTaken):
		return err
	case err != nil:
		return fmt.Errorf("the gateway cannot be announced in the database: %w", err)
	case restoring:
		return errRestoring
	}
	return nil
}

var errRestoring = errors.New(`"server restore-epoch" runs on this database, or was interrupted: let it end, or run it again; gateways start after it`)

// receiver is the hub as the bus tells it what others announce. What may have been missed may have been a route too.
type receiver struct {
	*hub.Hub
	lease *lease
}

// Resync is bus.Receiver's.
func (r receiver) Resync() {
	r.Hub.Resync()
	r.lease.assertSoon()
}

package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"imbench/server/internal/batch"
	"imbench/server/internal/bus"
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

// lease is this gateway's lease and the care of its routes. One goroutine (keep) writes; token may be asked from any.
type lease struct {
	store   im.Leases
	ping    func(ctx context.Context) error
	hub     *hub.Hub
	release func(im.Route)
	gateway string
	ttl     time.Duration
	up      *atomic.Bool  // whether the database answers
	at      *atomic.Int64 // when the lease was last renewed, in nanoseconds since 1970: for the metrics
	log     *slog.Logger

	elsewhere func(ctx context.Context, gateway, lease, application string) (until time.Time, connected bool, err error)
	taken     func() // another process of this gateway id has the lease, and lives
	rival     rival

	now    atomic.Pointer[string] // the token
	assert chan struct{}          // capacity 1: all routes are to be asserted

	renewed  time.Time      // when the lease was, by this process's clock: it says when to ask, and judges nothing
	todo     []im.HeldRoute // routes that are still to be asserted in this round
	asserted time.Time      // when the last round began
	lapses   atomic.Int64   // times that the lease had lapsed, or was another process's
	again    atomic.Int64   // routes asserted
	lost     atomic.Int64   // connections closed because their devices were claimed elsewhere
}

// token is that of the lease as it is now.
func (l *lease) token() string { return *l.now.Load() }

// begin takes the lease; what was routed to another process of this gateway's name is cleared.
func (l *lease) begin(ctx context.Context) error {
	now, err := l.store.RenewLease(ctx, l.gateway, "", l.ttl)
	if err != nil {
		return err
	}
	l.now.Store(&now)
	l.renewed, l.asserted = time.Now(), time.Now()
	l.at.Store(l.renewed.UnixNano())
	return nil
}

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
	for err == nil && len(l.todo) > 0 && !l.due() {
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
	until, _, err := l.elsewhere(ctx, l.gateway, old, "")
	if err != nil {
		return err
	}
	known := !l.rival.until.IsZero()
	if l.rival.lives(until) {
		l.taken()
	}
	if !until.IsZero() {
		l.renewed = time.Now() // looked at again when it would have been renewed
		if !known {
			l.log.Warn("the lease is held by another process of this gateway id: devices are turned away until it lapses, or until that process is seen to live", "until", until)
		}
		return nil
	}
	now, err := l.store.RenewLease(ctx, l.gateway, old, l.ttl)
	if err != nil {
		return err
	}
	l.renewed = time.Now()
	l.at.Store(l.renewed.UnixNano())
	if now != old {
		l.now.Store(&now)
		l.lapses.Add(1)
		l.log.Warn("the lease had lapsed: the routes of all connections are asserted again")
		l.round()
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

// rival is another process with this gateway's id, as its lease shows it.
type rival struct{ until time.Time }

// lives says whether the other process has renewed its lease since it was looked at last; until is zero when there is none.
func (r *rival) lives(until time.Time) bool {
	before := r.until
	r.until = until
	return !before.IsZero() && until.After(before)
}

// takeLease announces the gateway in the database, once no other process has its id. Its row is there before it looks for a
// run of restore-epoch, which looks for such rows before it begins.
func (p *process) takeLease(ctx context.Context) error {
	p.lease = &lease{store: p.store, ping: p.store.Ping, gateway: p.cfg.gatewayID, ttl: p.cfg.lease, up: &p.dbUp, at: &p.leaseRenewed, log: p.log,
		elsewhere: p.store.LeaseElsewhere, taken: func() { p.end(errTaken) }, assert: make(chan struct{}, 1)}
	err := p.lease.await(ctx)
	if err == nil {
		err = p.lease.begin(ctx)
	}
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
		drop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		return errors.Join(errRestoring, p.lease.drop(drop))
	}
	return nil
}

// lookAgain is how often a gateway that starts looks at the lease of another process.
const lookAgain = 50 * time.Millisecond

// await waits until no other process of this gateway id is there. One that has ended without giving up its lease has no
// connection any more, and is not waited for; one that is connected either renews its lease, which is an error, or hangs, and
// loses it when the lease lapses.
func (l *lease) await(ctx context.Context) error {
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	for first := true; ; first = false {
		until, connected, err := l.elsewhere(ctx, l.gateway, "", bus.ListenerName(l.gateway))
		switch {
		case err != nil:
			return err
		case l.rival.lives(until):
			return errTaken
		case until.IsZero() || !connected:
			l.rival = rival{}
			return nil
		case first:
			l.log.Warn("another process has this gateway id: waiting to see whether it lives, or for its lease to lapse", "until", until)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

var errTaken = errors.New("another process runs with this gateway id and holds its lease: give each its own -gateway-id (or IM_GATEWAY_ID), or end the other one first")

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

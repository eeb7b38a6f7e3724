package storetest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"imbench/server/internal/im"
)

// begin begins a lease; seen is the token of the one that it may take over.
func (e *env) begin(gateway, seen string, ttl time.Duration) (now string) {
	e.Helper()
	now, err := e.BeginLease(e.ctx, gateway, seen, ttl)
	e.must(err)
	if now == "" || now == seen {
		e.Fatalf("the lease %q of %s is taken over as %q", seen, gateway, now)
	}
	return now
}

// renew renews a lease; it must go on under its token, or not, as said.
func (e *env) renew(gateway, lease string, ttl time.Duration, goesOn bool) (now string) {
	e.Helper()
	now, err := e.RenewLease(e.ctx, gateway, lease, ttl)
	e.must(err)
	if now == "" || (now == lease) != goesOn {
		e.Fatalf("the lease %q of %s is %q when it is renewed, want one that goes on: %v", lease, gateway, now, goesOn)
	}
	return now
}

// wantLost asserts that these routes of the gateway's are held; some are lost.
func (e *env) wantLost(gateway string, held []im.HeldRoute, want ...string) {
	e.Helper()
	lost, err := e.AssertRoutes(e.ctx, gateway, held)
	e.must(err)
	slices.Sort(lost)
	if !slices.Equal(lost, want) {
		e.Fatalf("%s has lost %q, want %q", gateway, lost, want)
	}
}

func held(p im.Principal, generation, conn int64) im.HeldRoute {
	return im.HeldRoute{Route: im.Route{Device: p.Device, Generation: generation}, Conn: conn}
}

// lapsed is a time to live after which a lease has lapsed for long, in which nobody need wait.
const lapsed = -time.Hour

func leaseLapsed(e *env) {
	e.direct()
	dead := e.begin("dead", "", time.Hour)
	live := e.begin("live", "", time.Hour)
	e.wantRoute(claim(ana, "dead", 1), 1, "")
	e.wantRoute(claim(ben, "live", 1), 1, "")
	// One that is in force, also one that is over for less than a third of the caller's time, keeps its routes.
	live = e.renew("live", live, time.Hour, true)
	dead = e.renew("dead", dead, -10*time.Minute, true)
	live = e.renew("live", live, time.Hour, true)
	e.wantRoute(claim(ana, "dead", 2), 2, "dead")
	// Whose lease has lapsed begins another, and clears nobody: the rest may have had no better luck.
	other := e.begin("other", "", lapsed)
	e.wantRoute(claim(ben, "other", 1), 2, "live")
	dead = e.renew("dead", dead, time.Hour, false)
	e.wantRoute(claim(ben, "dead", 1), 3, "other")
	e.renew("other", other, lapsed, false)
	e.wantRoute(claim(ben, "other", 2), 4, "dead")
	// The next renewal clears.
	e.renew("live", live, time.Hour, true)
	e.wantRoute(claim(ben, "live", 3), 5, "")
	e.wantRoute(claim(ana, "live", 4), 3, "dead")
	// A lease that is another's by now drops nothing.
	e.must(e.DropLease(e.ctx, "live", dead))
	e.wantRoute(claim(ana, "live", 5), 4, "live")
	e.must(e.DropLease(e.ctx, "live", live))
	e.wantRoute(claim(ana, "live", 6), 5, "")
}

// leaseBegins: what was routed to a process that has ended is not routed to the next one of its name.
func leaseBegins(e *env) {
	e.direct()
	first := e.begin("g1", "", time.Hour)
	e.wantRoute(claim(ana, "g1", 1), 1, "")
	e.begin("g2", "", time.Hour)
	e.wantRoute(claim(ben, "g2", 1), 1, "")
	_, err := e.BeginLease(e.ctx, "g1", "", time.Hour) // it may live
	e.wantErr(err, im.ErrLeaseHeld)
	e.wantRoute(claim(ana, "g1", 2), 2, "g1")
	second := e.begin("g1", first, time.Hour)
	e.wantRoute(claim(ana, "g1", 3), 3, "")
	e.wantRoute(claim(ben, "g2", 2), 2, "g2")
	e.must(e.DropLease(e.ctx, "g1", second))
	e.wantRoute(claim(ana, "g1", 4), 4, "")
}

// leaseOfTwo: of two processes with one name none takes a lease that is in force from the other, whatever it believes.
func leaseOfTwo(e *env) {
	e.direct()
	first := e.begin("g1", "", time.Hour)
	second := e.begin("g1", first, time.Hour) // the first one was taken for gone
	e.wantRoute(claim(ana, "g1", 1), 1, "")
	held := func(err error) {
		e.Helper()
		e.wantErr(err, im.ErrLeaseHeld)
		mine := claim(ana, "g1", 2) // the routes were left alone, and so was the lease
		mine.Lease = second
		if r := e.claim(mine); r.Err != nil || r.PrevGateway != "g1" {
			e.Fatalf("a claim under the lease in force: %+v", r)
		}
	}
	_, err := e.RenewLease(e.ctx, "g1", first, time.Hour)
	held(err)
	_, err = e.BeginLease(e.ctx, "g1", first, time.Hour)
	held(err)
	e.must(e.DropLease(e.ctx, "g1", first))
	held(im.ErrLeaseHeld)
	// When it has lapsed it is whose asks first, and the other one's turn to wait.
	e.renew("g1", second, lapsed, true)
	first = e.renew("g1", first, time.Hour, false)
	_, err = e.RenewLease(e.ctx, "g1", second, time.Hour)
	e.wantErr(err, im.ErrLeaseHeld)
	e.renew("g1", first, lapsed, true)
	e.begin("g1", "", time.Hour) // also for who begins
	_, err = e.RenewLease(e.ctx, "g1", first, time.Hour)
	e.wantErr(err, im.ErrLeaseHeld)
}

// leaseOrphans: a route to a gateway of which nothing is known is cleared too.
func leaseOrphans(e *env) {
	e.direct()
	live := e.begin("m", "", time.Hour)
	e.wantRoute(claim(ana, "a", 1), 1, "")
	e.wantRoute(claim(ben, "z", 1), 1, "")
	e.wantRoute(claim(im.Principal{User: "u-ana", Device: "u-ana-d2", Install: 1}, "m", 1), 1, "")
	e.renew("m", live, time.Hour, true)
	e.wantRoute(claim(ana, "m", 2), 2, "")
	e.wantRoute(claim(ben, "m", 3), 2, "")
	e.wantRoute(claim(im.Principal{User: "u-ana", Device: "u-ana-d2", Install: 1}, "m", 4), 2, "m")
}

// lateClaimFenced: a claim made under a lease that has lapsed since does not take the device from where it is.
func lateClaimFenced(e *env) {
	e.direct()
	first := e.begin("g1", "", time.Hour)
	early := claim(ana, "g1", 1)
	early.Lease = first
	e.wantRoute(early, 1, "")
	e.renew("g1", first, lapsed, true)
	e.wantErr(e.claim(early).Err, im.ErrUnavailable) // it has lapsed
	e.wantRoute(claim(ana, "g2", 1), 2, "g1")
	second := e.renew("g1", first, time.Hour, false)
	e.wantErr(e.claim(early).Err, im.ErrUnavailable) // and goes on as another
	stale := early
	stale.Install = 0
	e.wantErr(e.claim(stale).Err, im.ErrStaleInstall)
	elsewhere := early
	elsewhere.Gateway, elsewhere.Lease = "g2", second
	e.wantErr(e.claim(elsewhere).Err, im.ErrUnavailable) // it is not g2's
	// A batch has both kinds; the refused one has changed nothing.
	late, now := early, claim(ben, "g1", 2)
	now.Lease = second
	res, err := e.ClaimRoutes(e.ctx, []im.RouteClaim{late, now})
	e.must(err)
	if !errors.Is(res[0].Err, im.ErrUnavailable) || res[1].Err != nil || res[1].Generation != 1 {
		e.Fatalf("a late claim and one of now: %+v", res)
	}
	e.wantRoute(claim(ana, "g2", 2), 3, "g2")
}

func routesAsserted(e *env) {
	e.direct()
	e.wantRoute(claim(ana, "g1", 7), 1, "")
	e.wantRoute(claim(ben, "g1", 8), 1, "")
	mine := []im.HeldRoute{held(ana, 1, 7), held(ben, 1, 8)}
	e.wantLost("g1", mine) // nothing is missing
	e.wantLost("g1", nil)
	e.must(e.ReleaseRoutes(e.ctx, []im.Route{mine[0].Route, mine[1].Route}))
	e.wantLost("g1", mine)
	e.send(ana, "c1", "k1", "x")
	lags, err := e.lagging("g1", 0, time.Hour, 10)
	if e.must(err); len(lags) != 2 {
		e.Fatalf("routes that were asserted are looked at by the sweep: %+v", lags)
	}
	e.wantRoute(claim(ana, "g2", 1), 2, "g1")
	e.wantLost("g1", append(mine, im.HeldRoute{Route: im.Route{Device: "none", Generation: 1}}), "none", "u-ana-d1")
	e.wantRoute(claim(ana, "g3", 1), 3, "g2")
	// Also a device that has left where it connected later is not taken back.
	e.must(e.ReleaseRoutes(e.ctx, []im.Route{{Device: "u-ana-d1", Generation: 3}}))
	e.wantLost("g1", mine, "u-ana-d1")
	e.wantLost("g2", []im.HeldRoute{held(ana, 2, 1)}, "u-ana-d1")
	e.wantRoute(claim(ana, "g2", 3), 4, "")
}

// routesAssertedAgainstClaims: while one gateway asserts and another claims, whoever was claimed stays where he is.
func routesAssertedAgainstClaims(e *env) {
	var users []string
	for i := range 40 {
		users = append(users, fmt.Sprintf("u%02d", i))
	}
	e.provision(users)
	var mine []im.HeldRoute
	for i, u := range users {
		e.wantRoute(claim(user(u), "g1", int64(i)), 1, "")
		mine = append(mine, held(user(u), 1, int64(i)))
	}
	var gone []im.Route
	for _, r := range mine {
		gone = append(gone, r.Route)
	}
	e.must(e.ReleaseRoutes(e.ctx, gone))
	e.parallel(2, func(g int) {
		if g == 0 {
			for range 20 {
				if _, err := e.AssertRoutes(e.ctx, "g1", mine); err != nil {
					e.Error(err)
				}
			}
			return
		}
		for i := len(users) - 1; i >= 0; i -= 2 { // in the other order
			if res, err := e.ClaimRoutes(e.ctx, []im.RouteClaim{claim(user(users[i]), "g2", 1)}); err != nil || res[0].Err != nil {
				e.Errorf("claim: %+v, %v", res, err)
			}
		}
	})
	var lost []string
	for i := 1; i < len(users); i += 2 {
		lost = append(lost, user(users[i]).Device)
	}
	e.wantLost("g1", mine, lost...)
	for i, u := range users {
		want := []string{"g1", "g2"}[i%2]
		if r := e.claim(claim(user(u), "g3", 1)); r.Err != nil || r.PrevGateway != want {
			e.Fatalf("%s was at %q (%v), want %q", u, r.PrevGateway, r.Err, want)
		}
	}
}

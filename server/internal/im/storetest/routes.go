package storetest

import (
	"fmt"
	"time"

	"imbench/server/internal/im"
)

func claim(p im.Principal, gateway string, conn int64) im.RouteClaim {
	return im.RouteClaim{User: p.User, Device: p.Device, Install: p.Install, Gateway: gateway, Conn: conn}
}

func (e *env) claim(c im.RouteClaim) im.RouteResult {
	e.Helper()
	res, err := e.ClaimRoutes(e.ctx, []im.RouteClaim{c})
	e.must(err)
	return res[0]
}

func (e *env) wantRoute(c im.RouteClaim, gen int64, prev string) {
	e.Helper()
	if r := e.claim(c); r.Err != nil || r.Generation != gen || r.PrevGateway != prev {
		e.Fatalf("claim: %+v, want generation %d, previous gateway %q", r, gen, prev)
	}
}

func routesGenerations(e *env) {
	e.direct()
	e.wantRoute(claim(ana, "g1", 1), 1, "")
	e.wantRoute(claim(ana, "g2", 2), 2, "g1")
	e.wantRoute(claim(ana, "g2", 3), 3, "g2")
	e.wantRoute(claim(ben, "g1", 1), 1, "")
	e.wantErr(e.claim(im.RouteClaim{User: "u-ana", Device: "none", Install: 1, Gateway: "g1"}).Err, im.ErrUnknownDevice)
	e.wantErr(e.claim(im.RouteClaim{User: "u-ben", Device: "u-ana-d1", Install: 1, Gateway: "g1"}).Err, im.ErrUnknownDevice)
	e.wantErr(e.claim(im.RouteClaim{User: "u-ana", Device: "a\x00", Install: 1, Gateway: "g1"}).Err, im.ErrUnknownDevice)
}

func lateReleaseFenced(e *env) {
	e.direct()
	e.wantRoute(claim(ana, "g1", 1), 1, "")
	e.wantRoute(claim(ana, "g2", 1), 2, "g1")
	e.must(e.ReleaseRoutes(e.ctx, []im.Route{{Device: "u-ana-d1", Generation: 1}})) // too late: it is g2's now
	e.wantRoute(claim(ana, "g1", 2), 3, "g2")
	e.must(e.ReleaseRoutes(e.ctx, []im.Route{{Device: "u-ana-d1", Generation: 3}}))
	// Generations go on after a release: a release that is later still hits nothing.
	e.wantRoute(claim(ana, "g1", 3), 4, "")
	e.must(e.ReleaseRoutes(e.ctx, []im.Route{{Device: "u-ana-d1", Generation: 2}, {Device: "u-ana-d1", Generation: 3}, {Device: "none", Generation: 1}}))
	e.wantRoute(claim(ana, "g1", 4), 5, "g1")
}

func routesInstall(e *env) {
	e.direct()
	fresh := ana
	fresh.Install = 2
	e.wantRoute(claim(fresh, "g1", 1), 1, "")
	e.wantErr(e.claim(claim(ana, "g2", 1)).Err, im.ErrStaleInstall)
	e.wantRoute(claim(fresh, "g1", 2), 2, "g1") // the refused claim changed nothing
}

func routesMany(e *env) {
	var users []string
	for i := range 50 {
		users = append(users, fmt.Sprintf("u%02d", i))
	}
	e.provision(users)
	// Two gateways claim the same devices in opposite order, again and again: no deadlock, and no generation twice.
	var gens [2][][]im.RouteResult
	e.parallel(2, func(g int) {
		for round := range 5 {
			var claims []im.RouteClaim
			for i := range users {
				if g == 1 {
					i = len(users) - 1 - i
				}
				claims = append(claims, claim(user(users[i]), fmt.Sprintf("g%d", g), int64(round)))
			}
			claims = append(claims, claims[0]) // and one of them twice
			res, err := e.ClaimRoutes(e.ctx, claims)
			if err != nil {
				e.Error(err)
				return
			}
			if res[len(users)].Generation <= res[0].Generation {
				e.Errorf("the second claim of a batch has generation %d, the first %d", res[len(users)].Generation, res[0].Generation)
			}
			if g == 1 {
				for i, j := 0, len(users)-1; i < j; i, j = i+1, j-1 {
					res[i], res[j] = res[j], res[i]
				}
			}
			gens[g] = append(gens[g], res[:len(users)])
		}
	})
	for i, u := range users {
		seen := map[int64]bool{}
		for g := range gens {
			for _, res := range gens[g] {
				if res[i].Err != nil || seen[res[i].Generation] {
					e.Fatalf("%s: %+v, or this generation twice", u, res[i])
				}
				seen[res[i].Generation] = true
			}
		}
	}
}

// lagging is what the repair sweep asks when it was told of nothing.
func (e *env) lagging(gateway string, older, window time.Duration, limit int) ([]im.Lag, error) {
	written, err := e.Written(e.ctx, older, window)
	if err != nil {
		return nil, err
	}
	return e.Lagging(e.ctx, gateway, written, limit)
}

func recentLag(e *env) {
	e.provision([]string{"u-ana", "u-ben", "u-cyn"},
		Conv{"c1", "group", im.Push, []string{"u-ana", "u-ben"}}, Conv{"c2", "group", im.Pull, []string{"u-ana", "u-ben", "u-cyn"}})
	other := im.Principal{User: "u-ben", Device: "u-ben-d2", Install: 1}
	for _, c := range []im.RouteClaim{claim(ana, "g1", 1), claim(ben, "g1", 2), claim(other, "g2", 1)} {
		e.must(e.claim(c).Err)
	}
	want := func(gateway string, older, window time.Duration, want ...im.Lag) {
		e.Helper()
		got, err := e.lagging(gateway, older, window, 100)
		e.must(err)
		rest := map[im.Lag]bool{}
		for _, l := range want {
			rest[l] = true
		}
		for _, l := range got {
			if !rest[l] {
				e.Errorf("%s: unexpected %+v", gateway, l)
			}
			delete(rest, l)
		}
		for l := range rest {
			e.Errorf("%s: %+v is missing", gateway, l)
		}
	}
	want("g1", 0, time.Hour)     // provisioned at head
	e.send(ana, "c1", "k1", "x") // 3
	e.send(ana, "c2", "k1", "x") // 4
	a1, a2 := im.Lag{Device: "u-ana-d1", Conv: "c1", Delivered: 2, Head: 3, Mode: im.Push}, im.Lag{Device: "u-ana-d1", Conv: "c2", Delivered: 3, Head: 4, Mode: im.Pull}
	b1, b2 := a1, a2
	b1.Device, b2.Device = "u-ben-d1", "u-ben-d1"
	want("g1", 0, time.Hour, a1, a2, b1, b2)
	want("g1", time.Hour, time.Hour) // nothing is that old
	o1, o2 := b1, b2
	o1.Device, o2.Device = "u-ben-d2", "u-ben-d2"
	want("g2", 0, time.Hour, o1, o2)
	want("g3", 0, time.Hour)
	e.wantAck(ben, "c1", 3, 3)
	e.wantAck(ana, "c2", 4, 4)
	want("g1", 0, time.Hour, a1, b2)
	// A new installation has delivered nothing, whatever the old one had.
	fresh := ben
	fresh.Install = 2
	e.must(e.claim(claim(fresh, "g1", 3)).Err)
	b1.Delivered, b2.Delivered = 0, 0
	want("g1", 0, time.Hour, a1, b1, b2)
	got, err := e.lagging("g1", 0, time.Hour, 2)
	if e.must(err); len(got) != 2 {
		e.Errorf("limit 2: %d rows", len(got))
	}
}

func recentLagPastMember(e *env) {
	e.setup("g1", []string{"u-ana", "u-ben", "u-cyn"}, 2)
	e.must(e.claim(claim(ben, "gw", 1)).Err)
	e.must(e.claim(claim(cyn, "gw", 2)).Err)
	_, err := e.Leave(e.ctx, ana, "g1", "u-ben") // 3
	e.must(err)
	e.fill(ana, "g1", 3) // 4..6
	got, err := e.lagging("gw", 0, time.Hour, 10)
	e.must(err)
	if len(got) != 1 || got[0] != (im.Lag{Device: "u-ben-d1", Conv: "g1", Delivered: 2, Head: 3, Mode: im.Push}) {
		e.Fatalf("the one who left lacks the own leave, and no more: %+v", got)
	}
	e.wantAck(ben, "g1", 3, 3)
	if got, err = e.lagging("gw", 0, time.Hour, 10); err != nil || len(got) != 0 {
		e.Fatalf("%+v, %v", got, err)
	}
	seq, err := e.Join(e.ctx, ana, "g1", "u-cyn") // a newcomer has no cursor: delivered 0
	e.must(err)
	if got, err = e.lagging("gw", 0, time.Hour, 10); err != nil || len(got) != 1 || got[0].Device != "u-cyn-d1" || got[0].Delivered != 0 || got[0].Head != seq {
		e.Fatalf("%+v, %v", got, err)
	}
}

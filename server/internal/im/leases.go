package im

import (
	"context"
	"time"
)

// A gateway's lease is one unbroken chain of renewals, and has a token: a lease that lapsed, or that another process of
// the same gateway id took, goes on under a new one. Whether it has lapsed is judged by the database's clock alone. So
// what a gateway asked for before it was stopped for too long can be told from what it asks for now.

// RouteClaim asks for a device's route: the connection Conn of Gateway becomes the one valid connection (G1).
type RouteClaim struct {
	User, Device string
	Install      int32
	Gateway      string
	Conn         int64
	Lease        string // the gateway's when the device asked; it must be in force still. "" = is not judged
}

// RouteResult gives the fencing generation, and which gateway held the route before ("" = none). Err is
// ErrUnknownDevice, ErrStaleInstall or ErrUnavailable (also: the claim's lease has lapsed).
type RouteResult struct {
	Generation  int64
	PrevGateway string
	Err         error
}

// Route names a claimed route, for its release.
type Route struct {
	Device     string
	Generation int64
}

// HeldRoute is a route as the gateway knows it whose connection Conn holds it.
type HeldRoute struct {
	Route
	Conn int64
}

// Leases is the part of Store that says which gateway a device is connected to, and which gateways live.
type Leases interface {
	// ClaimRoutes, ReleaseRoutes: bulk; release deletes only rows that still carry the given generation (G2).
	ClaimRoutes(ctx context.Context, claims []RouteClaim) ([]RouteResult, error)
	ReleaseRoutes(ctx context.Context, routes []Route) error
	// AssertRoutes writes those of a gateway's routes again that others cleared while its lease had lapsed. It never
	// takes a device back that was claimed after the given generation, here or elsewhere, whether that later route is
	// there still or not: those devices are lost, in no order, and so are devices that exist no more.
	AssertRoutes(ctx context.Context, gateway string, held []HeldRoute) (lost []string, err error)

	// BeginLease begins a gateway's lease, for ttl: what is routed to it was routed to a process that has ended, and is
	// cleared. A lease in force is taken over only if its token is seen: that of a process which the caller takes for gone
	// ("" = of none). Errors: ErrLeaseHeld if another is in force; nothing was changed then.
	BeginLease(ctx context.Context, gateway, seen string, ttl time.Duration) (lease string, err error)
	// RenewLease keeps a gateway alive for ttl, and returns the token that its lease has now: another than the given one
	// if that was no longer in force. Then routes may have been cleared: see AssertRoutes. Errors: ErrLeaseHeld if another
	// process's lease is in force; nothing was changed then.
	// A call that finds its lease in force also clears the routes of gateways whose lease lapsed more than a third of ttl
	// ago, a bounded number a call. (After the database was away all have lapsed: who comes first leaves the others a
	// period of renewal.)
	RenewLease(ctx context.Context, gateway, lease string, ttl time.Duration) (now string, err error)
	// DropLease removes a gateway and its routes at shutdown, unless its lease is another process's by now.
	DropLease(ctx context.Context, gateway, lease string) error
}

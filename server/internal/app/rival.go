package app

import (
	"context"
	"errors"
	"time"

	"imbench/server/internal/bus"
	"imbench/server/internal/im"
)

// rival is another process with this gateway's id, as its lease shows it.
type rival struct{ until time.Time }

// lives says whether the other process has renewed its lease since it was looked at last; until is zero when there is none.
func (r *rival) lives(until time.Time) bool {
	before := r.until
	r.until = until
	return !before.IsZero() && until.After(before)
}

var errTaken = errors.New("another process runs with this gateway id and holds its lease: give each its own -gateway-id (or IM_GATEWAY_ID), or end the other one first")

// begin waits until no other process of this gateway id is there, and takes the lease; what was routed to such a process is
// cleared.
func (l *lease) begin(ctx context.Context) error {
	for {
		seen, err := l.await(ctx)
		if err != nil {
			return err
		}
		now, err := l.store.BeginLease(ctx, l.gateway, seen, l.ttl)
		switch {
		case errors.Is(err, im.ErrLeaseHeld): // by another than was seen: one that has begun since
			continue
		case err != nil:
			return err
		}
		l.now.Store(&now)
		l.renewed, l.asserted = time.Now(), time.Now()
		l.at.Store(l.renewed.UnixNano())
		return nil
	}
}

const (
	// lookAgain is how often a gateway that starts looks at the lease of another process.
	lookAgain = 50 * time.Millisecond
	// goneAfter is for how long that process must have had no connection to be taken for gone. One whose connection was cut
	// is there again a quarter of a second later, which is the bus's first pause.
	goneAfter = time.Second
)

// await waits until no other process of this gateway id is there, and gives the token of the lease that it has left, if that is
// in force. A process that has ended without giving up its lease has no connection any more, and is not waited for; one that
// is connected either renews its lease, which is an error, or hangs, and loses it when the lease lapses.
func (l *lease) await(ctx context.Context) (left string, err error) {
	defer func() { l.rival = rival{} }()
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	var absent time.Time // since when no look has found it connected; zero: the last one has
	for said := false; ; {
		holder, until, err := l.store.LeaseElsewhere(ctx, l.gateway, "")
		if err != nil || until.IsZero() {
			return "", err
		}
		if l.rival.lives(until) {
			return "", errTaken
		}
		there, err := l.store.Connected(ctx, bus.ListenerName(l.gateway))
		switch {
		case err != nil:
			return "", err
		case there:
			absent = time.Time{}
			if !said {
				l.log.Warn("another process has this gateway id: waiting to see whether it lives, or for its lease to lapse", "until", until)
			}
			said = true
		case absent.IsZero():
			absent = time.Now()
		case time.Since(absent) >= goneAfter:
			return holder, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

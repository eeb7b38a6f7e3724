package app

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"imbench/server/internal/hub"
	"imbench/server/internal/im"
)

// other is a store in which another process has the gateway's lease.
type other struct {
	leases
	start    time.Time
	lasts    time.Duration // the lease, from the start,
	beats    time.Duration // and from each renewal; 0 = there is none
	from, to time.Duration // when the process has a connection, from the start
	hidden   int           // looks at the lease that are too early to see it
	begun    []string      // the leases that BeginLease was to take over
	asserted int           // calls of AssertRoutes
}

func (o *other) look() (token string, until time.Time) {
	until = o.start.Add(o.lasts)
	if o.beats > 0 {
		until = until.Add(time.Since(o.start).Truncate(o.beats))
	}
	if until.After(time.Now()) {
		return "the other's", until
	}
	return "", time.Time{}
}

func (o *other) LeaseElsewhere(context.Context, string, string) (string, time.Time, error) {
	token, until := o.look()
	if o.hidden--; o.hidden >= 0 {
		return "", time.Time{}, nil
	}
	return token, until, nil
}

func (o *other) Connected(context.Context, string) (bool, error) {
	now := time.Since(o.start)
	return now >= o.from && now < o.to, nil
}

func (o *other) BeginLease(_ context.Context, _, seen string, _ time.Duration) (string, error) {
	o.begun = append(o.begun, seen)
	if token, _ := o.look(); token != "" && token != seen {
		return "", im.ErrLeaseHeld
	}
	return "ours", nil
}

func (o *other) RenewLease(_ context.Context, _, token string, _ time.Duration) (string, error) {
	if held, _ := o.look(); held != "" {
		return "", im.ErrLeaseHeld
	}
	return token + " again", nil
}

func (o *other) AssertRoutes(context.Context, string, []im.HeldRoute) ([]string, error) {
	o.asserted++
	return nil, nil
}

func newLease(o *other) *lease {
	return &lease{store: o, hub: new(hub.Hub), gateway: "g", ttl: 15 * time.Second, up: new(atomic.Bool), at: new(atomic.Int64),
		log: slog.New(slog.DiscardHandler), taken: func() {}, release: func(im.Route) {}, assert: make(chan struct{}, 1)}
}

// One that has no connection is gone when that has been so for a second, and not while it connects again; one that is
// connected is waited for until its lease lapses, and one that lives is not to be waited for.
func TestWhoIsGone(t *testing.T) {
	const never, always = -1, 1 << 40
	for name, c := range map[string]struct {
		o    other
		took time.Duration
		seen []string
		err  error
	}{
		"none":                        {o: other{lasts: never, to: never}, seen: []string{""}},
		"gone":                        {o: other{lasts: time.Hour, to: never}, took: goneAfter, seen: []string{"the other's"}},
		"connects again":              {o: other{lasts: 10 * time.Second, from: 500 * time.Millisecond, to: always}, took: 10 * time.Second, seen: []string{""}},
		"connects again, and lives":   {o: other{lasts: time.Hour, beats: 5 * time.Second, from: 500 * time.Millisecond, to: always}, took: 5 * time.Second, err: errTaken},
		"goes while it is waited for": {o: other{lasts: time.Hour, to: 3 * time.Second}, took: 3*time.Second + goneAfter, seen: []string{"the other's"}},
		"begins at the same time":     {o: other{lasts: time.Hour, beats: 5 * time.Second, to: always, hidden: 1}, took: 5 * time.Second, seen: []string{""}, err: errTaken},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := &c.o
				o.start = time.Now()
				l := newLease(o)
				err := l.begin(t.Context())
				if took := time.Since(o.start); !errors.Is(err, c.err) || took != c.took || !slices.Equal(o.begun, c.seen) {
					t.Errorf("%v after %v, taking over %q; want %v after %v, %q", err, took, o.begun, c.err, c.took, c.seen)
				}
				if err == nil && l.token() != "ours" {
					t.Errorf("its lease is %q", l.token())
				}
			})
		})
	}
}

// While another process has the lease, the gateway asserts none of its routes and counts that once; when that lease has
// lapsed it is taken again, and all routes are asserted.
func TestLeaseAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &other{start: time.Now(), lasts: time.Minute}
		l := newLease(o)
		token := "ours"
		l.now.Store(&token)
		l.todo = []im.HeldRoute{{Route: im.Route{Device: "d", Generation: 1}, Conn: 1}}
		for time.Since(o.start) < o.lasts {
			l.step(t.Context(), time.Second)
			if !l.away.Load() || o.asserted != 0 || l.lapses.Load() != 1 || l.token() != "ours" {
				t.Fatalf("away %v, %d calls assert routes, %d lapses, token %s", l.away.Load(), o.asserted, l.lapses.Load(), l.token())
			}
			time.Sleep(l.ttl / leaseParts)
		}
		l.todo = nil
		l.step(t.Context(), time.Second)
		if l.away.Load() || l.lapses.Load() != 1 || l.token() != "ours again" || !l.asserted.Equal(time.Now()) {
			t.Errorf("away %v, %d lapses, token %s, asserted at %v", l.away.Load(), l.lapses.Load(), l.token(), l.asserted)
		}
	})
}

package oracle

import (
	"context"
	"strconv"
	"time"

	"imbench/server/internal/im"
)

// lease is a gateway's; it is in force until then, under this token.
type lease struct {
	token string
	until time.Time
}

// inForce says whether the gateway's lease is, under this token.
func (s *Store) inForce(gateway, token string) bool {
	l, ok := s.gateways[gateway]
	return ok && l.token == token && l.until.After(s.now())
}

// ClaimRoutes makes each claim's connection its device's; see im.Store.
func (s *Store) ClaimRoutes(ctx context.Context, claims []im.RouteClaim) ([]im.RouteResult, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	out := make([]im.RouteResult, len(claims))
	for i, cl := range claims {
		d := s.devices[cl.Device]
		switch {
		case d == nil || d.user != cl.User:
			out[i].Err = im.ErrUnknownDevice
		case d.install > cl.Install:
			out[i].Err = im.ErrStaleInstall
		case cl.Lease != "" && !s.inForce(cl.Gateway, cl.Lease):
			out[i].Err = im.ErrUnavailable
		default:
			if d.route != nil {
				out[i].PrevGateway = d.route.gateway
			}
			d.generation++
			d.install, d.route = cl.Install, &route{cl.Gateway, out[i].PrevGateway, cl.Conn, d.generation, cl.Install}
			out[i].Generation = d.generation
		}
	}
	return out, nil
}

// ReleaseRoutes deletes routes that still carry the given generation; see im.Store.
func (s *Store) ReleaseRoutes(ctx context.Context, routes []im.Route) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	for _, r := range routes {
		if d := s.devices[r.Device]; d != nil && d.route != nil && d.route.generation == r.Generation {
			d.route = nil
		}
	}
	return nil
}

// AssertRoutes writes a gateway's routes again where they are missing; see im.Store.
func (s *Store) AssertRoutes(ctx context.Context, gateway string, held []im.HeldRoute) (lost []string, err error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	for _, r := range held {
		switch d := s.devices[r.Device]; {
		case d == nil || d.generation != r.Generation:
			lost = append(lost, r.Device)
		case d.route == nil:
			d.route = &route{gateway, "", r.Conn, d.generation, d.install}
		}
	}
	return lost, nil
}

// held says whether the gateway's lease is in force, under another token.
func (s *Store) held(gateway, token string) bool {
	l, ok := s.gateways[gateway]
	return ok && l.token != token && l.until.After(s.now())
}

// newLease is one that has not been there before.
func (s *Store) newLease(gateway string, ttl time.Duration) (token string) {
	s.leases++
	token = strconv.Itoa(s.leases)
	s.gateways[gateway] = lease{token, s.now().Add(ttl)}
	return token
}

// BeginLease begins a gateway's lease; see im.Store.
func (s *Store) BeginLease(ctx context.Context, gateway, seen string, ttl time.Duration) (token string, err error) {
	if err := s.begin(ctx); err != nil {
		return "", err
	}
	defer s.mu.Unlock()
	if s.held(gateway, seen) {
		return "", im.ErrLeaseHeld
	}
	s.clearRoutes(gateway)
	return s.newLease(gateway, ttl), nil
}

// RenewLease keeps a gateway alive, and clears the routes of those that are not; see im.Store.
func (s *Store) RenewLease(ctx context.Context, gateway, token string, ttl time.Duration) (now string, err error) {
	if err := s.begin(ctx); err != nil {
		return "", err
	}
	defer s.mu.Unlock()
	switch {
	case s.held(gateway, token):
		return "", im.ErrLeaseHeld
	case !s.inForce(gateway, token):
		return s.newLease(gateway, ttl), nil
	default:
		s.gateways[gateway] = lease{token, s.now().Add(ttl)}
		for g, l := range s.gateways {
			if g != gateway && l.until.Before(s.now().Add(-ttl/3)) {
				delete(s.gateways, g)
			}
		}
		for _, d := range s.devices {
			if d.route != nil {
				if _, known := s.gateways[d.route.gateway]; !known {
					d.route = nil
				}
			}
		}
	}
	return token, nil
}

// DropLease removes a gateway and its routes; see im.Store.
func (s *Store) DropLease(ctx context.Context, gateway, token string) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if l, ok := s.gateways[gateway]; ok && l.token != token {
		return nil
	}
	delete(s.gateways, gateway)
	s.clearRoutes(gateway)
	return nil
}

func (s *Store) clearRoutes(gateway string) {
	for _, d := range s.devices {
		if d.route != nil && d.route.gateway == gateway {
			d.route = nil
		}
	}
}

package app

import (
	"context"
	"net"

	"golang.org/x/time/rate"
)

// acceptBurst is how many connections are accepted at once at most.
const acceptBurst = 16

// pacedListener accepts a bounded number of connections a second. Those beyond wait in the system's queue, which costs
// nothing: to refuse ten thousand devices that come back at once takes a second of work, and if they are all let in to be
// refused, that second is taken from those who are connected.
type pacedListener struct {
	net.Listener
	limit *rate.Limiter
	open  context.Context
	close context.CancelFunc
}

// paced limits l to perSecond connections; 0 = no limit.
func paced(l net.Listener, perSecond int) net.Listener {
	if perSecond == 0 {
		return l
	}
	p := &pacedListener{Listener: l, limit: rate.NewLimiter(rate.Limit(perSecond), acceptBurst)}
	p.open, p.close = context.WithCancel(context.Background())
	return p
}

// Accept implements net.Listener.
func (p *pacedListener) Accept() (net.Conn, error) {
	if p.limit.Wait(p.open) != nil {
		return nil, net.ErrClosed
	}
	return p.Listener.Accept()
}

// Close implements net.Listener.
func (p *pacedListener) Close() error {
	p.close()
	return p.Listener.Close()
}

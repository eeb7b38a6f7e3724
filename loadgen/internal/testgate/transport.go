package testgate

import (
	"context"
	"fmt"
	"sync"
	"time"

	"imbench/loadgen/protocol"
	"imbench/server/wire"
)

func retryText(ms int) string { return fmt.Sprintf("retry_after_ms=%d", ms) }

// Wire reaches the gate in memory, with a constant delay each way, so that tests can run in virtual time.
type Wire struct {
	Gate  *Gate
	Delay time.Duration // of replies and pushes
	Holds bool          // its connections can be held
	// Stalled says when the gate, which stands still now and then, goes on with what reaches it at a moment; nil = at once.
	Stalled func(time.Time) time.Time
}

// Proves implements protocol.Wire: what our own wire proves.
func (*Wire) Proves() protocol.Proofs { return (*protocol.Gateway)(nil).Proves() }

// Dial implements protocol.Wire. The token is not looked at.
func (w *Wire) Dial(ctx context.Context, _, _ string) (protocol.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c := &memConn{delay: w.Delay, holds: w.Holds, stalled: w.Stalled, more: make(chan struct{}, 1), over: make(chan struct{})}
	c.s = &Session{gate: w.Gate, open: map[string]bool{}, out: c.push, end: func(code int, reason string) {
		c.finish(protocol.NewCloseError(code, reason))
	}}
	return c, nil
}

type timed struct {
	at    time.Time
	frame protocol.Frame
}

type memConn struct {
	s     *Session
	delay time.Duration
	holds bool

	stalled func(time.Time) time.Time

	mu   sync.Mutex
	in   []timed       // on its way to the device
	held time.Time     // nothing is handed on before
	more chan struct{} // something is in
	once sync.Once
	over chan struct{}
	why  error
}

func (c *memConn) finish(err error) {
	c.once.Do(func() {
		c.why = err
		close(c.over)
	})
}

func (c *memConn) push(f *wire.Frame) {
	var p protocol.Frame
	protocol.FromGateway(&p, f, len(wire.AppendFrame(nil, f)))
	at := time.Now()
	if c.stalled != nil {
		at = c.stalled(at)
	}
	c.mu.Lock()
	c.in = append(c.in, timed{at.Add(c.delay), p})
	c.mu.Unlock()
	select {
	case c.more <- struct{}{}:
	default:
	}
}

// Write implements protocol.Conn.
func (c *memConn) Write(r *protocol.Request) (int, error) {
	select {
	case <-c.over:
		return 0, protocol.ErrClosed
	default:
	}
	w := protocol.ToGateway(r)
	c.s.request(w)
	return len(wire.AppendRequest(nil, &w)), nil
}

// Serve implements protocol.Conn.
func (c *memConn) Serve(h func(*protocol.Frame)) error {
	defer c.s.gone()
	for {
		select {
		case <-c.over:
			return c.why
		case <-c.more:
		}
		c.mu.Lock()
		in := c.in
		c.in = nil
		c.mu.Unlock()
		for i := range in {
			if !c.pause(in[i].at) {
				return c.why
			}
			h(&in[i].frame)
		}
	}
}

// pause waits until a frame may be handed on; false: the session is over.
func (c *memConn) pause(at time.Time) bool {
	for {
		c.mu.Lock()
		if at.Before(c.held) {
			at = c.held
		}
		c.mu.Unlock()
		wait := time.NewTimer(time.Until(at))
		select {
		case <-c.over:
			wait.Stop()
			return false
		case <-wait.C:
		}
		c.mu.Lock()
		held := at.Before(c.held)
		c.mu.Unlock()
		if !held {
			return true
		}
	}
}

// Hold implements protocol.Holder.
func (c *memConn) Hold(d time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.holds && d > 0 {
		c.held = time.Now().Add(d)
	}
	return c.holds
}

// Close implements protocol.Conn.
func (c *memConn) Close(int) { c.finish(protocol.ErrClosed) }

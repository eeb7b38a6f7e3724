package rawsock

import (
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// maxTurn is how many reads a connection has before others have their turn.
const maxTurn = 8

// looped owns the descriptor of a connection that a Loop waits for. It is its own Follower. One call at a time may wait in
// each direction.
type looped struct {
	poll          *poll
	fd            int
	local, remote net.Addr

	turn   sync.Mutex                             // held while follow is called; taken before mu
	follow func(fd uintptr, since time.Time) Took // guarded by turn; nil = Follow is not under way

	mu        sync.Mutex // guards what follows
	users     int        // calls that use fd
	closed    bool
	over      bool      // the other side has ended: there is an end to be read
	following bool      // what becomes readable is follow's
	held      time.Time // follow is not called before
	in, out   waiter
}

// waiter is one direction of a connection.
type waiter struct {
	ready    chan struct{} // room for one; nil = nobody has waited yet
	deadline time.Time     // zero = none
	timer    *time.Timer   // tells of the deadline
}

// wake makes who waits look again; looped.mu must be held.
func (w *waiter) wake() {
	select {
	case w.ready <- struct{}{}:
	default: // nobody has waited yet, or it is told already
	}
}

// became notes what the socket has become, and says whether follow is to be called for it.
func (c *looped) became(events uint32) (call bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	const gone = unix.EPOLLHUP | unix.EPOLLERR
	if events&(unix.EPOLLRDHUP|gone) != 0 {
		c.over = true // the end may lie behind data, and is told only once
	}
	if events&(unix.EPOLLOUT|gone) != 0 {
		c.out.wake()
	}
	switch {
	case events&(unix.EPOLLIN|unix.EPOLLRDHUP|gone) == 0:
		return false
	case c.following:
		return true
	}
	c.in.wake()
	return false
}

// Follow implements Follower.
func (c *looped) Follow(f func(fd uintptr, since time.Time) Took) error {
	if err := c.use(); err != nil {
		return c.failed("raw-read", err)
	}
	defer c.release()
	c.mu.Lock()
	if c.in.ready == nil {
		c.in.ready = make(chan struct{}, 1)
	}
	c.following = true
	c.mu.Unlock()
	c.turn.Lock()
	c.follow = f
	c.turn.Unlock()
	go c.call(time.Time{}) // for what has become readable before; Follow's own stack, which is kept, stays small
	for {
		ready, err := c.state(&c.in)
		switch {
		case err != nil:
			if !c.stop() { // f has just said Enough
				return nil
			}
			return c.failed("raw-read", err)
		case !c.goesOn():
			return nil
		}
		<-ready
	}
}

func (c *looped) goesOn() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.following
}

// stop ends the calls of follow, and says whether it had to.
func (c *looped) stop() bool {
	c.turn.Lock()
	defer c.turn.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.following
	c.follow, c.following = nil, false
	return was
}

// call lets follow read what there is, and was not there at since, without keeping others waiting for long.
func (c *looped) call(since time.Time) {
	c.turn.Lock()
	defer c.turn.Unlock()
	for n := 0; c.follow != nil; n++ {
		held, over, err := c.look()
		switch {
		case err != nil:
			return
		case held.IsZero():
		case time.Now().Before(held):
			return
		case since.Before(held): // what came while it was held has come when that was over
			since = held
		}
		if n == maxTurn {
			go c.call(since)
			return
		}
		switch c.follow(uintptr(c.fd), since) {
		case None:
			return
		case Short:
			if !over {
				return
			}
		case Enough:
			c.mu.Lock()
			c.follow, c.following = nil, false
			c.in.wake()
			c.mu.Unlock()
		}
	}
}

// look says until when the connection is held, whether the other side has ended, so that there is an end to be read behind
// what there is, and why nothing may be read any more.
func (c *looped) look() (held time.Time, over bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held, c.over, c.broken(&c.in)
}

// Hold implements Follower.
func (c *looped) Hold(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = time.Now().Add(d)
	time.AfterFunc(d, func() { c.call(time.Time{}) })
}

// Control implements syscall.RawConn.
func (c *looped) Control(f func(fd uintptr)) error {
	if err := c.use(); err != nil {
		return c.failed("raw-control", err)
	}
	defer c.release()
	f(uintptr(c.fd))
	return nil
}

// Read implements syscall.RawConn.
func (c *looped) Read(f func(fd uintptr) bool) error { return c.do(&c.in, "raw-read", f) }

// Write implements syscall.RawConn.
func (c *looped) Write(f func(fd uintptr) bool) error { return c.do(&c.out, "raw-write", f) }

// do calls f until it returns true, whenever the socket has become ready.
func (c *looped) do(w *waiter, op string, f func(fd uintptr) bool) error {
	if err := c.use(); err != nil {
		return c.failed(op, err)
	}
	defer c.release()
	for {
		ready, err := c.state(w)
		if err != nil {
			return c.failed(op, err)
		}
		if f(uintptr(c.fd)) {
			return nil
		}
		if ready != nil {
			<-ready
			continue
		}
		c.mu.Lock()
		w.ready = make(chan struct{}, 1) // what became ready before was not told: look once more
		c.mu.Unlock()
	}
}

// state gives what tells that w is to look again, or why there is no point in it.
func (c *looped) state(w *waiter) (ready chan struct{}, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return w.ready, c.broken(w)
}

// broken is why nothing can be done any more in a direction; mu must be held.
func (c *looped) broken(w *waiter) error {
	switch {
	case c.closed:
		return net.ErrClosed
	case !w.deadline.IsZero() && !time.Now().Before(w.deadline):
		return os.ErrDeadlineExceeded
	}
	return nil
}

// use begins a use of the descriptor.
func (c *looped) use() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	c.users++
	return nil
}

// release ends a use of the descriptor.
func (c *looped) release() {
	c.mu.Lock()
	c.users--
	last := c.closed && c.users == 0
	c.mu.Unlock()
	if last {
		c.poll.remove(c)
	}
}

// Close ends the calls that wait; the descriptor is closed when none is left.
func (c *looped) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return c.failed("close", net.ErrClosed)
	}
	c.closed = true
	last := c.users == 0
	for _, w := range []*waiter{&c.in, &c.out} {
		w.wake()
		if w.timer != nil {
			w.timer.Stop()
		}
	}
	c.mu.Unlock()
	if last {
		c.poll.remove(c)
	}
	return nil
}

// SetDeadline implements net.Conn.
func (c *looped) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

// SetReadDeadline implements net.Conn.
func (c *looped) SetReadDeadline(t time.Time) error { return c.until(&c.in, t) }

// SetWriteDeadline implements net.Conn.
func (c *looped) SetWriteDeadline(t time.Time) error { return c.until(&c.out, t) }

func (c *looped) until(w *waiter, t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return c.failed("set", net.ErrClosed)
	}
	w.deadline = t
	left := time.Until(t)
	if w.timer != nil {
		w.timer.Stop()
		w.timer = nil
	}
	switch {
	case t.IsZero():
	case left <= 0:
		w.wake()
	default:
		w.timer = time.AfterFunc(left, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			w.wake()
		})
	}
	return nil
}

// LocalAddr implements net.Conn.
func (c *looped) LocalAddr() net.Addr { return c.local }

// RemoteAddr implements net.Conn.
func (c *looped) RemoteAddr() net.Addr { return c.remote }

func (c *looped) failed(op string, err error) error {
	return &net.OpError{Op: op, Net: c.local.Network(), Source: c.local, Addr: c.remote, Err: err}
}

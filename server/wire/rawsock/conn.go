package rawsock

import (
	"context"
	"io"
	"net"
	"sync"
	"syscall"
	"time"
)

// Conn is a net.Conn whose Read and Write go through this package. Deadlines and everything else are those of the
// connection that it wraps.
type Conn struct {
	rest
	raw syscall.RawConn
	r   side
	w   side
}

// Follower is the syscall.RawConn of a connection that a Loop waits for.
type Follower interface {
	syscall.RawConn
	// Follow calls f whenever the socket has become readable, one call at a time, until f says Enough (nil) or the connection
	// is closed or its read deadline passes (an error as from Read). since is a time at which what there is to read had not
	// come yet, for Stamped. The calls are the loop's, and so f must not wait: all of the loop's connections would wait with
	// it. When Follow has returned, f is not called any more.
	Follow(f func(fd uintptr, since time.Time) Took) error
	// Hold keeps f from being called for a time: what comes meanwhile counts as come at its end. A call that is under way
	// ends first.
	Hold(d time.Duration)
}

// Took is what a call of Follow's function found to read.
type Took uint8

// Short: less than there was room for. Some: as much as there was room for; it is called again at once. None: the socket had
// nothing. Enough: it is not to be called again.
const (
	Short Took = iota
	Some
	None
	Enough
)

// rest is a net.Conn without the two that Conn has itself.
type rest interface {
	Close() error
	LocalAddr() net.Addr
	RemoteAddr() net.Addr
	SetDeadline(t time.Time) error
	SetReadDeadline(t time.Time) error
	SetWriteDeadline(t time.Time) error
}

// side is one direction: what the call under way needs, and who has it.
type side struct {
	mu  sync.Mutex
	b   []byte
	n   int
	err error
	try func(fd uintptr) bool
}

// Wrap gives the connection as a *Conn, or as it is if it has no descriptor.
func Wrap(c net.Conn) net.Conn {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return c
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return c
	}
	return newConn(c, raw)
}

func newConn(c rest, raw syscall.RawConn) *Conn {
	w := &Conn{rest: c, raw: raw}
	w.r.try = func(fd uintptr) bool { return w.r.once(Read, fd) }
	w.w.try = func(fd uintptr) bool { return w.w.once(Write, fd) }
	return w
}

// once makes one attempt; false means that the socket has to become ready first.
func (s *side) once(call func(uintptr, []byte) (int, error), fd uintptr) bool {
	for {
		n, err := call(fd, s.b)
		switch err {
		case nil:
			s.n, s.err = n, nil
		case syscall.EINTR:
			continue
		case syscall.EAGAIN:
			return false
		default:
			s.n, s.err = 0, err
		}
		return true
	}
}

// Read implements net.Conn.
func (c *Conn) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	s := &c.r
	s.mu.Lock()
	defer s.mu.Unlock()
	s.b = b
	err := c.raw.Read(s.try)
	s.b = nil
	switch {
	case err != nil:
		return 0, err
	case s.err != nil:
		return 0, c.failed("read", s.err)
	case s.n == 0:
		return 0, io.EOF
	}
	return s.n, nil
}

// Write implements net.Conn.
func (c *Conn) Write(b []byte) (int, error) {
	s := &c.w
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.b = nil }()
	for done := 0; done < len(b); done += s.n {
		s.b = b[done:]
		err := c.raw.Write(s.try)
		if err == nil && s.err != nil {
			err = c.failed("write", s.err)
		}
		if err != nil {
			return done, err
		}
	}
	return len(b), nil
}

func (c *Conn) failed(op string, err error) error {
	return &net.OpError{Op: op, Net: c.LocalAddr().Network(), Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
}

// SyscallConn implements syscall.Conn.
func (c *Conn) SyscallConn() (syscall.RawConn, error) { return c.raw, nil }

// Listener accepts connections of this package.
type Listener struct{ net.Listener }

// Accept implements net.Listener.
func (l Listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return Wrap(c), nil
}

// Dial connects as a net.Dialer does, to a connection of this package.
func Dial(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return Wrap(c), nil
}

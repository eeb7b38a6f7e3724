package rawsock

import (
	"context"
	"io"
	"net"
	"sync"
	"syscall"
)

// Conn is a net.Conn whose Read and Write go through this package. Deadlines and everything else are those of the
// connection that it wraps.
type Conn struct {
	net.Conn
	raw syscall.RawConn
	r   side
	w   side
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
	w := &Conn{Conn: c, raw: raw}
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

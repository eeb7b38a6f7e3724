package fault

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"sync"
)

// framePoints are the points of frames, by how a frame's text begins.
var framePoints = []struct {
	begins string
	point  Point
}{
	{`{"t":"event","ev":`, Push}, {`{"t":"hint",`, Hint}, {`{"t":"sent",`, ReplySend}, {`{"t":"acked",`, ReplyAck},
	{`{"t":"synced",`, ReplySync},
}

// Listener wraps the connections of a listener for the points of frames; it is l itself if none is switched on.
func (s *Set) Listener(l net.Listener) net.Listener {
	if !s.Has(Push, Hint, ReplySend, ReplyAck, ReplySync) {
		return l
	}
	return listener{l, s}
}

type listener struct {
	net.Listener
	set *Set
}

// Accept implements net.Listener.
func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, set: l.set}, nil
}

// conn is the server's side of a connection that becomes a WebSocket. It takes what is written apart into frames, and
// passes each on or not.
type conn struct {
	net.Conn
	set *Set

	mu       sync.Mutex
	rest     []byte // of what was written, less than a whole frame; bounded by the largest frame that the server makes
	upgraded bool
	plain    bool // another kind of HTTP reply: nothing is looked at
}

// Write implements net.Conn. What is dropped counts as written.
func (c *conn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.plain {
		return c.Conn.Write(b)
	}
	c.rest = append(c.rest, b...)
	var out []byte
	for {
		n := c.next()
		if n == 0 {
			break
		}
		if frame := c.rest[:n]; c.passes(frame) {
			out = append(out, frame...)
		}
		c.rest = c.rest[n:]
	}
	if len(out) > 0 {
		if _, err := c.Conn.Write(out); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}

// next is the length of the whole message at the front: the reply to the handshake first, then frames; 0 = not there yet.
func (c *conn) next() int {
	if !c.upgraded {
		end := bytes.Index(c.rest, []byte("\r\n\r\n"))
		if end < 0 {
			return 0
		}
		c.upgraded = bytes.HasPrefix(c.rest, []byte("HTTP/1.1 101 "))
		if c.plain = !c.upgraded; c.plain {
			return len(c.rest)
		}
		return end + 4
	}
	head, size := payload(c.rest)
	if head == 0 || uint64(len(c.rest)-head) < size {
		return 0
	}
	return head + int(size)
}

// payload gives the length of a frame's header and of what follows it; a server's frames are not masked.
func payload(b []byte) (head int, size uint64) {
	if len(b) < 2 {
		return 0, 0
	}
	switch size = uint64(b[1] & 0x7f); {
	case size < 126:
		return 2, size
	case size == 126 && len(b) >= 4:
		return 4, uint64(binary.BigEndian.Uint16(b[2:]))
	case size == 127 && len(b) >= 10:
		return 10, binary.BigEndian.Uint64(b[2:])
	}
	return 0, 0
}

func (c *conn) passes(frame []byte) bool {
	head, _ := payload(frame)
	for _, f := range framePoints {
		if bytes.HasPrefix(frame[head:], []byte(f.begins)) {
			return c.set.At(context.Background(), f.point) == nil
		}
	}
	return true
}

package protocol

import (
	"encoding/binary"
	"fmt"

	"imbench/server/wire"
)

// parse handles all whole WebSocket frames in b. It returns how many bytes it used, and how many the next frame needs
// (0 = not known yet).
func (c *conn) parse(b []byte, h func(*Frame)) (used, need int, err error) {
	for {
		head, size, err := header(b[used:])
		if err != nil || head == 0 {
			return used, 0, err
		}
		if len(b)-used < head+size {
			return used, head + size, nil
		}
		payload := b[used+head : used+head+size]
		if err := c.handle(b[used], payload, h); err != nil {
			return used, 0, err
		}
		used += head + size
	}
}

// header reads a frame's header; head is 0 if there is not all of it.
func header(b []byte) (head, size int, err error) {
	if len(b) < 2 {
		return 0, 0, nil
	}
	switch n := int(b[1]); {
	case n >= 0x80:
		return 0, 0, &FrameError{"a masked frame from the gateway"}
	case n < 126:
		head, size = 2, n
	case n == 126:
		if len(b) < 4 {
			return 0, 0, nil
		}
		head, size = 4, int(binary.BigEndian.Uint16(b[2:]))
	default:
		if len(b) < 10 {
			return 0, 0, nil
		}
		n := binary.BigEndian.Uint64(b[2:])
		if n > wire.MaxReply {
			return 0, 0, &FrameError{fmt.Sprintf("a frame of %d bytes; the limit is %d", n, wire.MaxReply)}
		}
		head, size = 10, int(n)
	}
	if b[0]&0x08 != 0 && (size > 125 || b[0]&0x80 == 0) {
		return 0, 0, &FrameError{"a control frame that is too long or fragmented"}
	}
	return head, size, nil
}

func (c *conn) handle(b0 byte, payload []byte, h func(*Frame)) error {
	if b0&0x70 != 0 {
		return &FrameError{"reserved bits are set"}
	}
	fin := b0&0x80 != 0
	switch op := b0 & 0x0f; {
	case op == opText && fin && c.parts == nil:
		return c.text(payload, h)
	case (op == opText && c.parts == nil) || (op == opContinue && c.parts != nil):
		// A proxy may fragment what the gateway sent whole.
		if len(c.parts)+len(payload) > wire.MaxReply {
			return &FrameError{"a fragmented frame beyond the limit"}
		}
		if c.parts == nil {
			c.parts = []byte{}
		}
		c.parts = append(c.parts, payload...)
		if !fin {
			return nil
		}
		whole := c.parts
		c.parts = nil
		return c.text(whole, h)
	case op == opClose:
		_ = c.submit(seal(append(make([]byte, headerRoom), payload[:min(2, len(payload))]...), opClose), false)
		return closeError(payload)
	case op == opPing:
		c.pinged(payload, h)
		return nil
	case op == opPong:
		return nil
	}
	return &FrameError{fmt.Sprintf("an unexpected frame of type 0x%x", b0&0x0f)}
}

// pinged answers a ping and hands it on. It is apart because its large frame would grow the stack of every device.
//
//go:noinline
func (c *conn) pinged(payload []byte, h func(*Frame)) {
	_ = c.submit(seal(append(make([]byte, headerRoom), payload...), opPong), false)
	h(&Frame{Kind: KindPing, Bytes: len(payload), Arrived: c.arrived})
}

// lent is a frame of the wire and what a device is told of it.
type lent struct {
	wire  wire.Frame
	frame Frame
}

// text decodes one frame and hands it on. The Frame is lent: a waiting connection holds none.
func (c *conn) text(payload []byte, h func(*Frame)) error {
	l := frames.Get().(*lent)
	defer frames.Put(l)
	if err := wire.DecodeFrame(payload, &l.wire); err != nil {
		return &FrameError{err.Error()}
	}
	FromGateway(&l.frame, &l.wire, len(payload))
	l.frame.Arrived = c.arrived
	h(&l.frame)
	return nil
}

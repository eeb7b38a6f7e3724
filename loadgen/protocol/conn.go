package protocol

import (
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"time"

	"imbench/server/wire"
	"imbench/server/wire/rawsock"

	"golang.org/x/sys/unix"
)

const (
	// MaxQueued is what may wait to be written on one connection, in bytes; beyond it the connection is closed.
	MaxQueued = 256 << 10

	bufSize      = 16 << 10 // lent while bytes are there to be read; larger frames get a buffer of their own
	headerRoom   = 14       // the longest header of a masked frame
	stallLimit   = 10 * time.Second
	closeTimeout = 2 * time.Second // for the other side's close frame
)

// WebSocket opcodes.
const (
	opContinue = 0x0
	opText     = 0x1
	opClose    = 0x8
	opPing     = 0x9
	opPong     = 0xa
)

// conn is a WebSocket's client side. An idle one holds no buffer, but under TLS.
type conn struct {
	nc   net.Conn
	raw  syscall.RawConn  // nil under TLS
	loop rawsock.Follower // reads in a Loop; nil = Serve's goroutine does

	// Of who reads.
	rest    []byte // the start of an unfinished frame, with room for all of it if it is larger than bufSize
	parts   []byte // the start of a fragmented message
	buf     *[]byte
	own     []byte // TLS: the read buffer
	n       int    // bytes read, and
	room    int    // how many there was room for
	rerr    error
	since   time.Time // loop: what is read came later than this,
	arrived time.Time // and then; zero = not known

	mu       sync.Mutex // guards what follows
	out      []byte     // what the socket did not take, in order
	flushing bool       // a goroutine writes out; all that is new goes behind it
	done     bool       // no more writes
	ours     bool       // this side began to close
	send     func(fd uintptr) bool
	w        []byte
	wn       int
	werr     error
	flusher  sync.WaitGroup
}

var (
	readBufs  = sync.Pool{New: func() any { b := make([]byte, bufSize); return &b }}
	writeBufs = sync.Pool{New: func() any { b := make([]byte, 0, 1024); return &b }}
	stamps    = sync.Pool{New: func() any { return new(rawsock.Stamped) }}
	frames    = sync.Pool{New: func() any { return new(lent) }}
)

func newConn(nc net.Conn, rest []byte) *conn {
	c := &conn{nc: nc, rest: rest}
	if sc, ok := nc.(syscall.Conn); ok {
		if raw, err := sc.SyscallConn(); err == nil {
			c.raw, c.send = raw, c.tryWrite
			c.loop, _ = raw.(rawsock.Follower)
		}
	}
	return c
}

// Write implements Conn.
func (c *conn) Write(r *Request) (int, error) {
	bp := writeBufs.Get().(*[]byte)
	defer writeBufs.Put(bp)
	var room [headerRoom]byte
	w := ToGateway(r)
	*bp = wire.AppendRequest(append((*bp)[:0], room[:]...), &w)
	return len(*bp) - headerRoom, c.submit(seal(*bp, opText), false)
}

// Unread implements Backlogged. Under TLS it is not known: a part of the bytes lies in that layer.
func (c *conn) Unread() (bytes int, ok bool) {
	if c.raw == nil {
		return 0, false
	}
	return unread(c.raw)
}

// Close implements Conn.
func (c *conn) Close(code int) {
	if code == 0 {
		c.abort()
		return
	}
	b := make([]byte, headerRoom, headerRoom+2)
	b = binary.BigEndian.AppendUint16(b, uint16(code))
	if c.submit(seal(b, opClose), true) != nil {
		c.abort()
		return
	}
	_ = c.nc.SetReadDeadline(time.Now().Add(closeTimeout))
	if c.loop != nil {
		c.loop.Hold(0) // the answer is read, whatever was to be held
	}
}

func (c *conn) abort() {
	c.mu.Lock()
	c.done, c.ours = true, true
	c.mu.Unlock()
	_ = c.nc.Close()
}

// seal turns b, headerRoom unused bytes and a payload, into a masked frame in place.
func seal(b []byte, opcode byte) []byte {
	payload := b[headerRoom:]
	var mask [4]byte
	binary.LittleEndian.PutUint32(mask[:], rand.Uint32())
	head := headerRoom - 6
	switch n := len(payload); {
	case n < 126:
		b[head+1] = 0x80 | byte(n)
	case n < 1<<16:
		head -= 2
		b[head+1] = 0x80 | 126
		binary.BigEndian.PutUint16(b[head+2:], uint16(n))
	default:
		head -= 8
		b[head+1] = 0x80 | 127
		binary.BigEndian.PutUint64(b[head+2:], uint64(n))
	}
	b[head] = 0x80 | opcode
	copy(b[headerRoom-4:], mask[:])
	m := uint64(binary.LittleEndian.Uint32(mask[:]))
	m |= m << 32
	i := 0
	for ; i+8 <= len(payload); i += 8 {
		binary.LittleEndian.PutUint64(payload[i:], binary.LittleEndian.Uint64(payload[i:])^m)
	}
	for ; i < len(payload); i++ {
		payload[i] ^= mask[i&3]
	}
	return b[head:]
}

// submit writes what the socket takes and queues the rest; last says that nothing may follow.
func (c *conn) submit(frame []byte, last bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done {
		return ErrClosed
	}
	if c.raw != nil && !c.flushing {
		c.w = frame
		err := c.raw.Write(c.send)
		c.w = nil
		if err == nil {
			err = c.werr
		}
		if err != nil {
			return err // Serve sees it too, and ends
		}
		frame = frame[c.wn:]
	}
	c.done, c.ours = last, last
	if len(frame) == 0 {
		return nil
	}
	if len(c.out)+len(frame) > MaxQueued {
		c.done = true
		_ = c.nc.Close()
		return ErrBacklog
	}
	c.out = append(c.out, frame...)
	if !c.flushing {
		c.flushing = true
		c.flusher.Add(1)
		go c.flush()
	}
	return nil
}

// tryWrite is one write that does not wait; mu must be held.
func (c *conn) tryWrite(fd uintptr) bool {
	for {
		c.wn, c.werr = rawsock.Write(fd, c.w)
		if c.werr == unix.EINTR {
			continue
		}
		c.wn = max(c.wn, 0)
		if c.werr == unix.EAGAIN {
			c.werr = nil
		}
		return true // never wait here
	}
}

// flush writes out until nothing waits.
func (c *conn) flush() {
	defer c.flusher.Done()
	for {
		c.mu.Lock()
		chunk := c.out
		c.out = nil
		if len(chunk) == 0 {
			c.flushing = false
			_ = c.nc.SetWriteDeadline(time.Time{}) // or the next write would meet a deadline that has passed
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		_ = c.nc.SetWriteDeadline(time.Now().Add(stallLimit))
		if _, err := c.nc.Write(chunk); err != nil {
			_ = c.nc.Close() // Serve reports it
			c.mu.Lock()
			c.done, c.flushing, c.out = true, false, nil
			c.mu.Unlock()
			return
		}
	}
}

// Serve implements Conn.
func (c *conn) Serve(h func(*Frame)) error {
	err := c.serve(h)
	c.mu.Lock()
	c.done = true
	ours := c.ours
	c.mu.Unlock()
	_ = c.nc.Close()
	c.flusher.Wait()
	var fe *FrameError
	switch {
	case errors.As(err, &fe):
		return err
	case ours:
		return ErrClosed
	}
	return err
}

func (c *conn) serve(h func(*Frame)) error {
	if len(c.rest) > 0 { // what came right behind the handshake
		if err := c.take(c.rest, h); err != nil {
			return err
		}
	}
	if c.loop != nil {
		var ended error
		err := c.loop.Follow(func(fd uintptr, since time.Time) rawsock.Took {
			c.since = since
			if !c.tryRead(fd) {
				return rawsock.None
			}
			if ended = c.rerr; ended == nil {
				ended = c.consume(h)
			}
			switch {
			case ended != nil:
				return rawsock.Enough
			case c.n < c.room:
				return rawsock.Short
			}
			return rawsock.Some
		})
		if ended != nil {
			return ended
		}
		return err
	}
	read := c.tryRead
	for {
		if err := c.wait(read); err != nil {
			return err
		}
		if err := c.consume(h); err != nil {
			return err
		}
	}
}

// wait reads as soon as there is something to be read.
func (c *conn) wait(read func(fd uintptr) bool) error {
	if c.raw != nil {
		if err := c.raw.Read(read); err != nil {
			return err
		}
		return c.rerr
	}
	n, err := c.nc.Read(c.target())
	if c.n = n; n > 0 {
		return nil // under TLS an error may come with the last bytes: the next read has it again
	}
	return err
}

// tryRead is one read that does not wait. It returns false, and holds no buffer, if there is nothing yet.
func (c *conn) tryRead(fd uintptr) bool {
	b := c.target()
	for {
		n, err := c.read(fd, b)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			c.putBuf()
			return false
		case err == nil && n == 0:
			err = io.EOF
		}
		if c.n, c.rerr = max(n, 0), err; err != nil {
			c.putBuf()
		}
		return true
	}
}

func (c *conn) read(fd uintptr, b []byte) (n int, err error) {
	if c.loop == nil {
		return rawsock.Read(fd, b)
	}
	s := stamps.Get().(*rawsock.Stamped)
	defer stamps.Put(s)
	n, c.arrived, err = s.Read(fd, b, c.since)
	return n, err
}

// target is where the next bytes go: behind the start of a frame that is not whole.
func (c *conn) target() []byte {
	var b []byte
	if cap(c.rest) > bufSize {
		b = c.rest[len(c.rest):cap(c.rest)]
	} else {
		switch {
		case c.raw != nil:
			c.buf = readBufs.Get().(*[]byte)
		case c.own == nil:
			c.own = make([]byte, bufSize)
			fallthrough
		default:
			c.buf = &c.own
		}
		b = (*c.buf)[copy(*c.buf, c.rest):]
	}
	c.room = len(b)
	return b
}

func (c *conn) putBuf() {
	if c.buf != nil && c.raw != nil {
		readBufs.Put(c.buf)
	}
	c.buf = nil
}

// consume hands on the whole frames among what has been read.
func (c *conn) consume(h func(*Frame)) error {
	if c.buf == nil { // one large frame
		c.rest = c.rest[:len(c.rest)+c.n]
		if len(c.rest) < cap(c.rest) {
			return nil
		}
		return c.take(c.rest, h)
	}
	defer c.putBuf()
	return c.take((*c.buf)[:len(c.rest)+c.n], h)
}

// take hands on the whole frames in b and keeps what follows them.
func (c *conn) take(b []byte, h func(*Frame)) error {
	used, need, err := c.parse(b, h)
	c.rest = nil
	if used < len(b) && err == nil {
		c.rest = append(make([]byte, 0, max(need, len(b)-used)), b[used:]...)
	}
	return err
}

// Hold implements Holder.
func (c *conn) Hold(d time.Duration) bool {
	if c.loop == nil {
		return false
	}
	if d > 0 {
		c.loop.Hold(d)
	}
	return true
}

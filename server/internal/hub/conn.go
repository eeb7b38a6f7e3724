package hub

import (
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"imbench/server/wire"
)

// maxOpen is how many conversations a device may have open at once; opening one more closes the oldest.
const maxOpen = 64

// closeWait is how long a peer may take to answer a close frame.
const closeWait = 2 * time.Second

// Peer is who a connection speaks for.
type Peer struct {
	User, Device string
	Generation   int64     // fences the route: of two connections of a device the larger one wins
	Expires      time.Time // of the token; the connection is closed then (4001). Zero = never
}

// Conn is the sending half of one device's connection: a bounded queue of frames, and what the fan-out must know of the
// device. The reading half belongs to the caller of NewConn, who calls Gone when it has ended.
type Conn struct {
	ID int64 // unique in this process

	hub  *Hub
	nc   net.Conn
	raw  syscall.RawConn // nil: writes must block (TLS), so that each goes through a goroutine
	seen atomic.Int64    // when the last frame came in, by the hub's clock

	peer Peer  // set by Register, under the registry's lock, and not changed afterwards
	next *Conn // under the registry's lock: the next connection of the same user

	mu        sync.Mutex
	queue     []*frame
	pending   int           // bytes queued or being written
	hints     int           // hints in queue
	replies   int           // replies in queue
	scheduled bool          // somebody has promised to flush
	writing   bool          // somebody is writing; he goes on until the queue is empty
	stalled   bool          // and it is a goroutine that waits for the socket
	since     int64         // wants events and hints since then, by the hub's clock; 0 = does not
	closing   bool          // a close frame is queued or written: nothing more is accepted
	leaving   bool          // the reader has ended: whoever is writing ends the connection when he is done
	closed    bool          // the socket is closed from this side, after the reader has ended
	code      int           // close code, ours
	room      chan struct{} // closed when pending has fallen to half of the limit; nil = nobody waits
	open      []string
	held      []heldHint
	told      tracker
	own       own // the device's latest message
}

// heldHint is a hint that waits for others of its conversation.
type heldHint struct {
	conv string
	head int64
}

// NewConn takes over the sending half of an upgraded connection.
func (h *Hub) NewConn(nc net.Conn) *Conn {
	c := &Conn{ID: h.nextConn.Add(1), hub: h, nc: nc}
	c.seen.Store(h.now())
	if sc, ok := nc.(syscall.Conn); ok && canTryWrite { // not a TLS connection
		c.raw, _ = sc.SyscallConn()
	}
	h.registry.attach(c)
	return c
}

// Received notes a frame from the peer, for the counters and the heartbeat.
func (c *Conn) Received(k Kind, payload int) {
	c.seen.Store(c.hub.now())
	f := &c.hub.metrics.in[k]
	f.frames.Add(1)
	f.bytes.Add(int64(payload))
}

// Reply queues a frame and has it written soon by another goroutine: for callbacks that must not make system calls.
func (c *Conn) Reply(r *wire.Frame) {
	if mark, _ := c.push(newReplyFrame(r)); mark {
		c.hub.flushLater(c)
	}
}

// ReplyNow queues a frame and writes what the socket takes at once.
func (c *Conn) ReplyNow(r *wire.Frame) {
	c.push(newReplyFrame(r))
	c.flush()
}

// Pong answers a WebSocket ping.
func (c *Conn) Pong(data string) {
	c.push(newControlFrame(opPong, []byte(data)))
	c.flush()
}

// WaitRoom waits until at most half of the queue's byte limit is pending, so that a device that asks faster than it
// reads is not read from; false means that the connection is closing or ctx has ended.
func (c *Conn) WaitRoom(ctx context.Context) bool {
	c.mu.Lock()
	if c.closing || c.pending <= c.hub.cfg.QueueBytes/2 {
		defer c.mu.Unlock()
		return !c.closing
	}
	if c.room == nil {
		c.room = make(chan struct{})
	}
	room := c.room
	c.mu.Unlock()
	select {
	case <-room:
	case <-ctx.Done():
		return false
	}
	return !c.Closing()
}

// Closing says whether the connection has been closed from this side: requests are no longer answered.
func (c *Conn) Closing() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closing
}

// Close sends what is queued and a close frame, and gives the peer a moment to answer; the reader then ends by itself.
// detail, if not empty, is sent as the reason in place of the code's own. Only the first Close counts.
func (c *Conn) Close(code wire.Close, detail string) {
	if detail == "" {
		detail = code.Reason
	}
	c.mu.Lock()
	if !c.closing {
		c.closeLocked(code.Code, detail)
	}
	c.mu.Unlock()
	c.flush()
}

// Cut ends the connection without a word; the reader then ends by itself. It does not wait: the farewell that closing a
// TLS connection sends would, up to five seconds for a peer that does not read.
func (c *Conn) Cut() {
	nc := c.nc
	if t, ok := nc.(interface{ NetConn() net.Conn }); ok {
		nc = t.NetConn()
	}
	_ = nc.Close() // nothing could be done about an error
}

// closeLocked queues the close frame. c.mu must be held.
func (c *Conn) closeLocked(code int, reason string) {
	c.closing, c.code = true, code
	f := newCloseFrame(code, reason)
	c.queue = append(c.queue, f)
	c.pending += len(f.data)
	c.roomLocked(true)
	// An error here means that the socket is gone; the reader learns of it as well.
	_ = c.nc.SetReadDeadline(time.Now().Add(closeWait))
}

// Gone ends the connection: the reader calls it once, when it has returned. peerCode is the close code that came in, 0
// for none. It releases everything but the registration, and returns the code with which the connection ended: ours if we
// were first to close it, else the peer's.
func (c *Conn) Gone(peerCode int) (code int) {
	c.mu.Lock()
	code = c.code
	if !c.closing {
		code = peerCode
	}
	c.closing, c.leaving = true, true
	c.held, c.open, c.told = nil, nil, tracker{}
	c.roomLocked(true)
	if !c.writing || (c.stalled && c.raw != nil) {
		c.endLocked()
	} else {
		// Somebody is writing, perhaps our close frame: he ends the connection when he is done. If that blocks, it
		// does not for long.
		_ = c.nc.SetWriteDeadline(time.Now().Add(closeWait / 2))
	}
	c.mu.Unlock()
	c.hub.metrics.closed(code)
	c.hub.registry.detach(c)
	return code
}

// Welcome queues and writes the reply to hello, and ends the read deadline of the handshake unless the connection is being
// closed already.
func (c *Conn) Welcome(r *wire.Frame) {
	c.mu.Lock()
	if !c.closing {
		_ = c.nc.SetReadDeadline(time.Time{}) // fails only if the connection is gone
	}
	c.mu.Unlock()
	c.ReplyNow(r)
}

// endLocked closes the socket and drops what is queued. c.mu must be held: the publisher may be waiting for it, so TLS's
// farewell is said by a goroutine of its own.
func (c *Conn) endLocked() {
	c.closed = true
	c.emptyLocked()
	if c.raw == nil {
		c.hub.wg.Go(func() { _ = c.nc.Close() })
		return
	}
	_ = c.nc.Close() // nothing could be done about an error
}

// Subscribe lets events and hints through.
func (c *Conn) Subscribe() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.since == 0 {
		c.since = c.hub.now()
	}
}

// Open notes that the user is looking at the conversation.
func (c *Conn) Open(conv string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leaving || c.isOpen(conv) {
		return
	}
	if len(c.open) >= maxOpen {
		c.told.dropLazy(c.open[0])
		c.open = append(c.open[:0], c.open[1:]...)
	}
	c.open = append(c.open, strings.Clone(conv))
}

// Shut notes that the user no longer looks at the conversation.
func (c *Conn) Shut(conv string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, o := range c.open {
		if o == conv {
			c.open = append(c.open[:i], c.open[i+1:]...)
			c.told.dropLazy(conv)
			return
		}
	}
}

// isOpen: c.mu must be held.
func (c *Conn) isOpen(conv string) bool {
	for _, o := range c.open {
		if o == conv {
			return true
		}
	}
	return false
}

// Sent notes what the device is told of its own latest message.
func (c *Conn) Sent(conv string, seq int64, epoch int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if conv != c.own.conv {
		c.own.conv = strings.Clone(conv) // the request's is part of its whole frame
	}
	c.own.seq, c.own.epoch = seq, epoch
}

// own is a device's own message.
type own struct {
	conv  string
	seq   int64
	epoch int32
}

// Told says whether the device was told, on this connection and in that epoch, of something of the conversation at seq or
// after it: of an event that it has not acknowledged, or of its own latest message. False means that this is not known.
func (c *Conn) Told(conv string, seq int64, epoch int32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.told.reaches(conv, seq, epoch) || epoch != 0 && c.own.epoch == epoch && c.own.conv == conv && c.own.seq >= seq
}

// Acked notes the device's cursor, once it is durable.
func (c *Conn) Acked(conv string, delivered int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.leaving {
		c.told.ack(conv, delivered, c.hub.now())
	}
}

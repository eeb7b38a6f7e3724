package hub

import (
	"sync"
	"time"

	"imbench/server/wire"
)

const (
	writeBuffer = 64 << 10 // queued frames that leave in one write, at most
	writeChunk  = 16 << 10 // what a full socket must take within Config.WriteStall to count as progress
)

// buffer gathers queued frames for one write.
type buffer struct {
	b []byte
	tryState
}

var buffers = sync.Pool{New: func() any { return new(buffer) }}

// flush writes what is queued, as far as the socket takes it at once; the rest goes to a goroutine. It returns at once
// if somebody else is writing: he takes what came meanwhile.
func (c *Conn) flush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.scheduled = false
	if c.writing || c.closed || len(c.queue) == 0 {
		return
	}
	c.writing = true
	if c.raw == nil {
		c.startDrainLocked(nil)
		return
	}
	w := buffers.Get().(*buffer)
	defer buffers.Put(w)
	for len(c.queue) > 0 && !c.closed {
		data := c.takeLocked(w)
		c.mu.Unlock()
		n, err := tryWrite(c.raw, data, &w.tryState)
		c.mu.Lock()
		c.pending -= n
		if err != nil {
			c.breakLocked()
			break // with an empty queue
		}
		if n < len(data) {
			c.hub.metrics.flushers.Add(1)
			c.startDrainLocked(append([]byte(nil), data[n:]...))
			return
		}
	}
	c.doneLocked()
}

// doneLocked ends a turn of writing, and the connection if its reader has ended meanwhile.
func (c *Conn) doneLocked() {
	c.writing, c.stalled = false, false
	if c.leaving && !c.closed {
		c.endLocked()
	}
}

// takeLocked takes frames off the queue that leave together: one as it stands, several copied into w.
func (c *Conn) takeLocked(w *buffer) []byte {
	now := c.hub.now()
	n, size := 0, 0
	for n < len(c.queue) && (n == 0 || size+len(c.queue[n].data) <= writeBuffer) {
		f := c.queue[n]
		size += len(f.data)
		n++
		out := &c.hub.metrics.out[f.kind]
		out.frames.Add(1)
		out.bytes.Add(int64(f.payload))
		c.countLocked(f, -1)
		if f.at != 0 {
			c.hub.metrics.fanout(time.Duration(now - f.at))
		}
	}
	data := c.queue[0].data
	if n > 1 {
		w.b = w.b[:0]
		for _, f := range c.queue[:n] {
			w.b = append(w.b, f.data...)
		}
		data = w.b
	}
	rest := copy(c.queue, c.queue[n:])
	clear(c.queue[rest:])
	c.queue = c.queue[:rest]
	if rest == 0 && cap(c.queue) > 8 {
		c.queue = nil // an idle connection keeps no large queue
	}
	return data
}

// startDrainLocked hands the writing over to a goroutine. c.mu must be held and c.writing be true.
func (c *Conn) startDrainLocked(rest []byte) {
	c.stalled = c.raw != nil
	c.hub.wg.Go(func() { c.drain(rest) })
}

// drain writes rest and what is queued, and ends when nothing is left.
func (c *Conn) drain(rest []byte) {
	w := buffers.Get().(*buffer)
	defer buffers.Put(w)
	for {
		for len(rest) > 0 {
			c.mu.Lock()
			if !c.leaving {
				_ = c.nc.SetWriteDeadline(time.Now().Add(c.hub.cfg.WriteStall)) // fails only if the write does
			}
			c.mu.Unlock()
			n, err := c.nc.Write(rest[:min(len(rest), writeChunk)])
			rest = rest[n:]
			c.mu.Lock()
			c.pending -= n
			c.roomLocked(false)
			if err != nil {
				c.breakLocked()
				c.doneLocked()
				c.mu.Unlock()
				return
			}
			c.mu.Unlock()
		}
		c.mu.Lock()
		if c.closed || len(c.queue) == 0 {
			_ = c.nc.SetWriteDeadline(time.Time{}) // or the next attempt would meet a deadline that has passed
			c.doneLocked()
			c.mu.Unlock()
			return
		}
		// While it waits for the socket a TLS connection is stalled as well.
		c.stalled = true
		rest = c.takeLocked(w)
		c.mu.Unlock()
	}
}

// breakLocked gives up on a socket that takes no more. c.mu must be held.
func (c *Conn) breakLocked() {
	if !c.closing {
		c.closing, c.code = true, wire.CloseSlow.Code
	}
	c.emptyLocked()
	c.roomLocked(true)
	c.Cut() // the reader learns of it and ends
}

// roomLocked wakes whoever waits for room, if there is some or always. c.mu must be held.
func (c *Conn) roomLocked(always bool) {
	if c.room != nil && (always || c.pending <= c.hub.cfg.QueueBytes/2) {
		close(c.room)
		c.room = nil
	}
}

// flusher writes connections' queues for those who must not make system calls. Each connection is in its list at most
// once (Conn.scheduled), which bounds it.
type flusher struct {
	mu   sync.Mutex
	list []*Conn
	wake chan struct{}
}

func newFlusher() *flusher { return &flusher{wake: make(chan struct{}, 1)} }

func (h *Hub) flushLater(c *Conn) {
	f := h.flushers[int(c.ID)%len(h.flushers)]
	f.mu.Lock()
	f.list = append(f.list, c)
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

func (f *flusher) run(done <-chan struct{}) {
	var list []*Conn
	for {
		select {
		case <-done:
			return
		case <-f.wake:
		}
		f.mu.Lock()
		list, f.list = f.list, list[:0]
		f.mu.Unlock()
		for i, c := range list {
			c.flush()
			list[i] = nil
		}
	}
}

package hub

import "imbench/server/wire"

// push queues a frame. mark asks the caller to see to it that the queue is flushed; now asks him to do so before he
// pushes more, as the queue is half full and the socket may well take it.
func (c *Conn) push(f *frame) (mark, now bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pushLocked(f)
}

// pushEvent queues an event, and notes that the device was told of it.
func (c *Conn) pushEvent(f *frame) (mark, now bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.since == 0 || c.closing {
		return false, false
	}
	c.tell(f.conv, f.seq, f.epoch, false)
	return c.pushLocked(f)
}

// pushHint queues a hint. With the conversation open the device is expected to sync, and so the hint is tracked.
func (c *Conn) pushHint(f *frame) (mark, now bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.since == 0 || c.closing {
		return false, false
	}
	if c.isOpen(f.conv) {
		c.tell(f.conv, f.seq, 0, true)
	}
	return c.pushLocked(f)
}

// pushLocked: c.mu must be held.
func (c *Conn) pushLocked(f *frame) (mark, now bool) {
	if c.closing {
		return false, false
	}
	if !c.mergeLocked(f) {
		c.queue = append(c.queue, f)
		c.pending += len(f.data)
		c.countLocked(f, 1)
	}
	limit := c.hub.cfg.QueueFrames
	if n := c.toldLocked(); n > limit || (c.stalled && n >= limit/2) {
		c.collapseLocked()
	}
	if c.toldLocked() > limit || c.pending > c.hub.cfg.QueueBytes {
		c.slowLocked()
	}
	now = !c.writing && len(c.queue) >= limit/2
	mark = !c.scheduled && !c.writing
	c.scheduled = c.scheduled || mark
	return mark, now
}

// countLocked counts a frame that came into the queue (1) or left it (-1). c.mu must be held.
func (c *Conn) countLocked(f *frame, n int) {
	switch f.kind {
	case KHint:
		c.hints += n
	case KEvent, KRead, KControl:
	default:
		c.replies += n
	}
}

// toldLocked is how many of the queued frames nobody asked for. Only they count towards the limit of frames: a batch
// commits many requests of one device at once, and their replies come together. Those are bounded by the limit in
// bytes and by the rate of requests. c.mu must be held.
func (c *Conn) toldLocked() int { return len(c.queue) - c.replies }

// emptyLocked drops what is queued. c.mu must be held.
func (c *Conn) emptyLocked() { c.queue, c.hints, c.replies = nil, 0, 0 }

// mergeLocked raises a hint that waits for the same conversation instead of queueing another frame. An event is
// merged so only while the socket is full: it would have to wait behind the hint, whose sync brings it anyway.
func (c *Conn) mergeLocked(f *frame) bool {
	if c.hints == 0 || (f.kind != KHint && (f.kind != KEvent || !c.stalled)) {
		return false
	}
	for i, q := range c.queue {
		if q.kind == KHint && q.conv == f.conv {
			if f.seq > q.seq {
				c.replaceLocked(i, f)
			}
			return true
		}
	}
	return false
}

// replaceLocked puts f in place of frame i; an event is made a hint.
func (c *Conn) replaceLocked(i int, f *frame) {
	if f.kind == KEvent {
		f = newHintFrame(f.conv, f.seq, "")
	}
	c.pending += len(f.data) - len(c.queue[i].data)
	c.queue[i] = f
}

// collapseLocked turns each conversation's queued events into one hint, where the first of them stood. What is left in
// the queue keeps its order.
func (c *Conn) collapseLocked() {
	events := 0
	for _, f := range c.queue {
		if f.kind == KEvent {
			events++
		}
	}
	if events == 0 {
		return
	}
	c.hub.metrics.collapses.Add(1)
	old := c.queue
	c.queue = make([]*frame, 0, len(old))
	at := make(map[string]int, events)
	for _, f := range old {
		if f.kind != KEvent && f.kind != KHint {
			c.queue = append(c.queue, f)
			continue
		}
		i, ok := at[f.conv]
		if !ok {
			at[f.conv] = len(c.queue)
			c.queue = append(c.queue, f)
			if f.kind == KEvent {
				c.replaceLocked(len(c.queue)-1, f)
			}
			continue
		}
		c.pending -= len(f.data)
		if f.seq > c.queue[i].seq {
			c.replaceLocked(i, f)
		}
	}
	c.hints = len(at)
}

// slowLocked gives up on a receiver that is too slow: what is queued would only make it later. The device gets
// everything again when it reconnects and syncs.
func (c *Conn) slowLocked() {
	for _, f := range c.queue {
		c.pending -= len(f.data)
	}
	c.emptyLocked()
	c.closeLocked(wire.CloseSlow.Code, wire.CloseSlow.Reason)
}

// hold keeps a hint back; fresh is false if it was merged into one that is held already.
func (c *Conn) hold(conv string, head int64) (fresh bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.since == 0 || c.closing {
		return false
	}
	for i := range c.held {
		if c.held[i].conv == conv {
			c.held[i].head = max(c.held[i].head, head)
			return false
		}
	}
	c.held = append(c.held, heldHint{conv, head})
	return true
}

// release takes a held hint out.
func (c *Conn) release(conv string) (head int64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.held {
		if c.held[i].conv == conv {
			head = c.held[i].head
			last := len(c.held) - 1
			c.held[i] = c.held[last]
			c.held = c.held[:last]
			if last == 0 {
				c.held = nil
			}
			return head, true
		}
	}
	return 0, false
}

package hub

import (
	"context"
	"time"

	"imbench/server/wire"
)

// readTimeout bounds each read of the store.
const readTimeout = 10 * time.Second

// sweepLoop repairs what was lost on the way, in two levels: from memory, what was told and not acknowledged within the
// grace; from the store, what was written lately and never told. With at most Config.SweepHints hints and rows and
// Config.SweepConvs conversations asked for each period, what is left over waits for the next one.
func (h *Hub) sweepLoop(ctx context.Context) {
	tick := time.NewTicker(h.cfg.Sweep)
	defer tick.Stop()
	w := sweeper{hub: h, covered: time.Now(), heads: map[string]int64{}}
	var list []*Conn
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var oldest int64
		list, oldest = h.sweepMemory(list)
		w.sweep(ctx, oldest)
	}
}

// sweepMemory tells again: first what was not told again before, and with what is left of the bound the rest, so that
// devices that never acknowledge do not keep the others from what they have lost. It returns the scratch list, and since
// when the first of the connections has listened, by the hub's clock; 0 if none does.
func (h *Hub) sweepMemory(list []*Conn) (_ []*Conn, oldest int64) {
	list = h.registry.snapshot(list[:0]) // a map's order is random, so that the bound starves nobody
	now, room, retries := h.now(), h.cfg.SweepHints, 0
	for i, c := range list {
		n, left, since := c.sweep(now, room, false)
		room -= n
		if since > 0 && (oldest == 0 || since < oldest) {
			oldest = since
		}
		list[i] = nil
		if left {
			list[retries] = c
			retries++
		}
	}
	for i, c := range list[:retries] {
		if room > 0 {
			n, _, _ := c.sweep(now, room, true)
			room -= n
		}
		list[i] = nil
	}
	return list, oldest
}

// sweep queues hints for what is overdue, at most so many, and returns how many, whether others are overdue that it was not
// to tell again, and since when the device listens.
func (c *Conn) sweep(now int64, most int, again bool) (n int, left bool, since int64) {
	var mark bool
	c.mu.Lock()
	if !c.closing {
		since = c.since
	}
	if since != 0 {
		left = c.told.due(now, c.hub.cfg.Grace, again, func(conv string, head int64) bool {
			if n == most || c.closing {
				return false
			}
			n++
			m, _ := c.pushLocked(newHintFrame(conv, head, "sweep"))
			mark = mark || m
			return true
		})
	}
	c.mu.Unlock()
	c.hub.metrics.sweepHints.Add(int64(n))
	if mark {
		c.hub.flushLater(c)
	}
	return n, left, since
}

// heartbeatSlots is how many parts the connections are divided into: each part is looked at once a heartbeat.
const heartbeatSlots = 8

// expiryCheck is how late a connection may be closed after its token has expired.
const expiryCheck = time.Second

// heartbeatLoop finds half-open peers and tokens that have expired. One goroutine serves all connections.
func (h *Hub) heartbeatLoop(ctx context.Context) {
	tick, expiry := time.NewTicker(h.cfg.Heartbeat/heartbeatSlots), time.NewTicker(expiryCheck)
	defer tick.Stop()
	defer expiry.Stop()
	ping := newControlFrame(opPing, nil)
	var list []*Conn
	for slot := int64(0); ; {
		select {
		case <-ctx.Done():
			return
		case <-expiry.C:
			list = h.expire(list)
			continue
		case <-tick.C:
		}
		slot = (slot + 1) % heartbeatSlots
		list = h.registry.snapshot(list[:0])
		now := h.now()
		for i, c := range list {
			if c.ID%heartbeatSlots == slot {
				c.beat(ping, now)
			}
			list[i] = nil
		}
	}
}

// expire closes the connections whose token has expired. It looks at none while no token can have. It returns the scratch
// list.
func (h *Hub) expire(list []*Conn) []*Conn {
	now := time.Now()
	if !h.registry.expiryDue(now) {
		return list
	}
	list = h.registry.snapshot(list[:0])
	var next time.Time
	for i, c := range list {
		switch e := c.peer.Expires; {
		case e.IsZero():
		case now.After(e):
			c.Close(wire.CloseUnauthorised, "the token has expired")
		case next.IsZero() || e.Before(next):
			next = e
		}
		list[i] = nil
	}
	h.registry.mu.Lock()
	defer h.registry.mu.Unlock()
	h.registry.expiresLocked(next)
	return list
}

func (c *Conn) beat(ping *frame, now int64) {
	switch silent := time.Duration(now - c.seen.Load()); {
	case silent > 2*c.hub.cfg.Heartbeat:
		c.Cut() // nobody is there to read a close frame; the reader ends
	case silent > c.hub.cfg.Heartbeat/2:
		if mark, _ := c.push(ping); mark {
			c.hub.flushLater(c)
		}
	}
}

package batch

import "sync"

// lanes is the contended lane of a Sender: the conversations that another session holds, each with its sends in order.
// A lane lives from the first send that found its conversation locked until none waits any more; while it lives, all
// sends of its conversation go through it. A bounded number of goroutines take turns with the lanes, of all shards: a turn
// is for one conversation, and so for one shard.
type lanes struct {
	max int                               // sends a turn
	cap int                               // sends a lane
	try func(batch []*pending) []*pending // one turn: returns what must wait on, in its order

	mu     sync.Mutex
	cond   sync.Cond // ready or closed changed
	byConv map[string]*lane
	ready  []*lane // lanes that no goroutine has in hand, longest waiting first
	closed bool
	done   chan struct{} // closed when all goroutines have ended
}

type lane struct {
	conv  string
	queue []*pending
}

func newLanes(cfg SenderConfig, try func([]*pending) []*pending) *lanes {
	l := &lanes{max: cfg.MaxBatch, cap: cfg.LaneCap, try: try, byConv: make(map[string]*lane), done: make(chan struct{})}
	l.cond.L = &l.mu
	var wg sync.WaitGroup
	for range cfg.Waiters {
		wg.Go(l.run)
	}
	go func() {
		wg.Wait()
		close(l.done)
	}()
	return l
}

// divert moves the sends whose conversation has a lane into it. The others come back, and those for which their lane
// had no room.
func (l *lanes) divert(batch []*pending) (others, refused []*pending) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.byConv) == 0 {
		return batch, nil
	}
	for _, p := range batch {
		ln := l.byConv[p.req.Conv]
		switch {
		case ln == nil:
			others = append(others, p)
		case len(ln.queue) >= l.cap:
			refused = append(refused, p)
		default:
			ln.queue = append(ln.queue, p)
		}
	}
	return others, refused
}

// put opens lanes for sends that found their conversation locked; it returns those for which a lane has no room.
func (l *lanes) put(batch []*pending) (refused []*pending) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range batch {
		ln := l.byConv[p.req.Conv]
		if ln == nil {
			ln = &lane{conv: p.req.Conv}
			l.byConv[ln.conv] = ln
			l.ready = append(l.ready, ln)
		}
		if len(ln.queue) >= l.cap {
			refused = append(refused, p)
		} else {
			ln.queue = append(ln.queue, p)
		}
	}
	l.cond.Broadcast()
	return refused
}

// close lets the goroutines end when no lane is left. Nothing may be put afterwards.
func (l *lanes) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.cond.Broadcast()
}

func (l *lanes) run() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		for len(l.ready) == 0 {
			if l.closed {
				return // a lane in another goroutine's hand stays there
			}
			l.cond.Wait()
		}
		ln := l.ready[0]
		l.ready = l.ready[1:]
		n := min(len(ln.queue), l.max)
		batch := ln.queue[:n:n]
		ln.queue = ln.queue[n:]

		l.mu.Unlock()
		back := l.try(batch)
		l.mu.Lock()

		ln.queue = append(back, ln.queue...)
		if len(ln.queue) == 0 {
			delete(l.byConv, ln.conv)
		} else {
			l.ready = append(l.ready, ln)
		}
	}
}

package batch

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// collector gathers items and hands them to flush, one call at a time, in the order of their arrival. It is the common
// part of all batchers; one goroutine runs it.
type collector[T any] struct {
	limit  int                          // items waiting; add refuses more
	max    int                          // items a flush
	window func(last int) time.Duration // how long to wait for company after a flush of last items; ≤ 0 = not at all
	flush  func([]T)                    // the slice is reused after it returns

	mu     sync.Mutex
	queue  []T  // queue[0] waits longest
	last   int  // items of the last flush
	came   int  // items since it began to answer
	back   bool // flush says when it does: whoever is answered may be back at once
	closed bool

	wake chan struct{} // capacity 1: something was added, or closed was set
	full chan struct{} // capacity 1: there is nothing to wait for
	done chan struct{} // closed when run has returned
}

func newCollector[T any](limit, max int, window func(int) time.Duration, flush func([]T)) *collector[T] {
	return &collector[T]{
		limit: limit, max: max, window: window, flush: flush,
		wake: make(chan struct{}, 1), full: make(chan struct{}, 1), done: make(chan struct{}),
	}
}

// start begins to flush; close ends it.
func (c *collector[T]) start() *collector[T] {
	go c.run()
	return c
}

// add queues an item; false means that the queue is full or closed.
func (c *collector[T]) add(item T) bool {
	c.mu.Lock()
	if c.closed || len(c.queue) >= c.limit {
		c.mu.Unlock()
		return false
	}
	c.queue = append(c.queue, item)
	n := len(c.queue)
	c.came++
	complete := n >= c.max || c.back && c.came == c.last
	c.mu.Unlock()
	if n == 1 {
		signal(c.wake)
	}
	if complete {
		signal(c.full)
	}
	return true
}

// answering is called by flush when it begins to answer its items.
func (c *collector[T]) answering() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.came, c.back = 0, true
}

// close refuses further items; run then flushes the rest without waiting for company, and ends.
func (c *collector[T]) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	signal(c.wake)
	signal(c.full)
}

// waiting is the number of items that no flush has taken yet.
func (c *collector[T]) waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.queue)
}

func (c *collector[T]) run() {
	defer close(c.done)
	batch := make([]T, 0, c.max)
	for {
		batch = c.take(batch)
		if len(batch) == 0 {
			return
		}
		c.flush(batch)
		clear(batch)
	}
}

// take waits for items, and for their company, and moves up to max of them to batch; none means closed and drained.
func (c *collector[T]) take(batch []T) []T {
	var last int
	for {
		c.mu.Lock()
		n, closed := len(c.queue), c.closed
		last = c.last
		c.mu.Unlock()
		if n > 0 || closed {
			break
		}
		<-c.wake
	}
	if w := c.window(last); w > 0 {
		c.linger(w)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	n := min(len(c.queue), c.max)
	batch = append(batch[:0], c.queue[:n]...)
	rest := copy(c.queue, c.queue[n:])
	clear(c.queue[rest:])
	c.queue = c.queue[:rest]
	c.last, c.came = n, 0
	return batch
}

// linger waits until w has passed, a whole batch waits, as many have come as the last flush answered, or the collector was
// closed. Callers who send one item after the other are the company that there is: with them the batch is complete. Where
// items come by themselves, as many in so short a time are rare.
func (c *collector[T]) linger(w time.Duration) {
	timer := time.NewTimer(w)
	defer timer.Stop()
	for {
		c.mu.Lock()
		ready := c.closed || len(c.queue) >= c.max || c.back && c.came >= c.last
		c.mu.Unlock()
		if ready {
			return
		}
		select {
		case <-timer.C:
			return
		case <-c.full:
		}
	}
}

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// counters are the atomic form of Counters.
type counters struct {
	batches, requests, failed, refused, waiting, busy atomic.Int64
	sizes                                             [len(SizeBuckets) + 1]atomic.Int64
	took                                              [len(SecondsBuckets) + 1]atomic.Int64
}

// call counts one call to the store.
func (c *counters) call(n int, since time.Time) {
	c.batches.Add(1)
	c.requests.Add(int64(n))
	d := time.Since(since)
	c.busy.Add(int64(d))
	i := 0
	for i < len(SecondsBuckets) && d.Seconds() > SecondsBuckets[i] {
		i++
	}
	c.took[i].Add(1)
	i = 0
	for i < len(SizeBuckets) && n > SizeBuckets[i] {
		i++
	}
	c.sizes[i].Add(1)
}

func (c *counters) snapshot() Counters {
	s := Counters{
		Batches: c.batches.Load(), Requests: c.requests.Load(), Failed: c.failed.Load(), Refused: c.refused.Load(),
		Waiting: c.waiting.Load(), Busy: time.Duration(c.busy.Load()),
	}
	for i := range c.sizes {
		s.Sizes[i] = c.sizes[i].Load()
	}
	for i := range c.took {
		s.Took[i] = c.took[i].Load()
	}
	return s
}

// join waits until the collector's goroutine ended. When ctx ends first it calls cancel, which makes the calls to the
// store fail, and goes on waiting: nothing is left behind.
func join(ctx context.Context, cancel context.CancelFunc, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		cancel()
		<-done
		return ctx.Err()
	}
}

package app

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"imbench/server/internal/im"
)

// turns bounds the calls to the store that wait for a conversation's lock, each of which keeps a database connection: a
// conversation has one under way, so that a stuck one takes one connection from the others and not all, and together
// there are as many as there are slots. Who waits for a turn holds no connection. It is safe for concurrent use.
type turns struct {
	slots chan struct{} // one is in it for each call under way
	most  int           // calls under way and waiting; one more is turned away
	ended chan struct{} // closed by drain: nobody waits any more

	mu      sync.Mutex
	drained bool
	count   int
	convs   map[string]*turn

	busy, refused atomic.Int64 // tries that found a conversation locked elsewhere; calls that were turned away
}

// turn is a conversation that has calls under way or waiting.
type turn struct {
	free chan struct{} // capacity 1: something in it while a call is under way
	n    int           // calls under way or waiting
}

func newTurns(slots, most int) *turns {
	return &turns{slots: make(chan struct{}, max(1, slots)), most: most, ended: make(chan struct{}), convs: map[string]*turn{}}
}

// drain has those who wait answered at once, and all who come later who would have to wait. It may be called twice.
func (t *turns) drain() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.drained {
		t.drained = true
		close(t.ended)
	}
}

// take runs do when it is conv's turn and returns its error; im.ErrUnavailable, and do was not run, when too many wait, or
// ctx ends or drain is called first.
func (t *turns) take(ctx context.Context, conv string, do func() error) error {
	turn := t.enter(conv)
	if turn == nil {
		t.refused.Add(1)
		return fmt.Errorf("%w: too many wait for locked conversations", im.ErrUnavailable)
	}
	defer t.leave(conv, turn)
	for _, gate := range []chan struct{}{turn.free, t.slots} {
		if err := t.pass(ctx, gate); err != nil {
			return err
		}
		defer func() { <-gate }()
	}
	return do()
}

func (t *turns) pass(ctx context.Context, gate chan<- struct{}) error {
	select {
	case gate <- struct{}{}: // also after drain
		return nil
	default:
	}
	select {
	case gate <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: nothing was done: %w", im.ErrUnavailable, ctx.Err())
	case <-t.ended:
		return errEnding
	}
}

var errEnding = fmt.Errorf("%w: nothing was done: this gateway is ending", im.ErrUnavailable)

// pause waits for d; false when ctx ended or drain was called first.
func (t *turns) pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-t.ended:
	}
	return false
}

func (t *turns) enter(conv string) *turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.count >= t.most {
		return nil
	}
	t.count++
	c := t.convs[conv]
	if c == nil {
		c = &turn{free: make(chan struct{}, 1)}
		t.convs[conv] = c
	}
	c.n++
	return c
}

func (t *turns) leave(conv string, c *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count--
	if c.n--; c.n == 0 {
		delete(t.convs, conv)
	}
}

// waiting is the number of calls under way and waiting.
func (t *turns) waiting() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.count
}

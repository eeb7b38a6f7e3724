package fault

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
)

// maxHeld is how many arrivals a Barrier holds; more are let through.
const maxHeld = 1024

// Barrier is the other side of the pauses, in the test that drives the gateways: who pauses arrives here, and stays
// until it is released.
type Barrier struct {
	l  net.Listener
	wg sync.WaitGroup

	mu      sync.Mutex
	held    []*Held
	arrived chan struct{} // closed and replaced when held has grown
	closed  bool
}

// Held is one arrival.
type Held struct {
	Point Point
	conn  net.Conn
}

// NewBarrier listens on a Unix socket at path, whose length the system bounds to about a hundred bytes.
func NewBarrier(path string) (*Barrier, error) {
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	b := &Barrier{l: l, arrived: make(chan struct{})}
	b.wg.Go(b.accept)
	return b, nil
}

func (b *Barrier) accept() {
	for {
		conn, err := b.l.Accept()
		if err != nil {
			return
		}
		b.wg.Go(func() {
			name, err := bufio.NewReader(conn).ReadString('\n')
			if err != nil || !b.hold(&Held{Point: Point(strings.TrimSpace(name)), conn: conn}) {
				conn.Close()
			}
		})
	}
}

func (b *Barrier) hold(h *Held) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || len(b.held) >= maxHeld {
		return false
	}
	b.held = append(b.held, h)
	close(b.arrived)
	b.arrived = make(chan struct{})
	return true
}

// Wait returns the arrival at a point that has waited longest, when there is one, or ctx's error.
func (b *Barrier) Wait(ctx context.Context, p Point) (*Held, error) {
	for {
		b.mu.Lock()
		for i, h := range b.held {
			if h.Point == p {
				b.held = append(b.held[:i], b.held[i+1:]...)
				b.mu.Unlock()
				return h, nil
			}
		}
		arrived := b.arrived
		b.mu.Unlock()
		select {
		case <-arrived:
		case <-ctx.Done():
			return nil, fmt.Errorf("nobody came to %s: %w", p, ctx.Err())
		}
	}
}

// Release lets the arrival go on, or has it do something there; with an error it had gone already.
func (h *Held) Release(do Action) error {
	defer h.conn.Close()
	_, err := fmt.Fprintln(h.conn, do)
	return err
}

// Close lets everyone go on, and waits for the Barrier's goroutines. It may be called twice.
func (b *Barrier) Close() {
	b.mu.Lock()
	held := b.held
	b.held, b.closed = nil, true
	b.mu.Unlock()
	_ = b.l.Close()
	for _, h := range held {
		h.conn.Close()
	}
	b.wg.Wait()
}

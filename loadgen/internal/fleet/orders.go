package fleet

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go"
)

// Obey carries out an order of the coordinator and answers it. It is called by one goroutine, one order at a time, before, during
// and after the work on a job; ctx ends with the run. What it returns as an error is told to the coordinator as a text.
type Obey func(ctx context.Context, order []byte) (answer []byte, err error)

// maxOrders is how many orders may wait at a worker. Whoever asks waits for the answer, so it bounds the askers: a timeline of a
// hundred faults has two for each, one that does it and one that follows it.
const maxOrders = 256

// numberBytes stand before each order and answer, and say which belong together; one more in an answer says whether it is an
// error.
const numberBytes = 8

// pending are the orders that wait for an answer.
type pending struct {
	mu      sync.Mutex
	last    uint64
	waiting map[uint64]chan []byte
}

func (p *pending) open() (number uint64, answer chan []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last++
	if p.waiting == nil {
		p.waiting = map[uint64]chan []byte{}
	}
	answer = make(chan []byte, 1)
	p.waiting[p.last] = answer
	return p.last, answer
}

func (p *pending) close(number uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.waiting, number)
}

// answered hands an answer to who waits for it. One that nobody waits for any more is dropped.
func (p *pending) answered(kind string, body []byte) error {
	if kind != kindAnswer || len(body) <= numberBytes {
		return fmt.Errorf("an answer to an order was expected, not %q", kind)
	}
	number := binary.BigEndian.Uint64(body)
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.waiting[number]; c != nil {
		c <- body[numberBytes:]
		delete(p.waiting, number)
	}
	return nil
}

// Ask gives every worker an order, and returns their answers in the order of Members. It is safe for concurrent use, also while
// Run goes on, and from a Sink. The error is ctx's, a *LostError, or what a worker made of it.
func (f *Fleet) Ask(ctx context.Context, orders ...[]byte) ([][]byte, error) {
	answers, errs := make([][]byte, len(f.members)), make([]error, len(f.members))
	var all sync.WaitGroup
	for i, m := range f.members {
		order := orders[0]
		if len(orders) > 1 {
			order = orders[i]
		}
		all.Go(func() {
			if answers[i], errs[i] = f.order(ctx, m, order); errs[i] != nil {
				errs[i] = fmt.Errorf("%s: %w", m.Name, errs[i])
			}
		})
	}
	all.Wait()
	return answers, errors.Join(errs...)
}

// order is one worker's part of Ask.
func (f *Fleet) order(ctx context.Context, m *member, body []byte) ([]byte, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(m.there, func() { cancel(context.Cause(m.there)) })()
	number, answer := f.orders.open()
	defer f.orders.close(number)
	if err := m.send(ctx, f.nc, kindOrder, append(binary.BigEndian.AppendUint64(nil, number), body...)); err != nil {
		return nil, err
	}
	select {
	case b := <-answer:
		if b[0] != 0 {
			return nil, errors.New(string(b[1:]))
		}
		return b[1:], nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// send sends a message to a worker: one at a time, or their chunks would mix.
func (m *member) send(ctx context.Context, nc *nats.Conn, kind string, body []byte) error {
	m.sending.Lock()
	defer m.sending.Unlock()
	return send(ctx, nc, downSubject(m.ID), kind, body)
}

// hearAnswers takes the workers' answers to orders, each on a subject of its own: the goroutine of a run, which all else goes
// through, may be the one that waits.
func (f *Fleet) hearAnswers() error {
	for _, m := range f.members {
		in := &receiver{handle: func(kind string, body []byte) error { m.sign(); return f.orders.answered(kind, body) }}
		if _, err := in.receives(f.nc, answerSubject(f.cfg.Run, m.ID)); err != nil { // it ends with the connection
			return err
		}
	}
	return nil
}

// obeys carries out orders until the session is over.
func (s *Session) obeys(obey Obey) {
	for {
		select {
		case <-s.alive.Done():
			return
		case body := <-s.orders:
			var out bytes.Buffer
			out.Write(body[:numberBytes])
			answer, err := obey(s.alive, body[numberBytes:])
			if err != nil {
				out.WriteByte(1)
				answer = []byte(err.Error())
			} else {
				out.WriteByte(0)
			}
			out.Write(answer)
			_ = send(s.alive, s.nc, s.answers, kindAnswer, out.Bytes()) // who does not hear it asks no more
		}
	}
}

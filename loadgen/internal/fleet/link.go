package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// Bounds of messages.
const (
	chunk      = 512 << 10
	maxMessage = 64 << 20
	headers    = 1 << 10 // room for the header of a NATS message
)

// Headers of a chunk.
const (
	headKind = "Kind"
	headMore = "More" // present unless it is the last chunk of its message
)

// send sends a message chunk by chunk and waits for the other side to have taken each. The error is ctx's, NATS's, or what
// the other side made of it.
func send(ctx context.Context, nc *nats.Conn, subject, kind string, body []byte) error {
	w := newChunks(ctx, nc, subject, kind)
	if _, err := w.Write(body); err != nil {
		return err
	}
	return w.Close()
}

// chunks is an io.WriteCloser whose contents arrive as one message.
type chunks struct {
	ctx           context.Context
	nc            *nats.Conn
	subject, kind string
	buf           []byte
}

func newChunks(ctx context.Context, nc *nats.Conn, subject, kind string) *chunks {
	size := min(chunk, int(nc.MaxPayload())-headers)
	return &chunks{ctx: ctx, nc: nc, subject: subject, kind: kind, buf: make([]byte, 0, max(size, headers))}
}

// Write implements io.Writer. It waits while the other side is behind.
func (c *chunks) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		if len(c.buf) == cap(c.buf) {
			if err := c.flush(true); err != nil {
				return n - len(p), err
			}
		}
		k := min(cap(c.buf)-len(c.buf), len(p))
		c.buf = append(c.buf, p[:k]...)
		p = p[k:]
	}
	return n, nil
}

// Close sends the rest.
func (c *chunks) Close() error { return c.flush(false) }

func (c *chunks) flush(more bool) error {
	m := nats.NewMsg(c.subject)
	m.Header.Set(headKind, c.kind)
	if more {
		m.Header.Set(headMore, "1")
	}
	m.Data = c.buf
	ctx, cancel := context.WithTimeoutCause(c.ctx, ackLimit, fmt.Errorf("%s was not taken within %v", c.kind, ackLimit))
	defer cancel()
	reply, err := c.nc.RequestMsgWithContext(ctx, m)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return err
	}
	c.buf = c.buf[:0]
	if len(reply.Data) > 0 {
		return errors.New(string(reply.Data))
	}
	return nil
}

// receiver puts messages together again. handle is called with whole messages, one at a time; those of kind streamed go
// to stream instead, in pieces as they come. Both are called by the goroutine of the subscription, and what they return is
// told to the sender.
type receiver struct {
	handle   func(kind string, body []byte) error
	streamed string
	stream   func(piece []byte, last bool) error

	taking sync.Mutex // held until what was taken is answered
	kind   string
	buf    bytes.Buffer
}

// receives lets r take what comes on a subject, until the function that it returns is called: that one waits for the answer that
// is being given, without which the other side would wait for it once the connection is closed.
func (r *receiver) receives(nc *nats.Conn, subject string) (end func(), err error) {
	sub, err := nc.Subscribe(subject, r.take)
	if err != nil {
		return nil, err
	}
	return func() {
		_ = sub.Unsubscribe()
		r.taking.Lock()
		defer r.taking.Unlock()
	}, nil
}

// take is the callback of a subscription.
func (r *receiver) take(m *nats.Msg) {
	r.taking.Lock()
	defer r.taking.Unlock()
	err := r.piece(m.Header.Get(headKind), m.Data, m.Header.Get(headMore) != "")
	var answer []byte
	if err != nil {
		answer = []byte(err.Error())
	}
	_ = m.Respond(answer) // who does not get it gives up by itself
}

func (r *receiver) piece(kind string, b []byte, more bool) error {
	if kind == r.streamed && kind != "" {
		return r.stream(b, !more)
	}
	if kind != r.kind {
		r.kind = kind
		r.buf.Reset()
	}
	if r.buf.Len()+len(b) > maxMessage {
		r.buf.Reset()
		return fmt.Errorf("a message of kind %s is longer than %d bytes", kind, maxMessage)
	}
	r.buf.Write(b)
	if more {
		return nil
	}
	body := bytes.Clone(r.buf.Bytes())
	r.kind = ""
	r.buf = bytes.Buffer{}
	return r.handle(kind, body)
}

// pipe is a stream that one goroutine fills and another reads.
type pipe struct {
	r     *io.PipeReader
	w     *io.PipeWriter
	ended chan struct{} // closed when the reader has ended
	err   error         // what it made of the stream
}

func newPipe(read func(io.Reader) error) *pipe {
	p := &pipe{ended: make(chan struct{})}
	p.r, p.w = io.Pipe()
	go func() {
		defer close(p.ended)
		p.err = read(p.r)
		p.r.CloseWithError(errors.Join(p.err, io.ErrClosedPipe)) // a writer does not wait for a reader that is gone
	}()
	return p
}

// piece writes one piece; with the last one it waits for the reader.
func (p *pipe) piece(b []byte, last bool) error {
	if _, err := p.w.Write(b); err != nil && !errors.Is(err, io.ErrClosedPipe) {
		return err
	}
	if !last {
		return nil
	}
	_ = p.w.Close()
	<-p.ended
	return p.err
}

// connect opens a connection to a server. What comes of a broken one is the business of closed.
func connect(url, name string, closed func(error), more ...nats.Option) (*nats.Conn, error) {
	opts := append([]nats.Option{nats.Name(name), nats.Timeout(5 * time.Second), nats.ReconnectWait(time.Second), nats.MaxReconnects(-1),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { closed(err) })}, more...)
	nc, err := nats.Connect(url, opts...)
	if err != nil {
		return nil, fmt.Errorf("no NATS server at %s: %w", Redacted(url), err)
	}
	return nc, nil
}

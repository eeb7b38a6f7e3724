// Package protocol is the seam between virtual devices and a wire: what a device needs to connect, send, acknowledge, ask
// for what it missed, and take what comes next, in words that belong to no wire. Gateway speaks the workbench's own.
//
// # Another wire
//
// Implement Wire and Conn: about a hundred lines for a small one (see the example). Of Conn, Write turns a Request into
// bytes and Serve turns bytes into Frames; a request that the wire does not know is left out: Write returns 0 and nil, and
// nothing is counted. Say in Proofs what the wire carries. The device does the rest by it, and what cannot be concluded
// reads "not checked" in the results, never 0:
//
//	Proofs      without it
//	Replies     a send counts as done when the device sees its own message (Echo)
//	Echo        a device's own message counts as delivered to it with the reply
//	Keys        a send of unknown outcome is not repeated
//	Seqs        no order; loss and repeats are found by the marker in the body, at the end of the run
//	Lists       the device opens its conversations one by one and asks for nothing else
//	Acks        no acknowledgements
//	Sync        who was away is owed nothing of what was sent meanwhile; no push is thrown away to provoke a repair
//	Hints       every event is pushed
//
// Acks, Sync and Hints speak of seqs and need Seqs. Replies or Echo must be there: a send has to end.
//
// What a device does first, in this order: OpHello; when KindWelcome has come, OpSubscribe, and OpList or an OpOpen for each
// of its conversations. A wire without a greeting hands on a KindWelcome of its own, with Bytes 0, as its first frame.
// Bodies are carried as they are: they hold the marker (run, index in the plan, intended time).
//
// Latencies end at a Frame's Arrived, which a wire sets if it knows when the bytes came; how long the generator takes to read
// them is then in hardly any.
//
// A Wire is safe for concurrent use. A Conn's Write and Close are safe for concurrent use and never wait for the
// network; Serve is called once, by the goroutine that owns the connection.
package protocol

import (
	"context"
	"errors"
	"time"
)

// Wire opens sessions.
type Wire interface {
	// Dial connects to target and makes it ready to carry requests; the first one is the device's OpHello. Errors:
	// *RefusedError if the other side answered something else than it should, otherwise a network error.
	Dial(ctx context.Context, target, token string) (Conn, error)
	// Proves says what can be concluded from what this wire carries. It does not change.
	Proves() Proofs
}

// Proofs are what a wire carries, and so what a run over it can prove.
type Proofs struct {
	Seqs    bool // events of a conversation carry consecutive numbers: a missing one is seen, order is proven
	Replies bool // a send is answered
	Echo    bool // the sending device is sent its own message, as the others are
	Keys    bool // a send carries a key under which it may be repeated and is taken once
	Acks    bool // a device can say how far it has got
	Sync    bool // a device can ask for what it missed
	Hints   bool // a device may be told that there is something instead of what
	Lists   bool // a device can ask how its conversations stand
}

// Check says what is contradictory in a wire's proofs.
func (p Proofs) Check() error {
	switch {
	case !p.Replies && !p.Echo:
		return errors.New("protocol: a wire with neither Replies nor Echo: no send would ever end")
	case !p.Seqs && (p.Acks || p.Sync || p.Hints):
		return errors.New("protocol: a wire with Acks, Sync or Hints and no Seqs: they speak of seqs")
	}
	return nil
}

// Conn is one session.
type Conn interface {
	// Write sends a request and returns the size of its payload in bytes, without the framing; 0 if this wire has no such
	// request. It does not wait: what the socket does not take at once is queued, up to MaxQueued bytes. Errors: ErrBacklog
	// beyond that, ErrClosed.
	Write(r *Request) (int, error)
	// Serve reads until the session ends and hands every frame to h, in order and one at a time, perhaps on another goroutine
	// than its caller's, which others' frames wait for: h must not wait for anything. The frame is only valid during the call
	// (its strings stay valid). It returns why the session ended, never nil: *CloseError if the other side said so,
	// ErrClosed after Close, *FrameError for what no sane peer sends, otherwise a network error. All that the session
	// had started has ended when it returns.
	Serve(h func(*Frame)) error
	// Close ends the session with a WebSocket-style status code (1000 = normal), or abruptly with code 0.
	Close(code int)
}

// Holder is what a Conn may be besides, so that a device can stop reading.
type Holder interface {
	// Hold keeps the connection from reading anything for a time; what has been read is still handed on. false: this one
	// cannot, and h of Serve may wait instead.
	Hold(d time.Duration) bool
}

// Backlogged is what a Conn may be besides, so that a run can tell whether its generator keeps up with reading.
type Backlogged interface {
	// Unread is how many bytes lie in the connection's socket that nobody has read; not ok where that cannot be known.
	// It may be called at any time, by anyone.
	Unread() (bytes int, ok bool)
}

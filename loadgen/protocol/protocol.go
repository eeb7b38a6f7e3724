// Package protocol is what a virtual device needs from a wire: a session that carries requests one way and frames the
// other. Gateway speaks the workbench's own wire; another wire follows by implementing Wire and Conn and by
// putting its frames into the vocabulary of package wire.
//
// A Wire is safe for concurrent use. A Conn's Write and Close are safe for concurrent use and never wait for the
// network; Serve is called once, by the goroutine that owns the connection.
package protocol

import (
	"context"

	"imbench/server/wire"
)

// Wire opens sessions.
type Wire interface {
	// Dial connects to target and makes it ready to carry requests; the first one is the device's hello. Errors:
	// *RefusedError if the other side answered something else than it should, otherwise a network error.
	Dial(ctx context.Context, target, token string) (Conn, error)
	// Proves says what can be concluded from what this wire carries.
	Proves() Proof
}

// Proof is what a wire can prove.
type Proof struct {
	// GapFree: events of a conversation carry consecutive numbers, so that a missing one is seen. Without it loss can
	// only be found by comparing logs at the end of a run.
	GapFree bool
	// Replays: a send carries an idempotency key, so that a send of unknown outcome may be repeated.
	Replays bool
}

// Conn is one session.
type Conn interface {
	// Write sends a request and returns the size of its payload in bytes, without the framing. It does not wait: what
	// the socket does not take at once is queued, up to MaxQueued bytes. Errors: ErrBacklog beyond that, ErrClosed.
	Write(r *Request) (int, error)
	// Serve reads until the session ends and hands every frame to h, in order. The frame is only valid during the call
	// (its strings stay valid). It returns why the session ended, never nil: *CloseError if the other side said so,
	// ErrClosed after Close, *FrameError for what no sane peer sends, otherwise a network error. All that the session
	// had started has ended when it returns.
	Serve(h func(*Frame)) error
	// Close ends the session with a WebSocket-style status code (1000 = normal), or abruptly with code 0.
	Close(code int)
}

// Request is a request with the number that its reply carries back. Of the embedded request RID is the wire's business.
type Request struct {
	wire.Request
	ID uint32 // at most MaxRequestID
}

// MaxRequestID is the largest ID; the text of a rid has a fixed length, so that frame sizes can be predicted.
const MaxRequestID = 36*36*36 - 1

// Frame is what arrived.
type Frame struct {
	wire.Frame
	Bytes int // of the payload, without the framing
	// Re and ID name the request that this frame answers; Re is "" for frames that the gateway sends on its own.
	Re wire.Type
	ID uint32
}

// TPing is the type of a transport ping in Serve: the wire has answered it already, with a pong of the same size.
const TPing = wire.TPing

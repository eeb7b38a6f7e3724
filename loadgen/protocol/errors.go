package protocol

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"imbench/server/wire"
)

var (
	// ErrClosed: this side closed the session.
	ErrClosed = errors.New("connection closed")
	// ErrBacklog: the other side has not read for so long that MaxQueued bytes wait; the session is closed.
	ErrBacklog = errors.New("the other side does not read: too much is waiting to be written")
)

// CloseError is a close frame of the other side.
type CloseError struct {
	Code       int
	Reason     string
	Terminal   bool          // reconnecting with the same credentials is of no use
	Leaving    bool          // this gateway goes: another is the better choice
	Token      bool          // the token is not, or no longer, accepted: with another one the device may come back
	Busy       bool          // only too many at once: the same gateway will take the device after RetryAfter
	RetryAfter time.Duration // 0 = not said
}

// Error says code and reason.
func (e *CloseError) Error() string {
	return fmt.Sprintf("closed by the gateway: %d %s", e.Code, e.Reason)
}

// RefusedError is an answer to the handshake that is not the one asked for.
type RefusedError struct {
	URL        string
	Status     int    // HTTP status; 0 = the answer was not HTTP
	Answer     string // its first line, or why it is not acceptable
	Silent     string // what came instead of an answer; empty = there was one
	RetryAfter time.Duration
}

// Error names the target and what it answered.
func (e *RefusedError) Error() string {
	if e.Silent != "" {
		return e.URL + " accepted the connection and " + e.Silent
	}
	return fmt.Sprintf("%s answered %q", e.URL, e.Answer)
}

// Terminal says whether trying again with the same token is of no use.
func (e *RefusedError) Terminal() bool {
	return e.Status != http.StatusServiceUnavailable && e.Status != http.StatusTooManyRequests &&
		e.Status != http.StatusBadGateway && e.Status != http.StatusGatewayTimeout
}

// TokenRefused says whether a session ended, or did not begin, because its token is not or no longer accepted.
func TokenRefused(err error) bool {
	var ce *CloseError
	var re *RefusedError
	return errors.As(err, &ce) && ce.Token || errors.As(err, &re) && re.Status == http.StatusUnauthorized
}

// FrameError is a frame that breaks the protocol: too large, malformed, or not text.
type FrameError struct{ Why string }

// Error says what was wrong.
func (e *FrameError) Error() string { return "protocol error: " + e.Why }

var closes = []wire.Close{wire.CloseUnauthorised, wire.CloseReplaced, wire.CloseProtocol, wire.CloseSlow,
	wire.CloseNotAdmitted, wire.CloseDraining}

// NewCloseError says what a close code of our wire and its reason mean.
func NewCloseError(code int, reason string) *CloseError {
	e := &CloseError{Code: code, Reason: reason, RetryAfter: retryAfter(reason),
		Token: code == wire.CloseUnauthorised.Code, Leaving: code == wire.CloseDraining.Code, Busy: code == wire.CloseNotAdmitted.Code}
	for _, c := range closes {
		e.Terminal = e.Terminal || c.Code == code && c.Terminal
	}
	return e
}

// closeError reads the payload of a close frame; one without a code counts as 1005, as RFC 6455 says.
func closeError(payload []byte) *CloseError {
	if len(payload) < 2 {
		return NewCloseError(1005, "")
	}
	return NewCloseError(int(payload[0])<<8|int(payload[1]), string(payload[2:]))
}

// retryAfter finds "retry_after_ms=N" in a close reason.
func retryAfter(reason string) time.Duration {
	const key = "retry_after_ms="
	_, rest, ok := strings.Cut(reason, key)
	if !ok {
		return 0
	}
	end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		end = len(rest)
	}
	ms, err := strconv.ParseInt(rest[:end], 10, 32)
	if err != nil {
		return 0
	}
	return time.Duration(ms) * time.Millisecond
}

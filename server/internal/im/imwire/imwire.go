// Package imwire says the domain in the wire's words: errors as codes, events as clients see them. It is the one place
// that knows both, for the WebSocket and for HTTP.
//
// It holds no state; all functions are safe for concurrent use.
package imwire

import (
	"errors"

	"imbench/server/internal/im"
	"imbench/server/wire"
)

// codes gives each domain error its code. What is not here is a failure of ours: the outcome is unknown.
var codes = []struct {
	err  error
	code wire.Code
}{
	{im.ErrNotMember, wire.NotMember},
	{im.ErrAlreadyMember, wire.AlreadyMember},
	{im.ErrIdempotencyMismatch, wire.IdempotencyMismatch},
	{im.ErrExpired, wire.Expired},
	{im.ErrRecallWindow, wire.RecallWindow},
	{im.ErrNotSender, wire.NotSender},
	{im.ErrCursorAhead, wire.CursorAhead},
	{im.ErrStaleInstall, wire.StaleInstall},
	{im.ErrEpochChanged, wire.EpochChanged},
	{im.ErrGroupFull, wire.GroupFull},
	{im.ErrTooLarge, wire.TooLarge},
	{im.ErrBadRequest, wire.BadRequest},
	{im.ErrRateLimited, wire.RateLimited},
}

// CodeOf is the wire's code for an error of the domain, and the sentence that a client may see.
func CodeOf(err error) (wire.Code, string) {
	if says := im.BadRequest(""); errors.As(err, &says) {
		return wire.BadRequest, says.Error()
	}
	for _, c := range codes {
		if errors.Is(err, c.err) {
			return c.code, c.err.Error()
		}
	}
	return wire.Unavailable, im.ErrUnavailable.Error()
}

// Event is an event as clients see it.
func Event(e *im.Event) wire.Event {
	return wire.Event{Conv: e.Conv, Seq: e.Seq, Epoch: e.Epoch, Kind: string(e.Kind), MID: e.MID, Sender: e.Sender,
		CMID: e.CMID, Body: e.Body, User: e.User, Target: e.Target, At: e.At.UnixMilli()}
}

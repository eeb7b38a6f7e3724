package im

import "errors"

// Domain errors. Each has one wire code; package wire lists them for clients.
var (
	ErrNotMember           = errors.New("not a member, or no such conversation")
	ErrAlreadyMember       = errors.New("already a member")
	ErrIdempotencyMismatch = errors.New("this cmid was used for another request")
	ErrExpired             = errors.New("the event was removed by retention")
	ErrCursorAhead         = errors.New("seq lies beyond the conversation's head")
	ErrStaleInstall        = errors.New("this device was reinstalled since")
	ErrEpochChanged        = errors.New("the conversation's log was rebuilt: sync from zero")
	ErrGroupFull           = errors.New("the group is full")
	ErrNotSender           = errors.New("only its sender may recall a message")
	ErrRecallWindow        = errors.New("the time in which a message may be recalled is over")
	ErrTooLarge            = errors.New("larger than the limit")
	ErrBadRequest          = errors.New("bad request")
	ErrRateLimited         = errors.New("too many requests")
	ErrUnknownDevice       = errors.New("no such device")

	// ErrUnavailable: the outcome is unknown; retry with the same cmid.
	ErrUnavailable = errors.New("unavailable: the outcome is unknown")
	// ErrBusy is internal: the conversation's row is locked elsewhere; the request goes to the contended lane.
	ErrBusy = errors.New("conversation is locked elsewhere")
	// ErrLeaseHeld is internal too: another process of this gateway id has a lease in force.
	ErrLeaseHeld = errors.New("the lease is another process's")
)

// BadRequest is an ErrBadRequest that says what is wrong with the request, in a sentence that the client may see.
type BadRequest string

// Error is the sentence.
func (e BadRequest) Error() string { return string(e) }

// Is makes it an ErrBadRequest.
func (BadRequest) Is(target error) bool { return target == ErrBadRequest }

// Package batch turns many small requests into few transactions: sends share a commit; acknowledgements, read reports
// and route claims are merged and written in bulk. Each request still gets its own outcome, and only after its commit.
//
// All types are safe for concurrent use. Callbacks run on a worker's goroutine (or, for a request that is turned
// away at once, on the caller's) and must not block. Close stops accepting, drains what waits, and returns when all
// goroutines have ended; requests submitted after that end with im.ErrUnavailable.
//
// Memory is bounded: each queue has a limit, beyond which requests end at once with im.ErrUnavailable. That is the
// right code rather than ErrRateLimited: the caller did nothing wrong, and may retry with the same key.
package batch

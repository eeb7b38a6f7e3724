package batch

import (
	"errors"
	"fmt"

	"imbench/server/internal/im"
)

// inHalves calls do with all requests. When the call fails with something else than an unknown outcome, one of the
// requests is at fault: both halves are tried apart, down to the one, which gets failed(err). With an unknown outcome
// (the database is away) trying again here would only add load: every request gets it, and its device retries.
func inHalves[Q, R any](reqs []Q, do func([]Q) ([]R, error), failed func(error) R) []R {
	res, err := do(reqs)
	if err == nil {
		return res
	}
	if len(reqs) == 1 || errors.Is(err, im.ErrUnavailable) {
		out := make([]R, len(reqs))
		for i := range out {
			out[i] = failed(err)
		}
		return out
	}
	h := len(reqs) / 2
	return append(inHalves(reqs[:h:h], do, failed), inHalves(reqs[h:], do, failed)...)
}

// known leaves the errors that a client may learn of a single request, and calls all others an unknown outcome.
func known(err error) error {
	if errors.Is(err, im.ErrUnavailable) || errors.Is(err, im.ErrBadRequest) || errors.Is(err, im.ErrTooLarge) {
		return err
	}
	return fmt.Errorf("%w: %w", im.ErrUnavailable, err)
}

// errClosed and errFull: the request was turned away before it reached the store.
var (
	errClosed = fmt.Errorf("%w: shutting down", im.ErrUnavailable)
	errFull   = fmt.Errorf("%w: the queue is full", im.ErrUnavailable)
)

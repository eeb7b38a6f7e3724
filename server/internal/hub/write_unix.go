//go:build unix

package hub

import (
	"errors"
	"syscall"

	"imbench/server/wire/rawsock"
)

// canTryWrite: the platform has writes that do not block.
const canTryWrite = true

// tryState is what one attempt needs; it is kept with the pooled buffer, so that an attempt allocates nothing.
type tryState struct {
	data []byte
	n    int
	err  error
	fn   func(fd uintptr) bool
}

// tryWrite makes one attempt at the (non-blocking) socket and returns what it took; a full socket is no error.
func tryWrite(raw syscall.RawConn, data []byte, s *tryState) (int, error) {
	if s.fn == nil {
		s.fn = func(fd uintptr) bool {
			for {
				s.n, s.err = rawsock.Write(fd, s.data)
				if !errors.Is(s.err, syscall.EINTR) {
					return true // whatever came: do not wait for the socket
				}
			}
		}
	}
	s.data, s.n, s.err = data, 0, nil
	err := raw.Write(s.fn)
	s.data = nil
	if err == nil {
		err = s.err
	}
	if errors.Is(err, syscall.EAGAIN) {
		err = nil
	}
	return max(s.n, 0), err
}

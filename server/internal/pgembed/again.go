package pgembed

import (
	"context"
	"os"
	"syscall"
)

// Halt ends the postmaster and keeps its data, for Again. With crash it stops at once, without a checkpoint, as after a
// power cut of the process: the next start recovers from the log. Otherwise it is the fast shutdown, which ends sessions
// and writes out what is in memory. One that has ended already is no error.
func (s *Server) Halt(crash bool) error {
	if crash {
		return s.halt(syscall.SIGQUIT)
	}
	return s.halt(syscall.SIGINT)
}

// Again starts the postmaster on its old port and data after Halt, or after it ended by itself, and waits until it has
// recovered and accepts connections. Errors: ctx's, or what PostgreSQL said. Halt, Again and Stop are for one owner, one
// after the other.
func (s *Server) Again(ctx context.Context) error { return s.boot(ctx, os.O_APPEND) }

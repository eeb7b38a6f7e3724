//go:build !unix

package hub

import (
	"errors"
	"syscall"
)

// canTryWrite is false: each write goes through a goroutine.
const canTryWrite = false

type tryState struct{}

func tryWrite(syscall.RawConn, []byte, *tryState) (int, error) {
	return 0, errors.New("the platform has no write that does not block")
}

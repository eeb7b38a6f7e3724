//go:build unix && !linux

package rawsock

import "syscall"

// Write is write(2); the error is a syscall.Errno. The descriptor must not block.
func Write(fd uintptr, b []byte) (int, error) { return syscall.Write(int(fd), b) }

// Read is read(2); the error is a syscall.Errno. The descriptor must not block.
func Read(fd uintptr, b []byte) (int, error) { return syscall.Read(int(fd), b) }

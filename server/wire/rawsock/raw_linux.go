package rawsock

import (
	"syscall"
	"unsafe"
)

// Write is write(2); the error is a syscall.Errno. The descriptor must not block.
func Write(fd uintptr, b []byte) (int, error) { return call(syscall.SYS_WRITE, fd, b) }

// Read is read(2); the error is a syscall.Errno. The descriptor must not block.
func Read(fd uintptr, b []byte) (int, error) { return call(syscall.SYS_READ, fd, b) }

func call(trap, fd uintptr, b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	n, _, e := syscall.RawSyscall(trap, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	if e != 0 {
		return 0, e
	}
	return int(n), nil
}

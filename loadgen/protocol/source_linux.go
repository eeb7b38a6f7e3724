package protocol

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// manyLoopbacks: all of 127.0.0.0/8 is local without being set up.
const manyLoopbacks = true

// unread asks the kernel how many bytes wait in a socket.
func unread(c syscall.RawConn) (bytes int, ok bool) {
	err := c.Control(func(fd uintptr) {
		n, err := unix.IoctlGetInt(int(fd), unix.SIOCINQ)
		bytes, ok = n, err == nil
	})
	return bytes, ok && err == nil
}

// latePort lets the kernel choose the local port when the target is known, so that ports are unique by target and not
// by source address alone. A kernel that does not know the option chooses early, which only exhausts ports sooner.
func latePort(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
	})
}

package checks

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// canMuffle: on this platform a socket can be made to lose everything.
const canMuffle = true

// muffle has the kernel throw away every packet that comes for the socket, as a filter on the way would: it is neither
// acknowledged nor answered with a reset. Nobody needs rights for it.
func muffle(c syscall.RawConn) (err error) {
	nothing := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: 0}}
	program := unix.SockFprog{Len: 1, Filter: &nothing[0]}
	if e := c.Control(func(fd uintptr) {
		err = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &program)
	}); e != nil {
		return e
	}
	return err
}

// narrow makes little fit between the server and who does not read: small segments keep the sender's buffer small too.
func narrow(_, _ string, c syscall.RawConn) (err error) {
	if e := c.Control(func(fd uintptr) {
		if err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 4096); err == nil {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG, 1000)
		}
	}); e != nil {
		return e
	}
	return err
}

package checks

import (
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// passed asks the kernel what has passed through a socket (TCP_INFO).
func passed(t *testing.T, c syscall.RawConn) (down, up packets, ok bool) {
	t.Helper()
	var info *unix.TCPInfo
	var err error
	if e := c.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) }); e != nil {
		err = e
	}
	if err != nil {
		t.Fatal(err)
	}
	const timestamps = 1 // TCPI_OPT_TIMESTAMPS
	if info.Options&timestamps == 0 {
		return down, up, false // ipTCPHeader would be wrong
	}
	return packets{int(info.Bytes_received), int(info.Segs_in)}, packets{int(info.Bytes_sent), int(info.Segs_out)}, true
}

// segmentsOf has both ends send at most so many bytes a packet, options included.
func segmentsOf(size int) func(_, _ string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) (err error) {
		if e := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG, size) }); e != nil {
			return e
		}
		return err
	}
}

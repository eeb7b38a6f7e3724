package rawsock

import (
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Stamped reads from connections of a Loop and tells when the kernel had what it read: the time in which ready sockets gather
// and those before them in the queue are read need not be in a latency. The zero value is ready; it belongs to one call at
// a time.
type Stamped struct {
	hdr unix.Msghdr
	iov unix.Iovec
	oob [8]uint64 // a control message with a timespec, and room to spare
}

// Read is Read, and says when the last of the bytes had come, by a time with a monotonic reading: not before since, and now
// if nothing is known. Behind a lost segment it is when those after it came, but not before since; and over a step of the wall
// clock, which the kernel's stamps are of, it is wrong by no more than the time from since to now.
func (s *Stamped) Read(fd uintptr, b []byte, since time.Time) (n int, arrived time.Time, err error) {
	if len(b) == 0 {
		return 0, time.Now(), nil
	}
	s.iov.Base = unsafe.SliceData(b)
	s.iov.SetLen(len(b))
	s.hdr = unix.Msghdr{Iov: &s.iov, Control: (*byte)(unsafe.Pointer(&s.oob[0]))}
	s.hdr.SetIovlen(1)
	s.hdr.SetControllen(int(unsafe.Sizeof(s.oob)))
	r, _, e := syscall.RawSyscall(unix.SYS_RECVMSG, fd, uintptr(unsafe.Pointer(&s.hdr)), 0)
	s.iov.Base = nil
	now := time.Now()
	if e != 0 {
		return 0, now, e
	}
	return int(r), s.arrived(since, now), nil
}

// arrived reads the stamp and brings it between since and now.
func (s *Stamped) arrived(since, now time.Time) time.Time {
	at := unix.CmsgLen(0)
	if int(s.hdr.Controllen) < at+int(unsafe.Sizeof(unix.Timespec{})) {
		return now
	}
	head := (*unix.Cmsghdr)(unsafe.Pointer(&s.oob[0]))
	if head.Level != unix.SOL_SOCKET || head.Type != unix.SCM_TIMESTAMPNS {
		return now
	}
	stamp := (*unix.Timespec)(unsafe.Pointer(&unsafe.Slice((*byte)(unsafe.Pointer(&s.oob[0])), unsafe.Sizeof(s.oob))[at]))
	arrived := now.Add(-time.Duration(now.UnixNano() - unix.TimespecToNsec(*stamp)))
	switch {
	case arrived.After(now):
		return now
	case arrived.Before(since):
		return since
	}
	return arrived
}

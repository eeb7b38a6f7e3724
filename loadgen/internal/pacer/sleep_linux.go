package pacer

import (
	"os"
	"syscall"

	"imbench/loadgen/internal/clock"
	"imbench/server/wire/rawsock"

	"golang.org/x/sys/unix"
)

// timer sleeps on a timerfd: the kernel's timer has no slack there, its expiry wakes the runtime's poller like a frame on
// a socket, and no thread is held meanwhile. (A thread that sleeps in clock_nanosleep is as exact, but the runtime's
// monitor takes the processor away from each such call, and stays awake for it.)
type timer struct {
	fd   int
	file *os.File
	raw  syscall.RawConn
	buf  [8]byte
	try  func(fd uintptr) bool
}

// Until implements Sleeper. A sleep that cannot be set returns at once, which the caller allows for.
func (s *timer) Until(t clock.Time) {
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(max(int64(t), 1))}
	if unix.TimerfdSettime(s.fd, unix.TFD_TIMER_ABSTIME, &spec, nil) == nil {
		_ = s.raw.Read(s.try)
	}
}

// exactSleeper gives the platform's best sleeper; release ends it.
func exactSleeper() (s Sleeper, release func()) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return Timers{}, func() {}
	}
	t := &timer{fd: fd, file: os.NewFile(uintptr(fd), "timerfd")}
	t.raw, err = t.file.SyscallConn()
	if err != nil {
		_ = t.file.Close()
		return Timers{}, func() {}
	}
	t.try = func(fd uintptr) bool {
		_, err := rawsock.Read(fd, t.buf[:])
		return err != unix.EAGAIN
	}
	return t, func() { _ = t.file.Close() }
}

package pacer

import (
	"os"
	"syscall"

	"imbench/loadgen/internal/clock"

	"golang.org/x/sys/unix"
)

// timer sleeps on a timerfd: the kernel's timer has no slack there, its expiry wakes the runtime's poller like a frame on
// a socket, and no thread is held meanwhile. (A thread that sleeps in clock_nanosleep is as exact, but the runtime's
// monitor takes the processor away from each such call, and stays awake for it.)
//
// It is set while the runtime watches it, and never read: setting it again forgets that it had expired. That is one
// system call for a sleep where setting, trying and reading are three.
type timer struct {
	file *os.File
	raw  syscall.RawConn
	spec unix.ItimerSpec
	set  bool
	try  func(fd uintptr) bool
}

// Until implements Sleeper. A sleep that cannot be set returns at once, which the caller allows for.
func (s *timer) Until(t clock.Time) {
	s.spec.Value, s.set = unix.NsecToTimespec(max(int64(t), 1)), false
	_ = s.raw.Read(s.try)
}

// once sets the timer when it is called for the first time; the second call says that it has expired.
func (s *timer) once(fd uintptr) bool {
	if s.set {
		return true
	}
	s.set = true
	return unix.TimerfdSettime(int(fd), unix.TFD_TIMER_ABSTIME, &s.spec, nil) != nil
}

// exactSleeper gives the platform's best sleeper; release ends it.
func exactSleeper() (s Sleeper, release func()) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return Timers{}, func() {}
	}
	t := &timer{file: os.NewFile(uintptr(fd), "timerfd")}
	t.raw, err = t.file.SyscallConn()
	if err != nil {
		_ = t.file.Close()
		return Timers{}, func() {}
	}
	t.try = t.once
	return t, func() { _ = t.file.Close() }
}

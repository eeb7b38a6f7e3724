package pacer

import (
	"imbench/loadgen/internal/clock"

	"golang.org/x/sys/unix"
)

// thread sleeps on the calling OS thread.
type thread struct{}

// Until implements Sleeper. An interrupted sleep returns early, which the caller allows for.
func (thread) Until(t clock.Time) {
	ts := unix.NsecToTimespec(int64(t))
	_ = unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &ts, nil)
}

// exactSleeper sets the calling thread's timer slack to the least; restore sets it back, for whatever runs there next.
func exactSleeper() (s Sleeper, restore func()) {
	old, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil || unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) != nil {
		return thread{}, func() {} // forbidden here: sleeps are then up to 50 µs longer
	}
	return thread{}, func() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(old), 0, 0, 0) }
}

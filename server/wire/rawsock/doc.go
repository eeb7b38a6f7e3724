// Package rawsock reads and writes non-blocking sockets without telling Go's scheduler, for both ends of the wire.
//
// Such a call takes some ten microseconds and never waits. Announced to the runtime as a system call that may block, as
// package syscall does, it keeps the runtime's monitor thread awake, which takes the processor away from the call and
// gives it back fifty thousand times a second: a fifth of the gateway's and of the load generator's CPU at the baseline.
//
// A Loop waits for the sockets of many connections at once and hands each that has become readable to a function of its
// own: without a goroutine to wake, without a read that finds nothing, and, while much comes, with one wake-up of a thread
// for all that comes in a millisecond. Stamped tells when the kernel had what is then read.
//
// The functions are safe for concurrent use as far as the socket is. Where the platform has no such calls they are
// those of package syscall.
package rawsock

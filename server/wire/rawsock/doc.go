// Package rawsock reads and writes non-blocking sockets without telling Go's scheduler, for both ends of the wire.
//
// Such a call takes some ten microseconds and never waits. Announced to the runtime as a system call that may block, as
// package syscall does, it keeps the runtime's monitor thread awake, which takes the processor away from the call and
// gives it back fifty thousand times a second: a fifth of the gateway's and of the load generator's CPU at the baseline.
//
// The functions are safe for concurrent use as far as the socket is. Where the platform has no such calls they are
// those of package syscall.
package rawsock

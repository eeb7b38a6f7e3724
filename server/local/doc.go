// Package local is the embedded stack: a private PostgreSQL and a number of
// gateway processes on 127.0.0.1, for a load generator without a target and
// for tests of the whole.
//
// Gateways are child processes, so that they can be killed, and so that their
// CPU and memory can be told apart from the caller's. A child is the calling
// binary started again: every main (or TestMain) that starts a stack calls
// [Child] first. Children keep out of the terminal's process group, so Ctrl-C
// reaches only the caller, which then stops them in order; when the caller is
// gone, however it ended, they see their standard input end and go too.
//
// Concurrency: a Stack's methods may be called from any goroutine. Several
// stacks may run side by side, in one process or in many.
package local

// Package hub holds the connections of this process and fans out to them what is committed anywhere.
//
// It keeps no truth: whatever is lost here (an announcement, a queue, the whole process) is mended by the devices'
// cursors and by the repair sweep. What it must not do is to tell a device of an event that its user may not see: who
// gets an event is decided by the members at the event's seq, never by the current ones.
//
// The path of an event: Committed or Announced puts it into the inbox of its conversation's shard, merged with what
// waits there. The shard's worker, the only one to touch that conversation's cache entry, reads in bulk what it lacks,
// builds the frame once, puts a pointer to it into the queue of each receiver, and then writes each touched connection's
// queue with one system call. A publisher never waits for a receiver: a full socket gets a goroutine of its own until it
// has drained, a queue that is half full meanwhile collapses into hints, and one that overflows closes its connection
// (4008).
//
// Read positions that moved (ReadMoved) take the same way, but none is read from the store: they wait for the hint
// window, merged by conversation and user, go to the members of now, and are dropped where a bound is reached.
//
// Concurrency: all exported methods are safe for concurrent use. Committed, Announced, MembersChanged, ReadMoved,
// RouteTaken, Resync and the Conn methods never block on the network or the database (Conn.WaitRoom alone waits). Each
// goroutine is waited for by Hub.Close. Locks are taken in the order registry, connection; a shard's inbox lock and a
// flusher's lock are taken last and hold nothing else.
package hub

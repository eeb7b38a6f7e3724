// Package gateway is one connection's life: handshake, requests, close. What a device is sent on its own account goes
// through package hub, which also owns the sending half of each connection.
//
// The HTTP handler returns as soon as the connection is upgraded; one goroutine a connection reads from it. Requests
// that commit in bulk (send, ack, read) are handed on with a callback, so that the reader goes on at once; what is read
// from the store (sync, convs, fetch) is read while the reader waits, on a goroutine whose deep stack ends with it, and a
// device that asks faster than it reads is not read from. What may have to wait for a conversation's lock (recall, join,
// leave) runs beside the reader, a bounded number a connection; it is carried through if the device goes meanwhile.
//
// All exported methods are safe for concurrent use. Drain ends all connections and waits for their goroutines. Nothing
// that a peer can cause is logged above debug level; a store that fails is logged as a warning.
package gateway

// Package selftest shows that a run of the generator finds what a gateway does wrong. It drives the real devices, over real
// sockets and our wire, with the real driver, recorder and ledger, against a gateway in this process that breaks one
// promise at a time, at random about once in Config.Every deliveries; and against an honest one, of which nothing may be
// said.
//
// The gateway notes each thing that it does wrong by device, conversation and seq. A kind is caught if every single one of
// these was seen, by name; and, where the ledger judges it, if nothing else was: no other kind, and no other culprit.
//
// Memory is bounded by Config.Deliveries: about 10 bytes each, and 300 a message. Run may be called by one goroutine at a
// time; all that it starts has ended when it returns.
package selftest

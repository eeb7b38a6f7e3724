// Package checks holds the named checks, one test a chapter (TestCheck04, …) with a subtest named by each check's id,
// on a real PostgreSQL and, where processes matter, with real gateway processes and a real WebSocket client. The
// package has tests only.
//
// A check is an evidence.Check given to evidence.Run, which makes it a parallel subtest; each half of it (the check, and
// its control on a system broken on purpose) makes what it needs:
//
//	db := newDatabase(t)                              // an empty, migrated database, and a Store on it
//	db.provision(direct("u-ab", "u-ana", "u-ben"))    // users, devices u-ana-d1 and -d2, conversations; ids begin with u-
//	db.send(as("u-ana"), "u-ab", "k1", "hello")       // through the Store
//	db.mutate("im_send_batch", "old text", "new")     // a control: a function of the schema, broken
//	g := db.gateway(gatewayOptions{})                 // a gateway process of its own, with flags and fault points
//	h := g.held(fault.Push); h.Release("")            // with pauses: where the gateway stands still, until it is let go
//	a := g.gate(fault.Push); a.shut(fault.Push)       // the same for everyone who comes there, until a.open()
//	c := g.connect(as("u-ben"))                       // a WebSocket client that has said hello and subscribed
//	c.ask(wire.Request{T: wire.TSync, …})             // a request and its reply
//	c.next()                                          // what the gateway sends by itself
//	w := g.web(as("u-ben")); w.read("u-ab", 7)        // a client by HTTP
//	r := g.rawConnect(as("u-ben"), nil)               // a connection on which every byte is the check's own
//	p := newPhone(t, as("u-ben")); p.dial(g)          // a device that keeps its state in a file, and can crash
//
// All of it ends with the test. A helper waits for what it is told to expect and fails the test after patience, a minute.
// Only where a check shows that something does not come within a bound is the clock waited for.
package checks

package checks

import (
	"testing"

	"imbench/server/internal/fault"
	"imbench/server/wire"
)

// TestFaultPoints: a gateway stands still where it is asked to, goes on when it is let go, and fails as it is told.
func TestFaultPoints(t *testing.T) {
	t.Parallel()
	d := withDirect(t)
	g := d.gateway(gatewayOptions{pauses: true, args: []string{"-sweep", "0s"},
		faults: "send.before_insert=pause,send.before_commit=pause,api.after_send_commit=pause,fanout.before_read_members=pause," +
			"fanout.before_read_events=error:0:1,gw.push=pause,ack.before_write=error:0:1"})
	ana, ben := g.connect(as("u-ana")), g.connect(as("u-ben"))
	sent := ana.start(wire.Request{T: wire.TSend, Conv: "u-ab", CMID: "k1", Body: "x"})
	release := func(p fault.Point, do fault.Action) {
		t.Helper()
		if err := g.held(p).Release(do); err != nil {
			t.Fatal(err)
		}
	}
	release(fault.SendBeforeInsert, fault.Fail)
	if f := <-sent; f.Code != wire.Unavailable {
		t.Fatalf("a send that fails before it has begun: %+v", f)
	}

	sent = ana.start(wire.Request{T: wire.TSend, Conv: "u-ab", CMID: "k1", Body: "x"})
	release(fault.SendBeforeInsert, "")
	h := g.held(fault.SendBeforeCommit)
	if n := d.messages("u-ab"); n != "0" {
		t.Errorf("%s messages before the commit", n)
	}
	if err := h.Release(""); err != nil {
		t.Fatal(err)
	}
	h = g.held(fault.AfterSendCommit)
	if n := d.messages("u-ab"); n != "1" {
		t.Errorf("%s messages after the commit", n)
	}
	select {
	case f := <-sent:
		t.Errorf("replied before it was to: %+v", f)
	default:
	}
	if err := h.Release(""); err != nil {
		t.Fatal(err)
	}
	release(fault.BeforeReadMembers, "")
	h = g.held(fault.Push)
	if f, ok := ben.nextWithin(0); ok {
		t.Errorf("pushed before it was to: %+v", f)
	}
	if err := h.Release(""); err != nil {
		t.Fatal(err)
	}
	if f := ben.next(); f.T != wire.TEvent || f.Ev.Seq != 3 {
		t.Errorf("pushed %+v", f)
	}
	if f := <-sent; f.T != wire.TSent || f.Seq != 3 {
		t.Errorf("replied %+v", f)
	}
	if f := ben.ack("u-ab", 3); f.Code != wire.Unavailable {
		t.Errorf("the first acknowledgement: %+v", f)
	}
	if f := ben.ack("u-ab", 3); f.Delivered != 3 {
		t.Errorf("the second: %+v", f)
	}
}

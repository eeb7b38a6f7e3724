package checks

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"imbench/server/internal/evidence"
	"imbench/server/internal/fault"
	"imbench/server/internal/im"
	"imbench/server/wire"
)

// Chapter 10, many gateways: they are killed, stopped and drained, and do not hear each other.
func TestCheck10(t *testing.T) {
	evidence.Run(t, evidence.Check{
		ID: "10-gateway-killed",
		Expected: "12 devices cut at the killed gateway are back at the other, with 12 routes there; one stays away: its route is cleared; " +
			"every message is stored once, and all devices have all of them once and in order",
		Observe: func(t *testing.T) string { return gatewayKilled(withTwelve(t), patience) },
		Control: evidence.Control{Is: "nobody may delete a route", Observe: func(t *testing.T) string {
			d := withTwelve(t)
			d.keepRoutes()
			return gatewayKilled(d, 5*time.Second)
		}},
	})
	evidence.Run(t, evidence.Check{
		ID: "10-restart-within-lease",
		Expected: "the lease of the killed one is in force; its name serves again; the route of who stays away: none; who is back: generation 2, " +
			"what it sent when the gateway was killed is stored once; who comes later gets it",
		Observe: func(t *testing.T) string { return restartWithinLease(withDirect(t)) },
		Control: evidence.Control{Is: "nobody may delete a route", Observe: func(t *testing.T) string {
			d := withDirect(t)
			d.keepRoutes()
			return restartWithinLease(d)
		}},
	})
	evidence.Run(t, evidence.Check{
		ID: "10-late-handshake-fenced",
		Expected: "claimed after the gateway had stood still for longer than its lease: UNAVAILABLE, closed with 4009; the device is where it has gone to, and answers; " +
			"who was connected there all the time has its route again, and answers; overtaken between claim and welcome: closed with 4003, the device is where it has gone to",
		Observe: func(t *testing.T) string { return lateHandshake(withDirect(t), patience) },
		Control: evidence.Control{Is: "a lease that has lapsed goes on as if it had not", Observe: func(t *testing.T) string {
			d := withDirect(t)
			d.exec(`CREATE FUNCTION same_lease() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.holder := ''always the same''; RETURN NEW; END'`)
			d.exec(`CREATE TRIGGER same_lease BEFORE INSERT OR UPDATE ON gateways FOR EACH ROW EXECUTE FUNCTION same_lease()`)
			return lateHandshake(d, 3*time.Second)
		}},
	})
	check10Crowds(t)
	check10Bus(t)
}

// twelve are the members of the group that roaming devices are in; events 1 to 12 are their joins.
const twelve = 12

func withTwelve(t *testing.T) *database {
	t.Helper()
	d := newDatabase(t)
	c := group("u-g")
	for i := range twelve {
		c.Members = append(c.Members, nth(i+1))
	}
	d.provision(c)
	return d
}

// keepRoutes breaks the clean-up: a route that is deleted stays.
func (d *database) keepRoutes() {
	d.t.Helper()
	d.exec(`CREATE FUNCTION kept() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'`)
	d.exec(`CREATE TRIGGER kept BEFORE DELETE ON routes FOR EACH ROW EXECUTE FUNCTION kept()`)
}

// signal sends the gateway's process a signal.
func (g *gateway) signal(s syscall.Signal) {
	g.t.Helper()
	if err := g.stack.Kill(0, s); err != nil {
		g.t.Fatal(err)
	}
}

// stand stops the gateway's process in its tracks; go on is called by the test, or when it ends.
func (g *gateway) stand() (goOn func()) {
	g.t.Helper()
	g.signal(syscall.SIGSTOP)
	goOn = func() { g.signal(syscall.SIGCONT) }
	g.t.Cleanup(goOn) // one that stands still cannot be stopped in order
	return goOn
}

// routedTo is the gateway to which a device is routed.
func (d *database) routedTo(p im.Principal) string {
	d.t.Helper()
	return d.text(`SELECT gateway_id FROM routes WHERE device_id = $1`, p.Device)
}

// inForce says whether the gateway has a lease that has not lapsed.
func (d *database) inForce(g *gateway) bool {
	d.t.Helper()
	return d.text(`SELECT count(*) FROM gateways WHERE gateway_id = $1 AND lease_until > clock_timestamp()`, g.id) == "1"
}

// shortLease has a gateway taken for dead soon. Whoever has it must come to renew it, on a busy machine too.
var shortLease = []string{"-lease", "2s"}

// gatewayKilled has devices at two gateways, of which two send, one at each; kills the first in the
// middle, and looks at what has become of everyone. The clean-up must be done within the limit.
func gatewayKilled(d *database, limit time.Duration) string {
	a, b := d.gateway(gatewayOptions{args: shortLease}), d.gateway(gatewayOptions{args: shortLease})
	absent := device(nth(1), 2)
	a.connect(absent)
	var there, here []*roamer
	for i := range twelve {
		first := func(try int) *gateway {
			if try == 0 {
				return a
			}
			return b
		}
		r, _ := roam(d.t, as(nth(i+1)), "u-g", twelve, first)
		there = append(there, r)
		if i > 0 {
			r, _ = roam(d.t, device(nth(i+1), 2), "u-g", twelve, func(int) *gateway { return b })
			here = append(here, r)
		}
	}
	both := append(there[:twelve:twelve], here...)
	online := func() bool { return all(both, func(r *roamer) bool { return r.place() != "" }) }
	if !becomes(d.t, patience, online) {
		d.t.Fatal("the devices do not come online")
	}
	const each = 60
	for i := range each {
		if i == each/2 {
			// Some are on their way.
			a.signal(syscall.SIGKILL)
		}
		there[0].put(fmt.Sprint("there-", i))
		here[0].put(fmt.Sprint("here-", i))
		if i%5 == 0 && i < each/2 && !becomes(d.t, patience, func() bool { return there[0].idle() && here[0].idle() }) {
			d.t.Fatal("messages are not sent")
		}
	}
	killed := time.Now()
	last := int64(twelve + 2*each)
	done := becomes(d.t, patience, func() bool {
		return online() && there[0].idle() && here[0].idle() && incomplete(both, twelve+1, last) == ""
	})
	back := time.Since(killed)
	cleared := becomes(d.t, limit, func() bool { return d.routedTo(absent) == "none" })
	took := time.Since(killed)
	cut := 0
	for _, r := range there {
		r.set(func() { cut += r.ends["cut"] })
	}
	moved := d.text(`SELECT count(*) FROM routes WHERE gateway_id = $1 AND device_id LIKE '%-d1'`, b.id)
	seen := fmt.Sprintf("%d devices cut at the killed gateway are back at the other, with %s routes there; one stays away: its route is ", cut, moved)
	if cleared {
		seen += "cleared"
	} else {
		seen += "still there"
	}
	lack := incomplete(both, twelve+1, last)
	if lack == "" && !done {
		lack = "not all devices have come back"
	}
	seen += stored(d, 2*each, lack)
	return fmt.Sprintf("%s\n%d ms until all were back and complete; the route was cleared %d ms after the kill (two lease periods: 4000 ms); %d of %d resends were dup",
		seen, back.Milliseconds(), took.Milliseconds(), there[0].dups, there[0].sent)
}

// restartWithinLease kills a gateway when it has stored a message and not yet said so, and starts another under its name
// at once.
func restartWithinLease(d *database) string {
	lease := []string{"-lease", "1h"}
	a := d.gateway(gatewayOptions{args: lease, faults: "api.after_send_commit=pause", pauses: true})
	ana, away := newPhone(d.t, as("u-ana")), as("u-ben")
	ana.dial(a)
	a.connect(away)
	ana.kept.Outbox = append(ana.kept.Outbox, wire.Request{T: wire.TSend, Conv: "u-ab", CMID: "k1", Body: "x"})
	ana.save()
	ana.c.start(ana.kept.Outbox[0])
	a.held(fault.AfterSendCommit)
	a.signal(syscall.SIGKILL)
	<-ana.c.gone
	seen := "the lease of the killed one is in force"
	if !d.inForce(a) {
		seen = "the killed one has no lease in force"
	}
	next := d.gateway(gatewayOptions{args: lease, id: a.id})
	ana.dial(next)
	seen += "; its name serves again; the route of who stays away: " + d.routedTo(away)
	f, ok := ana.resend(patience)
	seen += "; who is back: generation " + d.text(`SELECT generation FROM routes WHERE device_id = $1`, ana.who.Device)
	switch {
	case !ok:
		seen += ", no reply"
	case f.Dup && d.messages("u-ab") == "1":
		seen += ", what it sent when the gateway was killed is stored once"
	default:
		seen += fmt.Sprintf(", resent: %+v, %s rows", f, d.messages("u-ab"))
	}
	ben := newPhone(d.t, away)
	ben.begin("u-ab", 2)
	ben.dial(next)
	ben.catchUp("u-ab")
	if got := ben.conv("u-ab"); len(got.Seqs) == 1 && got.Bodies[0] == "x" {
		seen += "; who comes later gets it"
	} else {
		seen += fmt.Sprintf("; who comes later gets %v", got.Seqs)
	}
	return seen
}

// lateHandshake has two handshakes overtaken by the device's next one at another gateway: before the route is claimed,
// while the gateway's process stands still for longer than its lease, and after it. What was cleared meanwhile must be there
// again within the limit.
func lateHandshake(d *database, limit time.Duration) string {
	a := d.gateway(gatewayOptions{args: shortLease, pauses: true, faults: "route.before_claim=pause:1:1,route.after_claim=pause:2:1"})
	b := d.gateway(gatewayOptions{args: []string{"-lease", "3s"}})
	stays := a.connect(as("u-ana"))
	hello := func(c *client) <-chan wire.Frame {
		return c.start(wire.Request{T: wire.THello, Device: c.who.Device, Install: c.who.Install})
	}
	late := a.dial(as("u-ben"))
	reply := hello(late)
	held := a.held(fault.BeforeClaim)
	goOn := a.stand()
	if !becomes(d.t, patience, func() bool { return d.routedTo(stays.who) == "none" }) {
		d.t.Fatal("the routes of a gateway that stands still are not cleared")
	}
	now := b.connect(as("u-ben"))
	goOn()
	if !becomes(d.t, patience, func() bool { return d.inForce(a) }) {
		d.t.Fatal("a gateway that goes on does not renew its lease")
	}
	if err := held.Release(""); err != nil {
		d.t.Fatal(err)
	}
	f, _ := late.reply(reply, patience)
	seen := fmt.Sprintf("claimed after the gateway had stood still for longer than its lease: %s", f.T)
	if f.T == wire.TError {
		seen = fmt.Sprintf("claimed after the gateway had stood still for longer than its lease: %s, closed with %s", f.Code, late.ending(patience))
	}
	seen += "; the device is " + d.stands(b, now)
	if !becomes(d.t, limit, func() bool { return d.routedTo(stays.who) == a.id }) {
		seen += "; who was connected there all the time has no route"
	} else if pong, ok := stays.try(wire.Request{T: wire.TPing}, patience); !ok || pong.T != wire.TPong {
		seen += "; who was connected there all the time has its route again, and does not answer"
	} else {
		seen += "; who was connected there all the time has its route again, and answers"
	}

	late = a.dial(as("u-cai"))
	hello(late)
	held = a.held(fault.AfterClaim)
	now = b.connect(as("u-cai"))
	if err := held.Release(""); err != nil {
		d.t.Fatal(err)
	}
	ended := late.ending(patience)
	if !becomes(d.t, patience, func() bool { return a.metric("im_batch_size_count", `batcher="release"`) >= 1 }) {
		d.t.Fatal("the late handshake cleans nothing up")
	}
	where := "nowhere"
	if d.routedTo(now.who) == b.id {
		where = "where it has gone to"
	}
	return fmt.Sprintf("%s; overtaken between claim and welcome: closed with %s, the device is %s", seen, ended, where)
}

// stands says whether a connection is its device's valid one at the gateway.
func (d *database) stands(g *gateway, c *client) string {
	if f, ok := c.try(wire.Request{T: wire.TPing}, patience); !ok || f.T != wire.TPong {
		return "no longer where it has gone to: closed with " + c.ending(patience)
	}
	if at := d.routedTo(c.who); at != g.id {
		return "routed to " + at
	}
	return "where it has gone to, and answers"
}

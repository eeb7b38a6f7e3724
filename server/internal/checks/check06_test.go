package checks

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"imbench/server/internal/evidence"
	"imbench/server/wire"
)

// Chapter 06, acknowledgement and recovery: gateways are processes, devices keep their state in files.
func TestCheck06(t *testing.T) {
	for _, c := range []struct {
		point, expected, document string
		control                   evidence.Control
	}{
		{"send.before_insert", "exit status 137, no reply, rows 0; after the resend rows 1, dup false, outbox 0", "137, no reply, 0 rows; 1 row, dup=false",
			crashControl("send.before_insert")},
		{"send.before_commit", "exit status 137, no reply, rows 0; after the resend rows 1, dup false, outbox 0", "137, no reply, 0 rows; 1 row, dup=false",
			crashControl("send.before_commit")},
		{"api.after_send_commit", "exit status 137, no reply, rows 1; after the resend rows 1, dup true, outbox 0", "137, no reply, 1 row; 1 row, dup=true",
			evidence.Control{Is: "the request key is not kept with the message", Observe: func(t *testing.T) string {
				d := withDirect(t)
				d.forgetKeys()
				return crash(d, "api.after_send_commit=exit")
			}}},
	} {
		evidence.Run(t, evidence.Check{ID: "06-crash-" + c.point, Expected: c.expected, Document: c.document,
			Observe: func(t *testing.T) string { return crash(withDirect(t), c.point+"=exit") }, Control: c.control})
	}
	evidence.Run(t, evidence.Check{
		ID: "06-lost-reply-retry", Expected: "first no reply, then seq 3, dup true, rows 1, outbox 0", Document: "timeout after 1 500 ms, dup=true, 1 row",
		Observe: func(t *testing.T) string { return lostReply(withDirect(t)) },
		Control: evidence.Control{Is: "the request key is not kept with the message", Observe: func(t *testing.T) string {
			d := withDirect(t)
			d.forgetKeys()
			return lostReply(d)
		}},
	})
	evidence.Run(t, evidence.Check{
		ID: "06-push-ack-advances-cursor", Expected: "event 7 pushed, cursor 6 before the ack, acked 7, delivered_seq 7", Document: "seq=7",
		Observe: func(t *testing.T) string { return pushAndAck(withDirect(t)) },
		Control: evidence.Control{Is: "acknowledgements are lost on their way to the database", Observe: func(t *testing.T) string {
			d := withDirect(t)
			// What is not written is answered from what is: the cursor as it was.
			d.exec(`CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'`)
			d.exec(`CREATE TRIGGER lose BEFORE UPDATE ON device_cursors FOR EACH ROW EXECUTE FUNCTION nothing()`)
			return pushAndAck(d)
		}},
	})
	evidence.Run(t, evidence.Check{
		ID: "06-ack-monotonic-and-bounded", Expected: "ack 7: delivered 7; ack 1: delivered 7; ack 107: CURSOR_AHEAD; delivered_seq 7", Document: "delivered=7; CURSOR_AHEAD",
		Observe: acksThroughGateway,
		Control: evidence.Control{Is: "a plain upsert of what the device says", Observe: naiveAcks},
	})
	evidence.Run(t, evidence.Check{
		ID:       "06-lost-push-swept",
		Expected: "no push came; caught up within 3000 ms, delivered_seq 8", Document: "449 ms, delivered_seq=8",
		Observe: func(t *testing.T) string { return lostPush(t, "500ms") },
		Control: evidence.Control{Is: "no repair sweep", Observe: func(t *testing.T) string { return lostPush(t, "0s") }},
	})
	check06Receivers(t)
}

// crashControl is a gateway of the first design that the document compares: it replies when it has got the message.
func crashControl(point string) evidence.Control {
	return evidence.Control{Is: "`sent` is replied before anything is written", Observe: func(t *testing.T) string {
		return crash(withDirect(t), point+"=exit,send.reply_first=on")
	}}
}

// crash has a gateway with the fault get a message, and another one the resend of the device, which has started again.
func crash(d *database, faults string) string {
	broken := d.gateway(gatewayOptions{faults: faults})
	p := newPhone(d.t, as("u-ana"))
	p.dial(broken)
	reply := "no reply"
	if f, ok := p.send("u-ab", "k1", "hello", patience); ok {
		reply = "reply " + string(f.T)
	}
	seen := fmt.Sprintf("%s, %s, rows %s", broken.exit(), reply, d.messages("u-ab"))
	p.crash()
	p.dial(d.gateway(gatewayOptions{}))
	resent := "nothing to resend"
	if f, ok := p.resend(patience); ok {
		resent = fmt.Sprintf("dup %v", f.Dup)
	}
	return fmt.Sprintf("%s; after the resend rows %s, %s, outbox %d", seen, d.messages("u-ab"), resent, len(p.kept.Outbox))
}

// lostReply has the first `sent` lost between the gateway and the device.
func lostReply(d *database) string {
	p := newPhone(d.t, as("u-ana"))
	p.dial(d.gateway(gatewayOptions{faults: "gw.reply.send=drop:0:1"}))
	first := "no reply"
	if f, ok := p.send("u-ab", "k1", "hello", 1500*time.Millisecond); ok {
		first = string(f.T)
	}
	f, ok := p.resend(patience)
	if !ok {
		return "no reply to the resend either"
	}
	return fmt.Sprintf("first %s, then seq %d, dup %v, rows %s, outbox %d", first, f.Seq, f.Dup, d.messages("u-ab"), len(p.kept.Outbox))
}

// pushAndAck has u-ben's device pushed message 7 and acknowledge it.
func pushAndAck(d *database) string {
	d.fill(as("u-ana"), "u-ab", "k", 4)
	g := d.gateway(gatewayOptions{args: []string{"-sweep", "0s"}})
	ana, ben := g.connect(as("u-ana")), g.connect(as("u-ben"))
	ben.ack("u-ab", 6)
	ana.send("u-ab", "k7", "hello")
	f := ben.next()
	seen := fmt.Sprintf("%s %d pushed, cursor %s before the ack", f.T, f.Ev.Seq, d.delivered(as("u-ben"), "u-ab"))
	r := ben.ack("u-ab", f.Ev.Seq)
	return fmt.Sprintf("%s, acked %d, delivered_seq %s", seen, r.Delivered, d.delivered(as("u-ben"), "u-ab"))
}

func acksThroughGateway(t *testing.T) string {
	d := withDirect(t)
	d.fill(as("u-ana"), "u-ab", "k", 5)
	c := d.gateway(gatewayOptions{}).connect(as("u-ben"))
	var seen []string
	for _, seq := range []int64{7, 1, 107} {
		f := c.ack("u-ab", seq)
		result := string(f.Code)
		if f.T == wire.TAcked {
			result = fmt.Sprintf("delivered %d", f.Delivered)
		}
		seen = append(seen, fmt.Sprintf("ack %d: %s", seq, result))
	}
	return strings.Join(append(seen, "delivered_seq "+d.delivered(as("u-ben"), "u-ab")), "; ")
}

func naiveAcks(t *testing.T) string {
	d := withDirect(t)
	d.fill(as("u-ana"), "u-ab", "k", 5)
	var seen []string
	for _, seq := range []int64{7, 1, 107} {
		d.exec(`INSERT INTO device_cursors (conv_id, device_id, install_epoch, epoch, delivered_seq) VALUES ('u-ab', 'u-ben-d1', 1, 1, $1)
			ON CONFLICT (conv_id, device_id) DO UPDATE SET delivered_seq = EXCLUDED.delivered_seq`, seq)
		seen = append(seen, fmt.Sprintf("ack %d: delivered %s", seq, d.delivered(as("u-ben"), "u-ab")))
	}
	return strings.Join(append(seen, "delivered_seq "+d.delivered(as("u-ben"), "u-ab")), "; ")
}

// lostPush has every push lost. The device acknowledges what a hint of the sweep made it sync. The bound is the document's,
// as is the period of the sweep; the grace is the least that a gateway takes.
func lostPush(t *testing.T, sweep string) string {
	const bound = 3 * time.Second
	d := withDirect(t)
	d.fill(as("u-ana"), "u-ab", "k", 5)
	g := d.gateway(gatewayOptions{faults: "gw.push=drop", args: []string{"-sweep", sweep, "-grace", "10ms"}})
	ana, p := g.connect(as("u-ana")), newPhone(t, as("u-ben"))
	p.dial(g)
	p.begin("u-ab", 7)
	p.ack("u-ab")
	ana.send("u-ab", "k8", "hello")
	began := time.Now()
	f, ok := p.c.nextWithin(bound)
	if !ok {
		return "nothing came within 3000 ms, delivered_seq " + d.delivered(as("u-ben"), "u-ab")
	}
	if f.T != wire.THint || f.Why != "sweep" {
		return fmt.Sprintf("%s came: %+v", f.T, f)
	}
	p.catchUp("u-ab")
	p.ack("u-ab")
	took := time.Since(began)
	if took > bound {
		return fmt.Sprintf("caught up after %d ms", took.Milliseconds())
	}
	return fmt.Sprintf("no push came; caught up within 3000 ms, delivered_seq %s\n%d ms from `sent` to `acked`",
		d.delivered(as("u-ben"), "u-ab"), took.Milliseconds())
}

// receiver is the set-up of the receivers' crashes: a gateway whose sweep is quick, and u-ben's phone, online, which has
// what came before message 3 and acknowledged it.
func receiver(t *testing.T, faults string) (*database, *gateway, *phone) {
	d := withDirect(t)
	g := d.gateway(gatewayOptions{faults: faults, args: []string{"-sweep", "200ms", "-grace", "100ms"}})
	p := newPhone(t, as("u-ben"))
	p.dial(g)
	p.begin("u-ab", 2)
	p.ack("u-ab")
	return d, g, p
}

// check06Receivers are the losses at the receiving end.
func check06Receivers(t *testing.T) {
	evidence.Run(t, evidence.Check{
		ID:       "06-receiver-crash-before-save",
		Expected: "at the crash: saved [], delivered_seq 2; after the restart: saved [3], delivered_seq 3",
		Observe:  func(t *testing.T) string { return crashBeforeSave(t, false) },
		Control: evidence.Control{Is: "the device acknowledges before it saves", Observe: func(t *testing.T) string {
			return crashBeforeSave(t, true)
		}},
	})
	evidence.Run(t, evidence.Check{
		ID:       "06-receiver-crash-before-ack",
		Expected: "at the crash: saved [3], delivered_seq 2; after the restart the event came again: saved [3], delivered_seq 3",
		Observe:  func(t *testing.T) string { return crashBeforeAck(t, false) },
		Control: evidence.Control{Is: "the device applies an event as often as it comes", Observe: func(t *testing.T) string {
			return crashBeforeAck(t, true)
		}},
	})
	evidence.Run(t, evidence.Check{
		ID:       "06-lost-ack",
		Expected: "the ack was lost, delivered_seq 2; a hint of the sweep to 3; acknowledged again, saved [3], delivered_seq 3",
		Observe:  func(t *testing.T) string { return lostAck(t, false) },
		Control: evidence.Control{Is: "a device that passes over hints which tell nothing new", Observe: func(t *testing.T) string {
			return lostAck(t, true)
		}},
	})
}

func crashBeforeSave(t *testing.T, ackFirst bool) string {
	d, g, p := receiver(t, "")
	g.connect(as("u-ana")).send("u-ab", "k1", "hello")
	p.take()
	if ackFirst {
		p.c.ack("u-ab", p.conv("u-ab").Cursor) // nothing is saved
	}
	p.crash()
	seen := fmt.Sprintf("at the crash: saved %v, delivered_seq %s", p.conv("u-ab").Seqs, d.delivered(p.who, "u-ab"))
	p.dial(g)
	p.catchUp("u-ab") // from the saved cursor
	p.ack("u-ab")
	return fmt.Sprintf("%s; after the restart: saved %v, delivered_seq %s", seen, p.conv("u-ab").Seqs, d.delivered(p.who, "u-ab"))
}

func crashBeforeAck(t *testing.T, noDedup bool) string {
	d, g, p := receiver(t, "")
	p.noDedup = noDedup
	g.connect(as("u-ana")).send("u-ab", "k1", "hello")
	p.take()
	p.save()
	p.crash()
	seen := fmt.Sprintf("at the crash: saved %v, delivered_seq %s", p.conv("u-ab").Seqs, d.delivered(p.who, "u-ab"))
	p.dial(g)
	list := p.c.ask(wire.Request{T: wire.TConvs})
	if len(list.Convs) != 1 {
		t.Fatalf("convs: %+v", list)
	}
	// The list says what the server believes to be delivered: from there on it is asked again.
	f := p.c.sync("u-ab", list.Convs[0].Delivered, 0)
	again := "the event did not come again"
	if len(f.Events) == 1 && f.Events[0].Seq == 3 {
		again = "the event came again"
	}
	p.apply(f.Events...)
	p.ack("u-ab")
	return fmt.Sprintf("%s; after the restart %s: saved %v, delivered_seq %s", seen, again, p.conv("u-ab").Seqs, d.delivered(p.who, "u-ab"))
}

func lostAck(t *testing.T, passOver bool) string {
	d, g, p := receiver(t, "gw.request.ack=drop:1:1") // the first is that of the set-up
	g.connect(as("u-ana")).send("u-ab", "k1", "hello")
	p.take()
	p.save()
	p.c.start(wire.Request{T: wire.TAck, Conv: "u-ab", Seq: 3})
	seen := "the ack was lost, delivered_seq " + d.delivered(p.who, "u-ab")
	f := p.take()
	if f.T != wire.THint || f.Why != "sweep" {
		return fmt.Sprintf("%s; then %+v", seen, f)
	}
	seen += fmt.Sprintf("; a hint of the sweep to %d", f.Head)
	if !passOver {
		p.ack("u-ab")
		seen += "; acknowledged again"
	}
	return fmt.Sprintf("%s, saved %v, delivered_seq %s", seen, p.conv("u-ab").Seqs, d.delivered(p.who, "u-ab"))
}

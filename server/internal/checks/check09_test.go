package checks

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"imbench/server/internal/evidence"
	"imbench/server/internal/fault"
	"imbench/server/internal/im"
	"imbench/server/wire"
)

// Chapter 09, several devices and what has been read: delivered is a device's, read is a user's, unread is derived. Only
// the opening of its document is known; it names the late report, the stale acknowledgement and the old backup.
func TestCheck09(t *testing.T) {
	evidence.Run(t, evidence.Check{
		ID: "09-read-out-of-order", Document: "the phone's seq=50, then the laptop's seq=45",
		Expected: "the phone's 50: read 50, unread 0; the laptop's 45: read 50, unread 0",
		Observe:  func(t *testing.T) string { return outOfOrder(withDirect(t)) },
		Control: evidence.Control{Is: "the report that comes last wins", Observe: func(t *testing.T) string {
			d := withDirect(t)
			d.lastReportWins()
			return outOfOrder(d)
		}},
	})
	evidence.Run(t, evidence.Check{
		ID: "09-read-clamped", Expected: "107 reported at head 7: read 7, unread 0; after one more message read 7, unread 1",
		Observe: func(t *testing.T) string { return clamped(withDirect(t)) },
		Control: evidence.Control{Is: "what is reported is not compared with the head", Observe: func(t *testing.T) string {
			d := withDirect(t)
			d.mutate("im_reader", "THEN c.next_seq - 1 ELSE max(x.to_seq)", "THEN c.next_seq + 999 ELSE max(x.to_seq)")
			return clamped(d)
		}},
	})
	evidence.Run(t, evidence.Check{
		ID: "09-unread-one-after-logout", Expected: "at the logout unread 0; after one message unread 1 on the one device, 1 on the other, 1 by HTTP",
		Observe: func(t *testing.T) string { return afterLogout(withDirect(t)) },
		Control: evidence.Control{Is: "the subtraction begins with the first unread message, not before it", Observe: func(t *testing.T) string {
			d := withDirect(t)
			d.mutate("im_reader", "x.msg_no - (x.kind = 'msg')::int AS msg_no", "x.msg_no AS msg_no")
			return afterLogout(d)
		}},
	})
	evidence.Run(t, evidence.Check{
		ID: "09-own-messages-read", Expected: "u-ana, who reported nothing: read 7, unread 0; after an answer read 7, unread 1; u-ben read 8, unread 0",
		Observe: func(t *testing.T) string { return ownMessages(withDirect(t)) },
		Control: evidence.Control{Is: "only what is reported counts as read", Observe: func(t *testing.T) string {
			d := withDirect(t)
			d.mutate("im_reader", "x.sender_user = p_user", "false")
			return ownMessages(d)
		}},
	})
	evidence.Run(t, evidence.Check{
		ID:       "09-reader-does-not-move-sender",
		Expected: "u-ben read up to 9: u-ben 9, u-ana 7, u-dan 0; delivered of the reading device 4, of the sender's 4",
		Observe:  func(t *testing.T) string { return readerAlone(t, false) },
		Control: evidence.Control{Is: "one position for the conversation", Observe: func(t *testing.T) string {
			return readerAlone(t, true)
		}},
	})
	check09Installs(t)
}

func check09Installs(t *testing.T) {
	evidence.Run(t, evidence.Check{
		ID:       "09-reinstall-stale-ack",
		Expected: "the new installation acknowledged 3; after the late ack of 7 by the old one the cursor is 3; hello of the old one: STALE_INSTALL",
		Observe:  func(t *testing.T) string { return reinstalled(t, 2) },
		Control: evidence.Control{Is: "an app that says hello with the old number after it was installed anew", Observe: func(t *testing.T) string {
			return reinstalled(t, 1)
		}},
	})
	evidence.Run(t, evidence.Check{
		ID:       "09-restored-backup",
		Expected: "delivered 7; from the backup: cursor 4, ack 4: delivered 7, the kept message: dup true, then saved [3 4 5 6 7], delivered 7",
		Observe:  func(t *testing.T) string { return restoredBackup(t, false) },
		Control: evidence.Control{Is: "a device that syncs from what the server calls delivered", Observe: func(t *testing.T) string {
			return restoredBackup(t, true)
		}},
	})
	evidence.Run(t, evidence.Check{
		ID:       "09-recalled-does-not-stick-in-unread",
		Expected: "3 messages: unread 3; one recalled: 2; all recalled: 0; read up to the head: 0; one more: 1",
		Observe:  func(t *testing.T) string { return recalledUnread(withDirect(t)) },
		Control: evidence.Control{Is: "recalled messages are not subtracted", Observe: func(t *testing.T) string {
			d := withDirect(t)
			d.mutate("im_reader", " - w.recalled", "")
			return recalledUnread(d)
		}},
	})
}

// lastReportWins breaks the read positions: each is kept as if it were of an older epoch, so that any report
// replaces it.
func (d *database) lastReportWins() {
	d.t.Helper()
	d.exec(`CREATE FUNCTION last_wins() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN
		UPDATE read_positions SET epoch = 0 WHERE conv_id = NEW.conv_id AND user_id = NEW.user_id AND epoch <> 0; RETURN NULL; END'`)
	d.exec(`CREATE TRIGGER last_wins AFTER INSERT OR UPDATE ON read_positions FOR EACH ROW EXECUTE FUNCTION last_wins()`)
}

// readTo reports a position and says what the gateway made of it.
func (c *client) readTo(conv string, seq int64) string {
	c.t.Helper()
	f := c.ask(wire.Request{T: wire.TRead, Conv: conv, Seq: seq})
	if f.T != wire.TReaded {
		return string(f.Code)
	}
	return fmt.Sprintf("read %d, unread %d", f.Read, f.Unread)
}

// state is the entry of a conversation in the device's list.
func (c *client) state(conv string) wire.ConvState {
	c.t.Helper()
	f := c.ask(wire.Request{T: wire.TConvs})
	i := slices.IndexFunc(f.Convs, func(s wire.ConvState) bool { return s.Conv == conv })
	if i < 0 {
		c.t.Fatalf("%s is not in the list: %+v", conv, f)
	}
	return f.Convs[i]
}

// position is what the list says of the user's reading.
func (c *client) position(conv string) string {
	c.t.Helper()
	s := c.state(conv)
	return fmt.Sprintf("read %d, unread %d", s.Read, s.Unread)
}

func outOfOrder(d *database) string {
	d.fill(as("u-ana"), "u-ab", "k", 48)
	g := d.gateway(gatewayOptions{})
	phone, laptop := g.connect(device("u-ben", 1)), g.connect(device("u-ben", 2))
	first := phone.readTo("u-ab", 50)
	return fmt.Sprintf("the phone's 50: %s; the laptop's 45: %s", first, laptop.readTo("u-ab", 45))
}

func clamped(d *database) string {
	d.fill(as("u-ana"), "u-ab", "k", 5)
	g := d.gateway(gatewayOptions{})
	ana, ben := g.connect(as("u-ana")), g.connect(as("u-ben"))
	seen := "107 reported at head 7: " + ben.readTo("u-ab", 107)
	ana.send("u-ab", "more", "x")
	return seen + "; after one more message " + ben.position("u-ab")
}

func afterLogout(d *database) string {
	g := d.gateway(gatewayOptions{})
	ana := g.connect(as("u-ana"))
	for i := range 3 {
		ana.send("u-ab", fmt.Sprint("k", i), "x")
	}
	devices := []im.Principal{device("u-ben", 1), device("u-ben", 2)}
	for _, p := range devices {
		c := g.connect(p)
		c.sync("u-ab", 2, 0)
		c.ack("u-ab", 5)
		c.readTo("u-ab", 5)
		c.close()
	}
	ben := g.web(as("u-ben"))
	seen := fmt.Sprintf("at the logout unread %d; after one message", ben.inbox("u-ab").Unread)
	ana.send("u-ab", "late", "x")
	one, other := g.connect(devices[0]).state("u-ab"), g.connect(devices[1]).state("u-ab")
	return fmt.Sprintf("%s unread %d on the one device, %d on the other, %d by HTTP", seen, one.Unread, other.Unread, ben.inbox("u-ab").Unread)
}

func ownMessages(d *database) string {
	d.fill(as("u-ben"), "u-ab", "first", 4)
	g := d.gateway(gatewayOptions{})
	ana, ben := g.connect(as("u-ana")), g.connect(as("u-ben"))
	ana.send("u-ab", "k", "x")
	seen := "u-ana, who reported nothing: " + ana.position("u-ab")
	ben.send("u-ab", "answer", "x")
	return fmt.Sprintf("%s; after an answer %s; u-ben %s", seen, ana.position("u-ab"), ben.position("u-ab"))
}

// readerAlone has u-ben read a group in which u-ana has sent, and u-dan has neither sent nor read. shared breaks it.
func readerAlone(t *testing.T, shared bool) string {
	d := newDatabase(t)
	d.provision(group("u-all", "u-ana", "u-ben", "u-cai", "u-dan"))
	if shared {
		d.mutate("im_reader", "p.conv_id = c.conv_id AND p.user_id = p_user", "p.conv_id = c.conv_id AND p.user_id = 'u-ben'")
	}
	d.fill(as("u-cai"), "u-all", "first", 2) // 5, 6
	d.fill(as("u-ana"), "u-all", "own", 1)   // 7
	d.fill(as("u-cai"), "u-all", "then", 2)  // 8, 9
	g := d.gateway(gatewayOptions{})
	read := map[string]int64{}
	g.connect(as("u-ben")).readTo("u-all", 9)
	for _, u := range []string{"u-ana", "u-ben", "u-dan"} {
		read[u] = g.connect(device(u, 2)).state("u-all").Read
	}
	return fmt.Sprintf("u-ben read up to 9: u-ben %d, u-ana %d, u-dan %d; delivered of the reading device %s, of the sender's %s",
		read["u-ben"], read["u-ana"], read["u-dan"], d.delivered(as("u-ben"), "u-all"), d.delivered(as("u-ana"), "u-all"))
}

// reinstalled has an acknowledgement of the device's old installation wait in one gateway while the new one, under its
// own number, connects to another and acknowledges less.
func reinstalled(t *testing.T, install int32) string {
	d := withDirect(t)
	d.fill(as("u-ana"), "u-ab", "k", 5)
	g := d.gateway(gatewayOptions{faults: "ack.before_write=pause:0:1", pauses: true})
	g.connect(as("u-ben")).start(wire.Request{T: wire.TAck, Conv: "u-ab", Seq: 7})
	late := g.held(fault.AckBeforeWrite)
	fresh := as("u-ben")
	fresh.Install = install
	c := d.gateway(gatewayOptions{}).connect(fresh)
	seen := fmt.Sprintf("the new installation acknowledged %d", c.ack("u-ab", 3).Delivered)
	if err := late.Release(""); err != nil {
		t.Fatal(err)
	}
	g.connect(as("u-ana")).ack("u-ab", 2) // written after it
	seen += "; after the late ack of 7 by the old one the cursor is " + d.delivered(as("u-ben"), "u-ab")
	f := g.dial(as("u-ben")).hello()
	if f.T == wire.TError {
		return fmt.Sprintf("%s; hello of the old one: %s", seen, f.Code)
	}
	return fmt.Sprintf("%s; hello of the old one: %s", seen, f.T)
}

// restoredBackup has a device go on from a backup of its state: made at cursor 4, with a message that was sent since.
func restoredBackup(t *testing.T, trusting bool) string {
	d := withDirect(t)
	g := d.gateway(gatewayOptions{args: []string{"-sweep", "0s"}})
	p := newPhone(t, as("u-ben"))
	p.dial(g)
	p.begin("u-ab", 2)
	d.fill(as("u-ana"), "u-ab", "before", 2)
	p.catchUp("u-ab")
	p.kept.Outbox = []wire.Request{{T: wire.TSend, Conv: "u-ab", CMID: "kept", Body: "hello"}}
	p.ack("u-ab")
	backup, err := os.ReadFile(p.path)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := p.resend(patience); !ok {
		t.Fatal("the message got no reply")
	}
	d.fill(as("u-ana"), "u-ab", "after", 2)
	p.catchUp("u-ab")
	seen := fmt.Sprintf("delivered %d", p.ack("u-ab").Delivered)

	if err := os.WriteFile(p.path, backup, 0o600); err != nil {
		t.Fatal(err)
	}
	p.crash()
	p.dial(g)
	s := p.conv("u-ab")
	seen += fmt.Sprintf("; from the backup: cursor %d, ack %d: delivered %d", s.Cursor, s.Cursor, p.ack("u-ab").Delivered)
	f, _ := p.resend(patience)
	seen += fmt.Sprintf(", the kept message: dup %v", f.Dup)
	if trusting {
		s.Cursor = p.c.state("u-ab").Delivered
	}
	p.catchUp("u-ab")
	return fmt.Sprintf("%s, then saved %v, delivered %d", seen, s.Seqs, p.ack("u-ab").Delivered)
}

func recalledUnread(d *database) string {
	g := d.gateway(gatewayOptions{})
	ana, ben := g.connect(as("u-ana")), g.connect(as("u-ben"))
	send := func(i int) { ana.send("u-ab", fmt.Sprint("k", i), "x") }
	recall := func(seq int64) {
		ana.ask(wire.Request{T: wire.TRecall, Conv: "u-ab", Seq: seq, CMID: fmt.Sprint("r", seq)})
	}
	unread := func() int64 { return ben.state("u-ab").Unread }
	for i := range 3 {
		send(i)
	}
	seen := fmt.Sprintf("3 messages: unread %d", unread())
	recall(4)
	seen += fmt.Sprintf("; one recalled: %d", unread())
	recall(3)
	recall(5)
	seen += fmt.Sprintf("; all recalled: %d", unread())
	ben.readTo("u-ab", 8)
	seen += fmt.Sprintf("; read up to the head: %d", unread())
	send(9)
	return fmt.Sprintf("%s; one more: %d", seen, unread())
}

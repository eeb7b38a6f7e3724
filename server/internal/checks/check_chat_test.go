package checks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"imbench/server/internal/evidence"
	"imbench/server/internal/im"
	"imbench/server/internal/postgres"
	"imbench/server/wire"
)

// The second document: REST, positions instead of receipts, and unread by subtraction. Its numbers begin at the first
// message; ours are larger by the two joins.
func TestCheckChat(t *testing.T) {
	evidence.Run(t, evidence.Check{
		ID: "chat-resend-one-row", Document: "seq=42 twice; count(*) = 1, seq = 1",
		Expected: "201 seq 3, then at another gateway 200 seq 3, dup true, the same mid; rows 1",
		Observe:  func(t *testing.T) string { return resendByHTTP(withDirect(t)) },
		Control: evidence.Control{Is: "the request key is not kept with the message", Observe: func(t *testing.T) string {
			d := withDirect(t)
			d.forgetKeys()
			return resendByHTTP(d)
		}},
	})
	evidence.Run(t, evidence.Check{
		ID: "chat-watermark-never-back", Document: "4, then 2, then 99 of 5 messages: true, false, true; unread 0 for both",
		Expected: "6: read 6, 4: read 6, 101: read 7; unread 0 for the reader, 0 for the sender",
		Observe:  func(t *testing.T) string { return watermark(withDirect(t)) },
		Control: evidence.Control{Is: "the report that comes last wins", Observe: func(t *testing.T) string {
			d := withDirect(t)
			d.lastReportWins()
			return watermark(d)
		}},
	})
	evidence.Run(t, evidence.Check{
		ID: "chat-direct-pair-once", Document: "a unique (user_low, user_high): no two conversations",
		Expected: "8 asked at once, none found one: 1 conversation, created by 1",
		Observe:  func(t *testing.T) string { return openAtOnce(withPair(t)) },
		Control: evidence.Control{Is: "the pair is not unique", Observe: func(t *testing.T) string {
			d := withPair(t)
			d.exec(`ALTER TABLE direct_pairs DROP CONSTRAINT direct_pairs_pkey`)
			return openAtOnce(d)
		}},
	})
	evidence.Run(t, evidence.Check{
		ID: "chat-unread-by-subtraction", Document: "last_seq - last_read_seq",
		Expected: "head 13, read 4: unread 4, counted 4; for one who joined at 7: unread 2, counted 2",
		Observe:  func(t *testing.T) string { return subtracted(t, false) },
		Control: evidence.Control{Is: "the document's last_seq - last_read_seq, in a log that has joins and recalls too", Observe: func(t *testing.T) string {
			return subtracted(t, true)
		}},
	})
	evidence.Run(t, evidence.Check{
		ID: "chat-seen-by-n", Document: "count of the members with last_read_seq >= seq",
		Expected: "seen by 0 of 4; by 2 after reports of 6 and of 8; by 3 after an answer without a report",
		Observe:  func(t *testing.T) string { return seenByN(t, false) },
		Control: evidence.Control{Is: "a receipt for the reported message only", Observe: func(t *testing.T) string {
			return seenByN(t, true)
		}},
	})
	evidence.Run(t, evidence.Check{
		ID: "chat-gap-detected", Document: "40, then 43: GET /messages?afterSeq=40 gives 41 and 42",
		Expected: "at 40 comes 43: after_seq=40 gives [41 42 43], cursor 43, nothing missing",
		Observe:  func(t *testing.T) string { return gapDetected(t, false) },
		Control: evidence.Control{Is: "a client that takes the seq of a push for its cursor", Observe: func(t *testing.T) string {
			return gapDetected(t, true)
		}},
	})
	chatGroups(t)
	chatReads(t)
}

// withPair is a database with two users who have no conversation.
func withPair(t *testing.T) *database {
	t.Helper()
	d := newDatabase(t, func(c *postgres.Config) { c.Conns = 12 })
	d.provisionWith([]string{"u-ana", "u-ben"})
	return d
}

func resendByHTTP(d *database) string {
	first := d.gateway(gatewayOptions{}).web(as("u-ana")).send("u-ab", "a1b2", "hello, everyone")
	again := d.gateway(gatewayOptions{}).web(as("u-ana")).send("u-ab", "a1b2", "hello, everyone")
	mid := "another mid"
	if first.MID == again.MID && first.MID != "" {
		mid = "the same mid"
	}
	return fmt.Sprintf("%s, then at another gateway %s, dup %v, %s; rows %s", first.result(), again.result(), again.Dup, mid, d.messages("u-ab"))
}

func watermark(d *database) string {
	g := d.gateway(gatewayOptions{})
	ana, ben := g.web(as("u-ana")), g.web(as("u-ben"))
	for i := range 5 {
		ana.send("u-ab", fmt.Sprint("k", i), fmt.Sprint("message ", i))
	}
	var seen []string
	for _, seq := range []int64{6, 4, 101} {
		seen = append(seen, fmt.Sprintf("%d: read %d", seq, ben.read("u-ab", seq).Read))
	}
	return fmt.Sprintf("%s; unread %d for the reader, %d for the sender", strings.Join(seen, ", "), ben.inbox("u-ab").Unread, ana.inbox("u-ab").Unread)
}

// openAtOnce has both users open their chat, four times each. The row of one of them is locked until all eight have
// looked for the chat and found none.
func openAtOnce(d *database) string {
	const callers = 8
	ctx := d.t.Context()
	tx, err := d.Pool().Begin(ctx)
	if err != nil {
		d.t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(ctx, `SELECT 1 FROM users WHERE user_id = 'u-ana' FOR UPDATE`); err != nil {
		d.t.Fatal(err)
	}
	convs, created := make([]string, callers), make([]bool, callers)
	errs := make([]error, callers)
	var wg sync.WaitGroup
	for i := range convs {
		me, peer := "u-ana", "u-ben"
		if i%2 == 1 {
			me, peer = peer, me
		}
		wg.Go(func() { convs[i], created[i], errs[i] = d.Direct(ctx, as(me), peer) })
	}
	d.until(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
		AND query LIKE '%im_direct%'`, fmt.Sprint(callers))
	if err := tx.Rollback(ctx); err != nil {
		d.t.Fatal(err)
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err.Error()
	}
	slices.Sort(convs)
	made := 0
	for _, c := range created {
		if c {
			made++
		}
	}
	return fmt.Sprintf("%d asked at once, none found one: %d conversation, created by %d", callers, len(slices.Compact(convs)), made)
}

// until asks again and again until a query gives what is wanted.
func (d *database) until(sql, want string) {
	d.t.Helper()
	end, again := time.After(patience), time.NewTicker(5*time.Millisecond)
	defer again.Stop()
	for {
		got := d.text(sql)
		if got == want {
			return
		}
		select {
		case <-again.C:
		case <-end:
			d.t.Fatalf("%s: %s, and not %s", sql, got, want)
		}
	}
}

// subtracted compares the inbox with a count of the messages. naive is the document's subtraction instead.
func subtracted(t *testing.T, naive bool) string {
	d := newDatabase(t)
	d.provisionWith([]string{"u-new"}, group("u-all", "u-ana", "u-ben"))
	g := d.gateway(gatewayOptions{})
	ana, c := g.web(as("u-ana")), g.connect(as("u-ana"))
	send := func(seqs ...int64) {
		for _, s := range seqs {
			ana.send("u-all", fmt.Sprint("k", s), "x")
		}
	}
	send(3, 4, 5, 6)
	ana.join("u-all", "u-new") // 7
	send(8, 9)
	c.recall("u-all", 9, "r")   // 10
	ana.leave("u-all", "u-new") // 11
	ana.join("u-all", "u-new")  // 12
	send(13)
	g.web(as("u-ben")).read("u-all", 4)
	unread := func(user string) (head, read, n int64) {
		v := g.web(as(user)).inbox("u-all")
		if naive {
			return v.Head, v.Read, v.Head - v.Read
		}
		return v.Head, v.Read, v.Unread
	}
	counted := func(user string, read int64) (n int) {
		for _, e := range d.history(as(user), "u-all", 0) {
			if e.Kind == im.KindMsg && e.Seq > read && e.Body != "" {
				n++
			}
		}
		return n
	}
	head, read, n := unread("u-ben")
	_, newRead, m := unread("u-new")
	return fmt.Sprintf("head %d, read %d: unread %d, counted %d; for one who joined at 7: unread %d, counted %d",
		head, read, n, counted("u-ben", read), m, counted("u-new", newRead))
}

// seenByN asks how many have read message 6 of a group of five. naive counts those who reported this very message.
func seenByN(t *testing.T, naive bool) string {
	d := newDatabase(t)
	d.provision(group("u-all", "u-ana", "u-ben", "u-cai", "u-dan", "u-eva"))
	g := d.gateway(gatewayOptions{})
	ana := g.web(as("u-ana"))
	for _, k := range []string{"k6", "k7", "k8"} {
		ana.send("u-all", k, "x")
	}
	receipts := func() answer {
		a := ana.do("GET", "/v1/conversations/u-all/messages/6/receipts", nil)
		if naive {
			fmt.Sscan(d.text(`SELECT count(*) FROM read_positions WHERE conv_id = 'u-all' AND read_seq = 6`), &a.Read)
		}
		return a
	}
	none := receipts()
	g.web(as("u-ben")).read("u-all", 6)
	g.web(as("u-cai")).read("u-all", 8)
	two := receipts()
	g.web(as("u-dan")).send("u-all", "answer", "x")
	return fmt.Sprintf("seen by %d of %d; by %d after reports of 6 and of 8; by %d after an answer without a report",
		none.Read, none.Users, two.Read, receipts().Read)
}

// gapDetected has the pushes of 41 and 42 be lost.
func gapDetected(t *testing.T, jumps bool) string {
	d := withDirect(t)
	d.fill(as("u-ana"), "u-ab", "k", 38)
	g := d.gateway(gatewayOptions{faults: "gw.push=drop:0:2", args: []string{"-sweep", "0s"}})
	p := newPhone(t, as("u-ben"))
	p.cursorJump = jumps
	p.dial(g)
	p.begin("u-ab", 40)
	ana := g.web(as("u-ana"))
	for i := range 3 {
		ana.send("u-ab", fmt.Sprint("n", i), "x")
	}
	f := p.c.next()
	seen := fmt.Sprintf("at 40 comes %d:", f.Ev.Seq)
	if !p.apply(f.Ev) {
		after := p.conv("u-ab").Cursor
		var seqs []int64
		for _, e := range g.web(as("u-ben")).after("u-ab", after).Events {
			seqs = append(seqs, e.Seq)
			p.apply(wire.Event{Conv: "u-ab", Seq: e.Seq, Kind: e.Kind, Body: e.Body})
		}
		seen += fmt.Sprintf(" after_seq=%d gives %v,", after, seqs)
	}
	s := p.conv("u-ab")
	missing := "nothing missing"
	if !slices.Equal(s.Seqs, []int64{41, 42, 43}) {
		missing = fmt.Sprintf("%v is all there is", s.Seqs)
	}
	return fmt.Sprintf("%s cursor %d, %s", seen, s.Cursor, missing)
}

package checks

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"imbench/server/internal/app"
	"imbench/server/internal/evidence"
	"imbench/server/internal/im"
	"imbench/server/wire"
)

// Chapter 11, recall, retention and restored databases. Only the opening of its document is known: each of the three
// collides with an invariant of the chapters before.
func TestCheck11(t *testing.T) {
	evidence.Run(t, evidence.Check{
		ID: "11-recall-window", Expected: "within two minutes seq 5, dup false; after them RECALL_WINDOW; bodies: 3 none, 4 too late",
		Observe: func(t *testing.T) string { return recallInTime(withDirect(t)) },
		Control: evidence.Control{Is: "the time of the message is not looked at", Observe: func(t *testing.T) string {
			d := withDirect(t)
			d.mutate("im_recall", "IF o_at > t.created_at +", "IF false AND o_at > t.created_at +")
			return recallInTime(d)
		}},
	})
	evidence.Run(t, evidence.Check{
		ID: "11-recall-not-sender", Expected: "by the other member NOT_SENDER, by a stranger NOT_MEMBER; head 3, body hello",
		Observe: func(t *testing.T) string { return recallByOthers(withDirect(t)) },
		Control: evidence.Control{Is: "nobody asks whose message it is", Observe: func(t *testing.T) string {
			d := withDirect(t)
			d.mutate("im_recall", "WHEN t.sender_user <> p_user THEN", "WHEN false THEN")
			return recallByOthers(d)
		}},
	})
	evidence.Run(t, evidence.Check{
		ID:       "11-recall-reaches-late-sync",
		Expected: "the device that had it is pushed recall@4 of 3; to the late one msg@3 without body and recall@4; 0 of 5 paths serve the content; a resend: seq 3, dup true",
		Observe:  func(t *testing.T) string { return recallLate(withDirect(t)) },
		Control: evidence.Control{Is: "a recall that only adds its event", Observe: func(t *testing.T) string {
			d := withDirect(t)
			d.mutate("im_recall", "UPDATE events SET body = NULL, request_hash", "UPDATE events SET body = body, request_hash")
			return recallLate(d)
		}},
	})
	evidence.Run(t, evidence.Check{
		ID: "11-retention-tombstone", Expected: "min_seq 4, rows 0; the resend of message 3: EXPIRED, outbox 0, rows 0; the next message is 4",
		Observe: func(t *testing.T) string { return resendRemoved(withRetention(t)) },
		Control: evidence.Control{Is: "the keys go with the messages", Observe: func(t *testing.T) string {
			d := withRetention(t)
			d.mutate("im_retain", "FROM gone WHERE client_msg_id IS NOT NULL", "FROM gone WHERE false")
			return resendRemoved(d)
		}},
	})
	evidence.Run(t, evidence.Check{
		ID:       "11-retention-while-syncing",
		Expected: "the removal overtakes the reader; every page goes on without a gap from the cursor or from its min_seq; in the end min_seq 103, head 102",
		Observe:  retainWhilePaging,
		Control:  evidence.Control{Is: "min_seq read first, the events in a statement of their own", Observe: retainBetweenReads},
	})
	evidence.Run(t, evidence.Check{
		ID:       "11-restore-raises-epoch",
		Expected: "cursor 9 before; restored to head 5, then 2 others; epoch 1: ack EPOCH_CHANGED, sync EPOCH_CHANGED; the device has the restored log; count=max=7, next_seq 8",
		Observe:  func(t *testing.T) string { return restoreBackup(t, true) },
		Control: evidence.Control{Is: "the gateways start on the restored database without restore-epoch", Observe: func(t *testing.T) string {
			return restoreBackup(t, false)
		}},
	})
}

// age makes everything in the database older.
func (d *database) age(by time.Duration) {
	d.t.Helper()
	d.exec(`UPDATE events SET created_at = created_at - $1::bigint * interval '1 microsecond'`, by.Microseconds())
	d.exec(`UPDATE conversations SET retain_at = retain_at - $1::bigint * interval '1 microsecond'`, by.Microseconds())
}

// recall is a request to recall; its outcome in words.
func (c *client) recall(conv string, seq int64, cmid string) string {
	c.t.Helper()
	f := c.ask(wire.Request{T: wire.TRecall, Conv: conv, Seq: seq, CMID: cmid})
	if f.T != wire.TSent {
		return string(f.Code)
	}
	return fmt.Sprintf("seq %d, dup %v", f.Seq, f.Dup)
}

func recallInTime(d *database) string {
	g := d.gateway(gatewayOptions{})
	ana, ben := g.connect(as("u-ana")), g.connect(as("u-ben"))
	ana.send("u-ab", "k3", "in time")
	ana.send("u-ab", "k4", "too late")
	d.age(time.Minute)
	seen := "within two minutes " + ana.recall("u-ab", 3, "r3")
	d.age(time.Minute + time.Second)
	seen += "; after them " + ana.recall("u-ab", 4, "r4") + "; bodies:"
	var bodies []string
	for _, e := range ben.sync("u-ab", 2, 2).Events {
		body := e.Body
		if body == "" {
			body = "none"
		}
		bodies = append(bodies, fmt.Sprintf(" %d %s", e.Seq, body))
	}
	return seen + strings.Join(bodies, ",")
}

func recallByOthers(d *database) string {
	g := d.gateway(gatewayOptions{})
	ana, ben, cai := g.connect(as("u-ana")), g.connect(as("u-ben")), g.connect(as("u-cai"))
	ana.send("u-ab", "k3", "hello")
	seen := fmt.Sprintf("by the other member %s, by a stranger %s", ben.recall("u-ab", 3, "r"), cai.recall("u-ab", 3, "r"))
	f := ana.ask(wire.Request{T: wire.TFetch, Conv: "u-ab", Seq: 3})
	return fmt.Sprintf("%s; head %s, body %s", seen, d.head("u-ab"), f.Ev.Body)
}

// recallLate recalls a message that one of u-ben's devices has and the other has not, and looks for its content on all
// paths that a client has.
func recallLate(d *database) string {
	const secret = "a secret"
	g := d.gateway(gatewayOptions{})
	ana, early := g.connect(as("u-ana")), g.connect(device("u-ben", 1))
	ana.send("u-ab", "k3", secret)
	if f := early.next(); f.Ev.Body != secret {
		return fmt.Sprintf("the message did not come: %+v", f)
	}
	ana.recall("u-ab", 3, "r4")
	f := early.next()
	seen := fmt.Sprintf("the device that had it is pushed %s@%d of %d", f.Ev.Kind, f.Ev.Seq, f.Ev.Target)

	late, web := g.connect(device("u-ben", 2)), g.web(device("u-ben", 2))
	page := late.sync("u-ab", 2, 0)
	var got []string
	for _, e := range page.Events {
		body := ""
		if e.Kind == "msg" && e.Body == "" {
			body = " without body"
		}
		got = append(got, fmt.Sprintf("%s@%d%s", e.Kind, e.Seq, body))
	}
	paths := []string{
		fmt.Sprint(page.Events),
		fmt.Sprint(late.ask(wire.Request{T: wire.TFetch, Conv: "u-ab", Seq: 3}).Ev),
		fmt.Sprint(web.after("u-ab", 2).Events),
		fmt.Sprint(web.do("GET", "/v1/conversations/u-ab/messages", nil).Events),
		fmt.Sprint(web.do("GET", "/v1/conversations/u-ab/messages/3", nil)),
	}
	serve := 0
	for _, text := range paths {
		if strings.Contains(text, secret) {
			serve++
		}
	}
	again := ana.send("u-ab", "k3", secret)
	return fmt.Sprintf("%s; to the late one %s; %d of %d paths serve the content; a resend: seq %d, dup %v",
		seen, strings.Join(got, " and "), serve, len(paths), again.Seq, again.Dup)
}

// withRetention is withDirect with an hour's retention.
func withRetention(t *testing.T) *database {
	t.Helper()
	d := newDatabase(t)
	c := direct("u-ab", "u-ana", "u-ben")
	c.RetentionMS = time.Hour.Milliseconds()
	d.provision(c)
	return d
}

// retain does retention's steps until there is nothing to do.
func (d *database) retain(limit int) error {
	for {
		r, err := d.Retain(context.Background(), limit, 24*time.Hour)
		if err != nil || !r.More {
			return err
		}
	}
}

// resendRemoved has a message stored whose `sent` never came, removed by retention, and then sent again.
func resendRemoved(d *database) string {
	p := newPhone(d.t, as("u-ana"))
	p.kept.Outbox = []wire.Request{{T: wire.TSend, Conv: "u-ab", CMID: "k3", Body: "hello"}}
	p.save()
	if r := d.send(as("u-ana"), "u-ab", "k3", "hello"); r.Err != nil {
		return r.Err.Error()
	}
	d.age(2 * time.Hour)
	if err := d.retain(100); err != nil {
		d.t.Fatal(err)
	}
	p.dial(d.gateway(gatewayOptions{}))
	seen := fmt.Sprintf("min_seq %d, rows %s", p.c.sync("u-ab", 2, 0).MinSeq, d.messages("u-ab"))
	f, ok := p.resend(patience)
	result := string(f.Code)
	if !ok || f.T == wire.TSent {
		result = fmt.Sprintf("seq %d, dup %v", f.Seq, f.Dup)
	}
	seen += fmt.Sprintf("; the resend of message 3: %s, outbox %d, rows %s", result, len(p.kept.Outbox), d.messages("u-ab"))
	return fmt.Sprintf("%s; the next message is %d", seen, p.c.send("u-ab", "next", "x").Seq)
}

// gap says whether a page leaves out an event that, by its own min_seq and head, must be there.
func gap(after int64, page im.Page) bool {
	next := max(after+1, page.MinSeq)
	for _, e := range page.Events {
		if e.Seq != next {
			return true
		}
		next++
	}
	return !page.HasMore && next != page.Head+1
}

// retainWhilePaging reads the whole log again and again, by five events. The first removal comes after the first page, the
// others while it reads.
func retainWhilePaging(t *testing.T) string {
	d := withRetention(t)
	d.fill(as("u-ana"), "u-ab", "k", 100)
	d.age(2 * time.Hour)
	var wg sync.WaitGroup
	defer wg.Wait()
	after, pages, overtaken := int64(0), 0, 0
	for {
		page, err := d.Sync(t.Context(), im.SyncReq{From: as("u-ana"), Conv: "u-ab", After: after, Limit: 5})
		if err != nil {
			t.Fatal(err)
		}
		if after > 0 && page.MinSeq > after+1 {
			overtaken++
		}
		switch {
		case gap(after, page):
			return fmt.Sprintf("a gap after %d: %+v", after, page)
		case page.HasMore:
			after = page.NextAfter
		case page.MinSeq > page.Head && overtaken > 0:
			return fmt.Sprintf("the removal overtakes the reader; every page goes on without a gap from the cursor or from its min_seq; in the end min_seq %d, head %d\n%d pages, %d of them overtaken",
				page.MinSeq, page.Head, pages, overtaken)
		default:
			after = 0
		}
		if pages++; pages == 1 {
			if _, err := d.Retain(t.Context(), 30, time.Hour); err != nil {
				t.Fatal(err)
			}
			wg.Go(func() {
				if err := d.retain(3); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// retainBetweenReads is the naive page of two statements, with a step of retention between them.
func retainBetweenReads(t *testing.T) string {
	d := withRetention(t)
	d.fill(as("u-ana"), "u-ab", "k", 100)
	d.age(2 * time.Hour)
	ctx := t.Context()
	page := im.Page{Head: 102, HasMore: true}
	if err := d.Pool().QueryRow(ctx, `SELECT min_seq FROM conversations WHERE conv_id = 'u-ab'`).Scan(&page.MinSeq); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Retain(ctx, 50, time.Hour); err != nil {
		t.Fatal(err)
	}
	page.Events = d.everything("u-ab")[:5]
	if gap(0, page) {
		return fmt.Sprintf("a gap: min_seq %d, the first event %d", page.MinSeq, page.Events[0].Seq)
	}
	return "no gap"
}

// say has u-ana send messages to u-ab whose bodies are word1, word2…
func (d *database) say(word string, n int) {
	d.t.Helper()
	for i := range n {
		text := fmt.Sprint(word, i+1)
		if r := d.send(as("u-ana"), "u-ab", text, text); r.Err != nil {
			d.t.Fatal(r.Err)
		}
	}
}

// restoreBackup makes a backup, goes on, loses the database, and goes on from the backup with other messages. The
// device had acknowledged what the backup does not have.
func restoreBackup(t *testing.T, raise bool) string {
	d := withDirect(t)
	d.say("before", 3)
	d.Close()
	u, err := url.Parse(d.url)
	if err != nil {
		t.Fatal(err)
	}
	backup := newDatabaseOn(t, serverURL, strings.TrimPrefix(u.Path, "/")) // a copy of the files as they are now
	d.Store = d.open()
	d.say("lost", 4)
	p := newPhone(t, as("u-ben"))
	p.dial(d.gateway(gatewayOptions{}))
	p.begin("u-ab", 2)
	p.catchUp("u-ab")
	seen := fmt.Sprintf("cursor %d before; restored to head %s, then 2 others", p.ack("u-ab").Delivered, backup.head("u-ab"))

	if raise {
		var out bytes.Buffer
		if code := app.Run(t.Context(), []string{"restore-epoch", "-db", backup.url}, nil, nil, &out, &out); code != 0 {
			t.Fatalf("restore-epoch: status %d, %s", code, out.String())
		}
	}
	p.dial(backup.gateway(gatewayOptions{}))
	backup.say("other", 2)
	acked := p.c.ask(wire.Request{T: wire.TAck, Conv: "u-ab", Seq: 9, Epoch: 1})
	synced := p.c.ask(wire.Request{T: wire.TSync, Conv: "u-ab", After: 9, Epoch: 1})
	said := func(f wire.Frame) string {
		if f.T == wire.TError {
			return string(f.Code)
		}
		return fmt.Sprintf("%d events", len(f.Events))
	}
	seen += fmt.Sprintf("; epoch 1: ack %s, sync %s", said(acked), said(synced))
	if synced.Code == wire.EpochChanged { // as PROTOCOL.md tells it to
		p.kept.Convs["u-ab"] = &saved{Cursor: 0}
	}
	p.catchUp("u-ab")
	var log []string
	for _, e := range backup.history(as("u-ben"), "u-ab", 0) {
		log = append(log, e.Body)
	}
	what := "the device has the restored log"
	if has := p.conv("u-ab").Bodies; !slices.Equal(log, has) {
		what = fmt.Sprintf("the device has %v, the log is %v", has, log)
	}
	return fmt.Sprintf("%s; %s; %s", seen, what, backup.text(`SELECT 'count=' || CASE WHEN count(*) = max(seq) THEN 'max=' ELSE '' END || count(*) || ', next_seq ' || c.next_seq
		FROM events e JOIN conversations c USING (conv_id) WHERE c.conv_id = 'u-ab' GROUP BY c.next_seq`))
}

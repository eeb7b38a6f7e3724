package checks

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"imbench/server/internal/evidence"
	"imbench/server/internal/im"
	"imbench/server/internal/postgres"
	"imbench/server/wire"
)

// Chapter 07, order and incremental synchronisation. Only the opening of its document is known.
func TestCheck07(t *testing.T) {
	evidence.Run(t, evidence.Check{
		ID:       "07-same-order-for-all",
		Expected: "4 devices at 2 gateways, 4 of them with the order of the log, seqs 5 to 124",
		Observe:  func(t *testing.T) string { return sameOrder(t, false) },
		Control: evidence.Control{Is: "devices show their own messages when they send them", Observe: func(t *testing.T) string {
			return sameOrder(t, true)
		}},
	})
	evidence.Run(t, evidence.Check{
		ID:       "07-push-before-sync",
		Expected: "cursor 3, push 8: cursor 3; after the sync [4 5 6 7 8], cursor 8, acknowledged 8",
		Observe:  func(t *testing.T) string { return pushBeforeSync(t, false) },
		Control: evidence.Control{Is: "a device that takes the seq of a push for its cursor", Observe: func(t *testing.T) string {
			return pushBeforeSync(t, true)
		}},
	})
	evidence.Run(t, evidence.Check{
		ID: "07-page-while-writing", Expected: "102 events, 1 to 102, none missing, none twice", Observe: pageWhileWriting,
		Control: evidence.Control{Is: "pages counted from the newest (ORDER BY seq DESC OFFSET n)", Observe: offsetWhileWriting},
	})
	evidence.Run(t, evidence.Check{
		ID:       "07-limit-mid-list",
		Expected: "after 10 events: u-c1 4, u-c2 4, u-c3 2, u-c4 0, u-c5 0; after the rest: u-c1 4, u-c2 4, u-c3 4, u-c4 4, u-c5 4, none twice",
		Observe:  func(t *testing.T) string { return limitMidList(t, false) },
		Control: evidence.Control{Is: "a device that takes the head of a page for its cursor", Observe: func(t *testing.T) string {
			return limitMidList(t, true)
		}},
	})
	evidence.Run(t, evidence.Check{
		ID:       "07-epoch-changed",
		Expected: "ack EPOCH_CHANGED, read EPOCH_CHANGED, sync EPOCH_CHANGED, cursor none; from 0 in epoch 2: 6 events, delivered 7",
		Observe:  func(t *testing.T) string { return epochChanged(t, 1) },
		Control: evidence.Control{Is: "devices that do not say which epoch they know", Observe: func(t *testing.T) string {
			return epochChanged(t, 0)
		}},
	})
	evidence.Run(t, evidence.Check{
		ID:       "07-same-millisecond",
		Expected: "20 messages, 1 time, in the order in which they were sent",
		Observe:  func(t *testing.T) string { return sameMillisecond(t, "seq") },
		Control: evidence.Control{Is: "ordered by time, and by a digest within it, as a message id is", Observe: func(t *testing.T) string {
			return sameMillisecond(t, "created_at, md5(client_msg_id)")
		}},
	})
	evidence.Run(t, evidence.Check{
		ID:       "07-control-order-by-time",
		Expected: "2 events committed, a reader by time got [2]: one is lost",
		Observe:  orderByTime,
		Control:  evidence.Control{Is: "the reader goes by seq, which the conversation's lock gives in commit order", Observe: orderBySeq},
	})
}

// sameOrder has four members' devices at two gateways send 30 messages each, all at once, and compares what they show
// in the end. Each looks at what came when it has sent its own; ownFirst devices show these as they send them.
func sameOrder(t *testing.T, ownFirst bool) string {
	users := []string{"u-ana", "u-ben", "u-cai", "u-dan"}
	d := newDatabase(t)
	d.provision(group("u-all", users...))
	var gs []*gateway
	for range 2 {
		gs = append(gs, d.gateway(gatewayOptions{args: []string{"-request-rate", "0"}}))
	}
	var phones []*phone
	for i, u := range users {
		p := newPhone(t, as(u))
		p.begin("u-all", 4)
		p.dial(gs[i%2])
		phones = append(phones, p)
	}
	var wg sync.WaitGroup
	failed := make([]string, len(users))
	for i, p := range phones {
		wg.Go(func() { failed[i] = pipeline(p.c, "u-all", p.who.User, 30) })
	}
	wg.Wait()
	var log []string
	for _, e := range d.everything("u-all")[4:] {
		log = append(log, e.Body)
	}
	alike, from, to := 0, int64(0), int64(0)
	for i, p := range phones {
		if failed[i] != "" {
			return failed[i]
		}
		for f, ok := p.c.nextWithin(0); ok; f, ok = p.c.nextWithin(0) {
			p.handle(f)
		}
		p.catchUp("u-all")
		s := p.conv("u-all")
		shown := s.Bodies
		if ownFirst {
			slices.SortStableFunc(shown, func(a, b string) int { return mine(b, p.who) - mine(a, p.who) })
		}
		if slices.Equal(shown, log) {
			alike++
		}
		from, to = s.Seqs[0], s.Seqs[len(s.Seqs)-1]
	}
	return fmt.Sprintf("%d devices at %d gateways, %d of them with the order of the log, seqs %d to %d", len(phones), len(gs), alike, from, to)
}

// mine is 1 for a body that the user sent.
func mine(body string, who im.Principal) int {
	if strings.HasPrefix(body, who.User) {
		return 1
	}
	return 0
}

// pushBeforeSync has a device miss messages 4 to 7, which nobody announces, and then be pushed message 8.
func pushBeforeSync(t *testing.T, jumps bool) string {
	d := withDirect(t)
	g := d.gateway(gatewayOptions{args: []string{"-sweep", "0s"}})
	d.fill(as("u-ana"), "u-ab", "k", 1)
	ana, p := g.connect(as("u-ana")), newPhone(t, as("u-ben"))
	p.cursorJump = jumps
	p.dial(g)
	p.begin("u-ab", 3)
	d.fill(as("u-ana"), "u-ab", "missed", 4)
	ana.send("u-ab", "k8", "x")
	f := p.c.next()
	contiguous := p.apply(f.Ev)
	s := p.conv("u-ab")
	seen := fmt.Sprintf("cursor 3, push %d: cursor %d", f.Ev.Seq, s.Cursor)
	if !contiguous {
		p.catchUp("u-ab")
	}
	r := p.ack("u-ab")
	return fmt.Sprintf("%s; after the sync %v, cursor %d, acknowledged %d", seen, s.Seqs, s.Cursor, r.Delivered)
}

// pageWhileWriting reads pages of five while another session writes 100 messages.
func pageWhileWriting(t *testing.T) string {
	d := withDirect(t)
	var done atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		defer done.Store(true)
		for i := range 100 {
			if r := d.send(as("u-ben"), "u-ab", fmt.Sprint("k", i), "x"); r.Err != nil {
				t.Error(r.Err)
			}
		}
	})
	defer wg.Wait()
	var seqs []int64
	for after := int64(0); ; {
		finished := done.Load()
		page, err := d.Sync(t.Context(), im.SyncReq{From: as("u-ana"), Conv: "u-ab", After: after, Limit: 5})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page.Events {
			seqs = append(seqs, e.Seq)
		}
		after = page.NextAfter
		if finished && !page.HasMore {
			return complete(seqs, 102)
		}
	}
}

// offsetWhileWriting is the naive way: pages counted from the newest event, while a message comes between two pages.
func offsetWhileWriting(t *testing.T) string {
	d := withDirect(t)
	d.fill(as("u-ben"), "u-ab", "before", 80)
	var seqs []int64
	for offset := 0; ; offset += 5 {
		rows, err := d.Pool().Query(t.Context(), `SELECT seq FROM events WHERE conv_id = 'u-ab' ORDER BY seq DESC LIMIT 5 OFFSET $1`, offset)
		if err != nil {
			t.Fatal(err)
		}
		page, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			slices.Sort(seqs)
			return complete(seqs, 102)
		}
		seqs = append(seqs, page...)
		if d.head("u-ab") != "102" {
			d.send(as("u-ben"), "u-ab", fmt.Sprint("k", offset), "x")
		}
	}
}

// complete describes the seqs that a reader got of a log from 1 to head.
func complete(seqs []int64, head int64) string {
	times := map[int64]int{}
	for _, s := range seqs {
		times[s]++
	}
	missing, twice := "none", "none"
	for s := int64(1); s <= head; s++ {
		if times[s] == 0 {
			missing = "some"
		} else if times[s] > 1 {
			twice = "some"
		}
	}
	return fmt.Sprintf("%d events, %d to %d, %s missing, %s twice", len(seqs), seqs[0], seqs[len(seqs)-1], missing, twice)
}

// limitMidList has a device that comes back with five conversations of four new messages each read ten events, which
// end within the third; then it starts again and reads the rest.
func limitMidList(t *testing.T, jumps bool) string {
	convs := []string{"u-c1", "u-c2", "u-c3", "u-c4", "u-c5"}
	d := newDatabase(t)
	var list []postgres.PopulationConv
	for _, c := range convs {
		list = append(list, group(c, "u-ana", "u-ben"))
	}
	d.provision(list...)
	p := newPhone(t, as("u-ben"))
	p.cursorJump = jumps
	for _, c := range convs {
		p.begin(c, 2)
		d.fill(as("u-ana"), c, "k", 4)
	}
	g := d.gateway(gatewayOptions{args: []string{"-sweep", "0s"}})
	p.dial(g)
	const budget = 10
	got := func() (n int, text string) {
		var each []string
		for _, c := range convs {
			n += len(p.conv(c).Seqs)
			each = append(each, fmt.Sprint(c, " ", len(p.conv(c).Seqs)))
		}
		return n, strings.Join(each, ", ")
	}
	for _, c := range p.list(3) {
		if n, _ := got(); n < budget && c.Head > p.conv(c.Conv).Cursor {
			p.page(c.Conv, p.conv(c.Conv).Cursor, budget-n)
		}
	}
	_, first := got()
	p.save()
	p.crash()
	p.dial(g)
	for _, c := range p.list(3) {
		if c.Head > p.conv(c.Conv).Cursor {
			p.catchUp(c.Conv)
		}
	}
	_, rest := got()
	twice := "none twice"
	for _, c := range convs {
		if seqs := p.conv(c).Seqs; len(slices.Compact(slices.Sorted(slices.Values(seqs)))) < len(seqs) {
			twice = c + " some twice"
		}
	}
	return fmt.Sprintf("after %d events: %s; after the rest: %s, %s", budget, first, rest, twice)
}

// list is the conversation list, read in pages.
func (p *phone) list(limit int) (all []wire.ConvState) {
	p.t.Helper()
	for after, more := "", true; more; {
		f := p.c.ask(wire.Request{T: wire.TConvs, AfterID: after, Limit: limit})
		if f.T != wire.TConvlist {
			p.t.Fatalf("convs: %+v", f)
		}
		all, after, more = append(all, f.Convs...), f.Next, f.More
	}
	return all
}

// epochChanged has a device that knows epoch 1 speak of a conversation that is in epoch 2. known is what it states.
func epochChanged(t *testing.T, known int32) string {
	d := withDirect(t)
	d.fill(as("u-ana"), "u-ab", "k", 5)
	if epoch, err := d.RaiseEpoch(t.Context(), "u-ab"); err != nil || epoch != 2 {
		t.Fatal(epoch, err)
	}
	c := d.gateway(gatewayOptions{}).connect(as("u-ben"))
	var seen string
	for _, r := range []wire.Request{{T: wire.TAck, Seq: 7}, {T: wire.TRead, Seq: 7}, {T: wire.TSync, After: 2}} {
		r.Conv, r.Epoch = "u-ab", known
		result := "accepted"
		if f := c.ask(r); f.T == wire.TError {
			result = string(f.Code)
		}
		seen += fmt.Sprintf("%s %s, ", r.T, result)
	}
	seen += "cursor " + d.delivered(as("u-ben"), "u-ab")
	page := c.ask(wire.Request{T: wire.TSync, Conv: "u-ab", Epoch: 2})
	acked := c.ask(wire.Request{T: wire.TAck, Conv: "u-ab", Epoch: 2, Seq: 7})
	return fmt.Sprintf("%s; from 0 in epoch %d: %d events, delivered %d", seen, page.Epoch, len(page.Events), acked.Delivered)
}

// sameMillisecond sends 20 messages in one transaction, which gives them one time, and reads them in an order.
func sameMillisecond(t *testing.T, order string) string {
	d := withDirect(t)
	d.fill(as("u-ana"), "u-ab", "k", 20)
	times := d.text(`SELECT count(DISTINCT created_at) FROM events WHERE kind = 'msg'`)
	read := d.text(`SELECT string_agg(client_msg_id, ' ' ORDER BY ` + order + `) FROM events WHERE kind = 'msg'`)
	sent := d.text(`SELECT string_agg('k' || n, ' ' ORDER BY n) FROM generate_series(1, 20) n`)
	how := "in the order in which they were sent"
	if read != sent {
		how = "in another order than they were sent"
	}
	return fmt.Sprintf("%s messages, %s time, %s", d.messages("u-ab"), times, how)
}

// orderByTime is the naive log, ordered by the time of the transaction: one that began first commits last, and a reader
// that has gone on to the time of the other never sees it.
func orderByTime(t *testing.T) string {
	d := newDatabase(t)
	d.exec(`CREATE TABLE naive (n integer, created_at timestamptz DEFAULT now())`)
	ctx := t.Context()
	tx, err := d.Pool().Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(ctx, `INSERT INTO naive VALUES (1)`); err != nil {
		t.Fatal(err)
	}
	d.exec(`INSERT INTO naive VALUES (2)`)
	var got []int64
	last := "-infinity"
	read := func() {
		rows, err := d.Pool().Query(ctx, `SELECT n, created_at::text FROM naive WHERE created_at > $1::text::timestamptz ORDER BY created_at`, last)
		if err != nil {
			t.Fatal(err)
		}
		var n int64
		if _, err := pgx.ForEachRow(rows, []any{&n, &last}, func() error { got = append(got, n); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	read()
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	read()
	return byReader(d.text(`SELECT count(*) FROM naive`), "time", got)
}

// orderBySeq is the same with the Store: the second sender waits for the first, which has the lock.
func orderBySeq(t *testing.T) string {
	d := withDirect(t)
	ctx := t.Context()
	tx, err := d.Pool().Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(ctx, rawSend); err != nil {
		t.Fatal(err)
	}
	second := make(chan im.SendResult, 1)
	go func() { second <- d.send(as("u-ben"), "u-ab", "k2", "x") }()
	var got []int64
	after := int64(2)
	read := func() {
		page, err := d.Sync(ctx, im.SyncReq{From: as("u-ana"), Conv: "u-ab", After: after})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page.Events {
			got = append(got, e.Seq)
		}
		after = page.NextAfter
	}
	read()
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if r := <-second; r.Err != nil {
		return r.Err.Error()
	}
	read()
	return byReader(d.messages("u-ab"), "seq", got)
}

func byReader(committed, by string, got []int64) string {
	lost := "none is lost"
	if len(got) < 2 {
		lost = "one is lost"
	}
	return fmt.Sprintf("%s events committed, a reader by %s got %v: %s", committed, by, got, lost)
}

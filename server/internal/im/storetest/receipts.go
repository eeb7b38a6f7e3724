package storetest

import (
	"imbench/server/internal/im"
)

func (e *env) wantReceipts(p im.Principal, conv string, seq int64, want im.Receipts) {
	e.Helper()
	want.Conv, want.Seq = conv, seq
	if r, err := e.Receipts(e.ctx, p, conv, seq); err != nil || r != want {
		e.Fatalf("receipts of %d: %+v, %v, want %+v", seq, r, err, want)
	}
}

// seenByN: three members have six devices; the sender's other device is to get the message too.
func seenByN(e *env) {
	e.setup("g1", []string{"u-ana", "u-ben", "u-cyn", "u-dan"}, 3)
	e.talk(ana, "g1", 2) // 4, 5
	e.wantReceipts(ana, "g1", 4, im.Receipts{Devices: 5, Users: 2})
	e.wantAck(ben, "g1", 4, 4)
	e.wantAck(ana, "g1", 5, 5) // the sending device: not counted
	e.wantAck(im.Principal{User: "u-ana", Device: "u-ana-d2", Install: 1}, "g1", 3, 3)
	e.read(ben, "g1", 4)
	e.wantReceipts(ana, "g1", 4, im.Receipts{Devices: 5, Delivered: 1, Users: 2, Read: 1})
	e.wantReceipts(cyn, "g1", 5, im.Receipts{Devices: 5, Users: 2})
	e.talk(cyn, "g1", 1) // 6: having answered is having read
	e.wantReceipts(ben, "g1", 5, im.Receipts{Devices: 5, Users: 2, Read: 1})
	e.wantReceipts(ana, "g1", 4, im.Receipts{Devices: 5, Delivered: 1, Users: 2, Read: 2})

	// Who joins later is not asked for; who leaves later still is, and may still have it.
	_, err := e.Join(e.ctx, ana, "g1", "u-dan") // 7
	e.must(err)
	_, err = e.Leave(e.ctx, ana, "g1", "u-ben") // 8
	e.must(err)
	e.talk(ana, "g1", 1) // 9
	e.wantAck(im.Principal{User: "u-ben", Device: "u-ben-d2", Install: 1}, "g1", 8, 8)
	e.wantReceipts(ben, "g1", 4, im.Receipts{Devices: 5, Delivered: 2, Users: 2, Read: 2})
	e.wantReceipts(user("u-dan"), "g1", 9, im.Receipts{Devices: 5, Users: 2})

	// A recalled message has been seen all the same.
	e.wantRecall(ana, "g1", 4, "r", 10, false)
	e.wantReceipts(ana, "g1", 4, im.Receipts{Devices: 5, Delivered: 2, Users: 2, Read: 2})
}

// receiptsInstalls: what an older installation, or the older log, had saved says nothing of what there is now.
func receiptsInstalls(e *env) {
	e.direct()
	e.talk(ana, "c1", 1) // 3
	e.wantAck(ben, "c1", 3, 3)
	e.wantReceipts(ana, "c1", 3, im.Receipts{Devices: 3, Delivered: 1, Users: 1})
	claims, err := e.ClaimRoutes(e.ctx, []im.RouteClaim{{User: "u-ben", Device: "u-ben-d1", Install: 2, Gateway: "g1", Conn: 1}})
	e.must(err)
	e.must(claims[0].Err)
	e.wantReceipts(ana, "c1", 3, im.Receipts{Devices: 3, Users: 1})
	fresh := ben
	fresh.Install = 2
	e.wantAck(fresh, "c1", 3, 3)
	e.wantReceipts(ana, "c1", 3, im.Receipts{Devices: 3, Delivered: 1, Users: 1})
	_, err = e.RaiseEpoch(e.ctx, "c1")
	e.must(err)
	e.wantReceipts(ana, "c1", 3, im.Receipts{Devices: 3, Users: 1})
}

// fetchOutcomes holds what Fetch and Receipts say of a seq that they do not serve, and that both say the same.
func fetchOutcomes(e *env) {
	e.setup("g1", []string{"u-ana", "u-ben", "u-cyn", "u-dan"}, 2)
	e.talk(ana, "g1", 6)                         // 3..8
	_, err := e.Leave(e.ctx, ana, "g1", "u-ben") // 9
	e.must(err)
	e.talk(ana, "g1", 2)                       // 10, 11
	_, err = e.Join(e.ctx, ana, "g1", "u-cyn") // 12
	e.must(err)
	e.talk(cyn, "g1", 1)                        // 13
	_, err = e.Leave(e.ctx, ana, "g1", "u-cyn") // 14
	e.must(err)
	_, err = e.Join(e.ctx, ana, "g1", "u-cyn") // 15
	e.must(err)
	e.talk(ana, "g1", 1) // 16
	e.must(e.SetRetention(e.ctx, "g1", 1e9))
	e.must(e.Age(e.ctx, "g1", 1e10))
	r, err := e.Retain(e.ctx, 4, 1e12)
	if e.must(err); r.Events != 4 { // 1..4
		e.Fatalf("%+v", r)
	}
	dan := user("u-dan")
	for _, c := range []struct {
		p    im.Principal
		conv string
		seq  int64
		want error
	}{
		{ana, "g1", 5, nil}, {ana, "g1", 16, nil}, {ana, "g1", 17, im.ErrCursorAhead}, {ana, "g1", 4, im.ErrExpired},
		{ana, "g1", 1, im.ErrExpired}, {ana, "g1", 0, im.ErrBadRequest}, {ana, "g1", -1, im.ErrBadRequest},
		{ana, "g1", 1 << 62, im.ErrCursorAhead}, {ana, "g\x00", 1, im.ErrBadRequest},
		{ben, "g1", 8, nil}, {ben, "g1", 3, im.ErrExpired}, {ben, "g1", 1, im.ErrNotMember},
		{ben, "g1", 10, im.ErrCursorAhead}, {ben, "g1", 99, im.ErrCursorAhead}, // one who left is told of no later head
		{cyn, "g1", 11, im.ErrNotMember}, {cyn, "g1", 4, im.ErrNotMember}, {cyn, "g1", 13, nil}, {cyn, "g1", 16, nil},
		{dan, "g1", 5, im.ErrNotMember}, {dan, "g1", 99, im.ErrNotMember}, {dan, "none", 1, im.ErrNotMember},
	} {
		ev, err := e.Fetch(e.ctx, c.p, c.conv, c.seq)
		e.wantErr(err, c.want)
		_, rerr := e.Receipts(e.ctx, c.p, c.conv, c.seq)
		e.wantErr(rerr, c.want)
		if c.want == nil && (ev.Conv != "g1" || ev.Seq != c.seq || ev.Kind != im.KindMsg || ev.Body != "x" || ev.Epoch != 1) {
			e.Errorf("%d: %+v", c.seq, ev)
		}
	}
	if ev, err := e.Fetch(e.ctx, ben, "g1", 9); err != nil || ev.Kind != im.KindLeave || ev.User != "u-ben" {
		e.Errorf("the own leave: %+v, %v", ev, err)
	}
	_, err = e.Receipts(e.ctx, ben, "g1", 9)
	e.wantErr(err, im.ErrBadRequest) // no message
}

func fetchRecalled(e *env) {
	e.direct()
	sent := e.send(ana, "c1", "k1", "secret") // 3
	e.wantRecall(ana, "c1", 3, "r", 4, false)
	ev, err := e.Fetch(e.ctx, ben, "c1", 3)
	if e.must(err); ev.Body != "" || ev.Kind != im.KindMsg || ev.MID != sent.MID {
		e.Fatalf("the recalled message: %+v", ev)
	}
	ev, err = e.Fetch(e.ctx, ben, "c1", 4)
	if e.must(err); ev.Kind != im.KindRecall || ev.Target != 3 {
		e.Fatalf("the recall: %+v", ev)
	}
	page, err := e.Before(e.ctx, ben, "c1", 0, 10)
	if e.must(err); len(page.Events) != 3 || page.Events[1].Body != "" || page.Events[1].MID != sent.MID {
		e.Fatalf("history: %+v", page)
	}
	list, _, err := e.Inbox(e.ctx, ben, "", 0)
	if e.must(err); list[0].Last == nil || list[0].Last.Kind != im.KindRecall || list[0].Last.Body != "" {
		e.Fatalf("the inbox: %+v", list[0])
	}
}

package storetest

import (
	"imbench/server/internal/im"
)

func epochChanged(e *env) {
	e.direct()
	e.fill(ana, "c1", 5) // 3..7
	e.wantAck(ben, "c1", 7, 7)
	epoch, err := e.RaiseEpoch(e.ctx, "c1")
	if e.must(err); epoch != 2 {
		e.Fatalf("epoch %d, want 2", epoch)
	}
	ack := func(seq int64, epoch int32) im.AckResult {
		res, err := e.AckBatch(e.ctx, []im.AckReq{{From: ben, Conv: "c1", Seq: seq, Epoch: epoch}})
		e.must(err)
		return res[0]
	}
	sync := func(epoch int32) (im.Page, error) {
		return e.Sync(e.ctx, im.SyncReq{From: ben, Conv: "c1", Epoch: epoch})
	}
	// Whoever states the old epoch is told, and changes nothing.
	e.wantErr(ack(7, 1).Err, im.ErrEpochChanged)
	reads, err := e.ReadBatch(e.ctx, []im.ReadReq{{From: ben, Conv: "c1", Seq: 7, Epoch: 1}, {From: ben, Conv: "c1", Seq: 4, Epoch: 2}})
	e.must(err)
	if e.wantErr(reads[0].Err, im.ErrEpochChanged); reads[1].Err != nil || reads[1].Read != 4 || reads[1].Unread != 3 {
		e.Fatalf("a read of the new epoch: %+v", reads[1])
	}
	_, err = sync(1)
	e.wantErr(err, im.ErrEpochChanged)
	_, err = sync(3)
	e.wantErr(err, im.ErrEpochChanged)
	list, _, err := e.Convs(e.ctx, ben, "", 0)
	if e.must(err); list[0].Epoch != 2 || list[0].Delivered != 0 {
		e.Fatalf("the list: %+v, want nothing delivered of the new epoch", list[0])
	}
	page, err := sync(2)
	if e.must(err); page.Epoch != 2 || len(page.Events) != 6 || page.Events[0].Epoch != 2 {
		e.Fatalf("a sync of the new epoch: %+v", page)
	}
	// The cursor of the new epoch replaces the old one, smaller as it is, and does not go back from there.
	if r := ack(4, 2); r.Err != nil || r.Delivered != 4 {
		e.Fatalf("ack: %+v", r)
	}
	if r := ack(3, 2); r.Err != nil || r.Delivered != 4 {
		e.Fatalf("an earlier ack: %+v", r)
	}
	e.wantErr(ack(7, 1).Err, im.ErrEpochChanged)
	if r := e.send(ana, "c1", "new", "x"); r.Seq != 8 || r.Epoch != 2 {
		e.Fatalf("sent: %+v", r)
	}
	if r := e.send(ana, "c1", "fill-0", "body 0"); !r.Dup || r.Seq != 3 {
		e.Fatalf("a key is known as before: %+v", r)
	}
	_, err = e.RaiseEpoch(e.ctx, "none")
	e.wantErr(err, im.ErrNotMember)
	_, err = e.RaiseEpoch(e.ctx, "c\x00")
	e.wantErr(err, im.ErrNotMember)
}

func restoreRaisesEpoch(e *env) {
	e.provision([]string{"u-ana", "u-ben"}, Conv{"c1", "direct", im.Push, []string{"u-ana", "u-ben"}},
		Conv{"c2", "group", im.Pull, []string{"u-ana"}}, Conv{"c3", "group", im.Push, []string{"u-ben", "u-ana"}})
	e.fill(ana, "c1", 3)
	_, err := e.RaiseEpoch(e.ctx, "c3")
	e.must(err)
	told := int64(0)
	n, err := e.RaiseAllEpochs(e.ctx, func(done int64) { told = done })
	if e.must(err); n != 3 || told != 3 {
		e.Fatalf("%d raised, %d told, want 3", n, told)
	}
	list, _, err := e.Convs(e.ctx, ana, "", 0)
	e.must(err)
	for i, want := range []int32{2, 2, 3} {
		if list[i].Epoch != want || list[i].Delivered != 0 {
			e.Errorf("%+v, want epoch %d and nothing delivered", list[i], want)
		}
	}
	// Logs, numbers and keys are as they were.
	e.wantHistory(ana, "c1", "join@1 join@2 msg@3 msg@4 msg@5")
	if r := e.send(ana, "c1", "fill-2", "body 2"); !r.Dup || r.Seq != 5 {
		e.Errorf("sent again: %+v", r)
	}
	if r := e.send(ben, "c1", "k", "x"); r.Seq != 6 || r.Epoch != 2 {
		e.Errorf("sent: %+v", r)
	}
	if n, err = e.RaiseAllEpochs(e.ctx, func(int64) {}); err != nil || n != 3 {
		e.Errorf("another restore: %d, %v", n, err)
	}
	if list, _, err = e.Convs(e.ctx, ana, "", 0); err != nil || list[0].Epoch != 3 {
		e.Errorf("%+v, %v", list, err)
	}
}

// restoredBackup is a device that was set back to an older state of itself: same installation, smaller cursor, pending
// sends that had been sent. It catches up, and moves nothing back (M5).
func restoredBackup(e *env) {
	e.direct()
	e.send(ben, "c1", "pending", "mine") // 3
	e.fill(ana, "c1", 4)                 // 4..7
	e.wantAck(ben, "c1", 7, 7)
	read := func(seq, want int64) {
		e.Helper()
		res, err := e.ReadBatch(e.ctx, []im.ReadReq{{From: ben, Conv: "c1", Seq: seq}})
		if e.must(err); res[0].Err != nil || res[0].Read != want {
			e.Fatalf("read up to %d: %+v, want %d", seq, res[0], want)
		}
	}
	read(6, 6)
	claims, err := e.ClaimRoutes(e.ctx, []im.RouteClaim{{User: "u-ben", Device: "u-ben-d1", Install: 1, Gateway: "g1", Conn: 1}})
	e.must(err)
	e.must(claims[0].Err)

	// The backup knew of 2, and held the message as pending.
	if r := e.send(ben, "c1", "pending", "mine"); !r.Dup || r.Seq != 3 {
		e.Fatalf("the pending message: %+v", r)
	}
	e.wantAck(ben, "c1", 2, 7)
	e.wantAck(ben, "c1", 3, 7)
	read(3, 6)
	list, _, err := e.Convs(e.ctx, ben, "", 0)
	if e.must(err); list[0].Delivered != 7 {
		e.Fatalf("the list: %+v", list[0])
	}
	if page := e.page(ben, "c1", 3, 100); show(page.Events) != "msg@4 msg@5 msg@6 msg@7" || page.NextAfter != 7 {
		e.Fatalf("what it lacks: %+v", page)
	}
	e.wantAck(ben, "c1", 7, 7)
	e.wantHead("c1", 7)
}

package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"

	"imbench/server/internal/im"
)

func contextDone(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(parent)
	cancel()
	return ctx, func() {}
}

func (e *env) ack(p im.Principal, conv string, seq int64) im.AckResult {
	e.Helper()
	res, err := e.AckBatch(e.ctx, []im.AckReq{{From: p, Conv: conv, Seq: seq}})
	e.must(err)
	return res[0]
}

func (e *env) wantAck(p im.Principal, conv string, seq, want int64) {
	e.Helper()
	r := e.ack(p, conv, seq)
	if e.must(r.Err); r.Delivered != want {
		e.Fatalf("ack of %d: delivered %d, want %d", seq, r.Delivered, want)
	}
}

func ackAdvances(e *env) {
	e.direct()
	e.send(ana, "c1", "k1", "x")
	e.wantAck(ben, "c1", 3, 3)
	list, _, err := e.Convs(e.ctx, ben, "", 0)
	e.must(err)
	if len(list) != 1 || list[0].Delivered != 3 {
		e.Fatalf("the list says %+v", list)
	}
	// Delivered is a device's, not a user's.
	other := im.Principal{User: "u-ben", Device: "u-ben-d2", Install: 1}
	list, _, err = e.Convs(e.ctx, other, "", 0)
	e.must(err)
	if list[0].Delivered != 2 {
		e.Fatalf("the other device: %+v", list[0])
	}
}

func ackMonotonicAndBounded(e *env) {
	e.direct()
	e.fill(ana, "c1", 5)
	e.wantAck(ben, "c1", 7, 7)
	e.wantAck(ben, "c1", 1, 7)
	e.wantErr(e.ack(ben, "c1", 107).Err, im.ErrCursorAhead)
	e.wantErr(e.ack(ben, "c1", 8).Err, im.ErrCursorAhead)
	e.wantErr(e.ack(ben, "c1", -1).Err, im.ErrBadRequest)
	e.wantAck(ben, "c1", 7, 7)
}

func ackMerges(e *env) {
	e.direct()
	e.fill(ana, "c1", 5)
	res, err := e.AckBatch(e.ctx, []im.AckReq{
		{From: ben, Conv: "c1", Seq: 4}, {From: ben, Conv: "c1", Seq: 6}, {From: ana, Conv: "c1", Seq: 3},
		{From: ben, Conv: "c1", Seq: 99}, {From: ben, Conv: "c1", Seq: 5},
	})
	e.must(err)
	// The refused 99 takes nothing from the others, which are merged to 6.
	for i, want := range []int64{6, 6, 3, 0, 6} {
		if i == 3 {
			e.wantErr(res[i].Err, im.ErrCursorAhead)
		} else if e.must(res[i].Err); res[i].Delivered != want {
			e.Errorf("request %d: delivered %d, want %d", i, res[i].Delivered, want)
		}
	}
}

func ackOutcomes(e *env) {
	e.direct()
	wrongUser := im.Principal{User: "u-ana", Device: "u-ben-d1", Install: 1}
	res, err := e.AckBatch(e.ctx, []im.AckReq{
		{From: ana, Conv: "c1", Seq: 2}, {From: cyn, Conv: "c1", Seq: 1}, {From: ana, Conv: "none", Seq: 1},
		{From: ben, Conv: "c1", Seq: 2, Epoch: 2}, {From: wrongUser, Conv: "c1", Seq: 1},
		{From: im.Principal{User: "u-ben", Device: "u-ben-d2", Install: 0}, Conv: "c1", Seq: 1},
		{From: ana, Conv: "bad\x00", Seq: 1},
		{From: ben, Conv: "c1", Seq: 2, Epoch: 1},
	})
	e.must(err)
	for i, want := range []error{nil, im.ErrNotMember, im.ErrNotMember, im.ErrEpochChanged, im.ErrNotMember, im.ErrStaleInstall, im.ErrBadRequest, nil} {
		if want == nil {
			e.must(res[i].Err)
		} else {
			e.wantErr(res[i].Err, want)
		}
	}
}

// ackTold: what is vouched for ends like any acknowledgement, whatever the cursor was before.
func ackTold(e *env) {
	e.direct()
	e.fill(ana, "c1", 5) // 3..7
	other := im.Principal{User: "u-ben", Device: "u-ben-d2", Install: 1}
	batch := func(want string, reqs ...im.AckReq) {
		e.Helper()
		for i := range reqs {
			reqs[i].Conv = "c1"
		}
		res, err := e.AckBatch(e.ctx, reqs)
		e.must(err)
		got := ""
		for _, r := range res {
			got += fmt.Sprintln(r.Delivered, r.Err)
		}
		if got != want {
			e.Errorf("got\n%swant\n%s", got, want)
		}
	}
	batch("4 <nil>\n3 <nil>\n", im.AckReq{From: ben, Seq: 4, Epoch: 1, Told: true}, im.AckReq{From: other, Seq: 3, Epoch: 1, Told: true}) // no cursor yet
	batch("6 <nil>\n5 <nil>\n5 <nil>\n", im.AckReq{From: ben, Seq: 6, Epoch: 1, Told: true}, im.AckReq{From: other, Seq: 5, Epoch: 1},
		im.AckReq{From: other, Seq: 4, Epoch: 1, Told: true})
	batch("6 <nil>\n", im.AckReq{From: ben, Seq: 2, Epoch: 1, Told: true})
	batch("7 <nil>\n0 "+im.ErrCursorAhead.Error()+"\n", im.AckReq{From: ben, Seq: 7, Epoch: 1, Told: true}, im.AckReq{From: ben, Seq: 8, Epoch: 1})
	if _, err := e.RaiseEpoch(e.ctx, "c1"); err != nil {
		e.Fatal(err)
	}
	batch("3 <nil>\n", im.AckReq{From: ben, Seq: 3, Epoch: 2, Told: true}) // begins in the new epoch
	batch("5 <nil>\n", im.AckReq{From: ben, Seq: 5, Epoch: 2, Told: true})
	list, _, err := e.Convs(e.ctx, ben, "", 0)
	if e.must(err); list[0].Delivered != 5 {
		e.Errorf("the list says %+v", list[0])
	}
}

func ackConcurrently(e *env) {
	e.direct()
	e.fill(ana, "c1", 100)
	e.parallel(8, func(w int) {
		r := rand.New(rand.NewPCG(1, uint64(w)))
		for range 20 {
			res, err := e.AckBatch(e.ctx, []im.AckReq{{From: ben, Conv: "c1", Seq: 3 + r.Int64N(99)}, {From: ana, Conv: "c1", Seq: 3 + r.Int64N(99)}})
			if err != nil || res[0].Err != nil || res[1].Err != nil {
				e.Errorf("%v, %+v", err, res)
			}
		}
		if res, err := e.AckBatch(e.ctx, []im.AckReq{{From: ben, Conv: "c1", Seq: 102 - int64(w)}}); err != nil || res[0].Err != nil {
			e.Errorf("%v, %+v", err, res)
		}
	})
	e.wantAck(ben, "c1", 0, 102)
}

func reinstallStaleAck(e *env) {
	e.direct()
	e.fill(ana, "c1", 5)
	e.wantAck(ben, "c1", 7, 7)
	fresh := ben
	fresh.Install = 2
	claims, err := e.ClaimRoutes(e.ctx, []im.RouteClaim{{User: "u-ben", Device: "u-ben-d1", Install: 2, Gateway: "g1", Conn: 1}})
	e.must(err)
	e.must(claims[0].Err)
	e.wantErr(e.ack(ben, "c1", 7).Err, im.ErrStaleInstall)
	// The new installation has nothing yet, and its cursor replaces the old one, smaller as it is.
	list, _, err := e.Convs(e.ctx, fresh, "", 0)
	e.must(err)
	if list[0].Delivered != 0 {
		e.Fatalf("a new installation starts at %d", list[0].Delivered)
	}
	e.wantAck(fresh, "c1", 3, 3)
	e.wantAck(fresh, "c1", 2, 3)
	// Both in one batch: each has its own outcome.
	res, err := e.AckBatch(e.ctx, []im.AckReq{{From: ben, Conv: "c1", Seq: 7}, {From: fresh, Conv: "c1", Seq: 4}})
	e.must(err)
	e.wantErr(res[0].Err, im.ErrStaleInstall)
	if e.must(res[1].Err); res[1].Delivered != 4 {
		e.Fatalf("delivered %d, want 4", res[1].Delivered)
	}
}

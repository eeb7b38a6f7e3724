package storetest

import (
	"fmt"
	"slices"
	"sync"

	"imbench/server/internal/im"
)

var ana, ben, cyn = user("u-ana"), user("u-ben"), user("u-cyn")

func (e *env) direct() {
	e.Helper()
	e.provision([]string{"u-ana", "u-ben", "u-cyn"}, Conv{"c1", "direct", im.Push, []string{"u-ana", "u-ben"}})
}

func normalHistory(e *env) {
	e.direct()
	e.wantHead("c1", 2)
	r := e.send(ana, "c1", "k1", "hello")
	if r.Seq != 3 || r.MsgNo != 1 || r.Dup || r.Epoch != 1 || len(r.MID) != 36 || r.At.IsZero() {
		e.Fatalf("first message: %+v", r)
	}
	e.wantHistory(ana, "c1", "join@1 join@2 msg@3")
	e.wantHistory(ben, "c1", "join@2 msg@3")
	got := e.history(ben, "c1", 10)[1]
	if got.Conv != "c1" || got.MID != r.MID || got.Sender != "u-ana" || got.SenderDevice != "u-ana-d1" || got.CMID != "k1" ||
		got.Body != "hello" || got.MsgNo != 1 || got.Epoch != 1 || !got.At.Equal(r.At) {
		e.Fatalf("the event as read: %+v, the result: %+v", got, r)
	}
}

func nonMemberRejected(e *env) {
	e.direct()
	e.send(ana, "c1", "k1", "hello")
	e.wantErr(e.trySend(msg(cyn, "c1", "k2", "let me in")).Err, im.ErrNotMember)
	e.wantHead("c1", 3)
	_, err := e.Sync(e.ctx, im.SyncReq{From: cyn, Conv: "c1"})
	e.wantErr(err, im.ErrNotMember)
}

func unknownConvSameError(e *env) {
	e.direct()
	e.wantErr(e.trySend(msg(cyn, "no-such", "k", "x")).Err, im.ErrNotMember)
	_, err := e.Sync(e.ctx, im.SyncReq{From: cyn, Conv: "no-such"})
	e.wantErr(err, im.ErrNotMember)
	res, err := e.AckBatch(e.ctx, []im.AckReq{{From: cyn, Conv: "no-such", Seq: 1}, {From: cyn, Conv: "c1", Seq: 1}})
	e.must(err)
	for _, r := range res {
		e.wantErr(r.Err, im.ErrNotMember)
	}
	_, err = e.Join(e.ctx, cyn, "no-such", "u-cyn")
	e.wantErr(err, im.ErrNotMember)
}

func idempotencyMismatch(e *env) {
	e.direct()
	first := e.send(ana, "c1", "k1", "hello")
	e.wantErr(e.trySend(msg(ana, "c1", "k1", "another body")).Err, im.ErrIdempotencyMismatch)
	again := e.send(ana, "c1", "k1", "hello")
	if !again.Dup || again.Seq != first.Seq || again.MID != first.MID || again.MsgNo != first.MsgNo || !again.At.Equal(first.At) {
		e.Fatalf("replay %+v of %+v", again, first)
	}
	e.wantHead("c1", 3)
}

func concurrentReplayOneRow(e *env) {
	e.direct()
	results := make([]im.SendResult, 32)
	e.parallel(32, func(i int) { results[i] = e.trySend(msg(ana, "c1", "k1", "hello")) })
	fresh := 0
	for _, r := range results {
		e.must(r.Err)
		if r.Seq != results[0].Seq || r.MID != results[0].MID {
			e.Fatalf("two outcomes of one key: %+v and %+v", r, results[0])
		}
		if !r.Dup {
			fresh++
		}
	}
	if rows := len(e.log("c1")) - 2; rows != 1 || fresh != 1 {
		e.Fatalf("%d rows, %d results with dup=false, want 1 and 1", rows, fresh)
	}
}

// parallel runs n calls at once and waits for them.
func (e *env) parallel(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

func seqGapless(e *env) {
	users := []string{"u-ana", "u-ben", "u-cyn", "u-dan"}
	e.setup("g1", users, 4)
	e.parallel(200, func(i int) {
		if r := e.trySend(msg(user(users[i%4]), "g1", fmt.Sprintf("k%d", i), "x")); r.Err != nil {
			e.Error(r.Err)
		}
	})
	evs := e.log("g1")
	if len(evs) != 204 {
		e.Fatalf("%d events, want 204", len(evs))
	}
	for i, ev := range evs {
		if ev.Seq != int64(i+1) || ev.MsgNo != int64(max(0, i-3)) {
			e.Fatalf("event %d has seq %d, msg_no %d", i, ev.Seq, ev.MsgNo)
		}
	}
	e.wantHead("g1", 204)
}

func batchIsolates(e *env) {
	e.direct()
	e.send(ana, "c1", "used", "hello")
	res, err := e.SendBatch(e.ctx, []im.SendReq{
		msg(ana, "c1", "k1", "one"),
		msg(cyn, "c1", "k2", "not a member"),
		msg(ana, "c1", "k3", "NUL \x00"),
		msg(ana, "c1", "k4", "not UTF-8 \xff"),
		msg(ana, "no-such", "k5", "x"),
		msg(ana, "c1", "used", "mismatch"),
		msg(ben, "c1", "k6", "two"),
	}, false)
	e.must(err)
	for i, want := range []error{nil, im.ErrNotMember, im.ErrBadRequest, im.ErrBadRequest, im.ErrNotMember, im.ErrIdempotencyMismatch, nil} {
		if want == nil {
			e.must(res[i].Err)
		} else {
			e.wantErr(res[i].Err, want)
		}
	}
	if res[0].Seq != 4 || res[6].Seq != 5 {
		e.Fatalf("seqs %d and %d, want 4 and 5: in the order of the batch", res[0].Seq, res[6].Seq)
	}
	e.wantHead("c1", 5)
}

func lockedConversationIsolated(e *env) {
	e.provision([]string{"u-ana", "u-ben"},
		Conv{"c1", "direct", im.Push, []string{"u-ana", "u-ben"}}, Conv{"c2", "group", im.Push, []string{"u-ana", "u-ben"}})
	e.send(ana, "c1", "old", "x")
	release, err := e.Lock(e.ctx, "c1")
	e.must(err)
	reqs := []im.SendReq{msg(ana, "c1", "k1", "x"), msg(ana, "c2", "k2", "x"), msg(ana, "c1", "old", "x"), msg(ben, "c2", "k3", "x")}
	res, err := e.SendBatch(e.ctx, reqs, false)
	e.must(err)
	for i, want := range []error{im.ErrBusy, nil, im.ErrBusy, nil} {
		if res[i].Err != want {
			e.Errorf("request %d: %v, want %v", i, res[i].Err, want)
		}
	}
	e.wantHead("c1", 3)
	e.wantHead("c2", 4)

	// With wait it ends at the lock timeout, again without a trace.
	res, err = e.SendBatch(e.ctx, reqs[:1], true)
	e.must(err)
	if res[0].Err != im.ErrBusy {
		e.Errorf("waiting for the lock: %v, want busy", res[0].Err)
	}
	release()
	if r := e.send(ana, "c1", "k1", "x"); r.Seq != 4 || r.Dup {
		e.Errorf("after the lock was free: %+v", r)
	}
}

func sameKeyTwice(e *env) {
	e.direct()
	res, err := e.SendBatch(e.ctx, []im.SendReq{
		msg(ana, "c1", "k1", "x"), msg(ana, "c1", "k2", "y"), msg(ana, "c1", "k1", "x"), msg(ana, "c1", "k1", "other"),
	}, false)
	e.must(err)
	if res[0].Err != nil || res[0].Dup || res[2].Err != nil || !res[2].Dup || res[2].Seq != res[0].Seq || res[2].MID != res[0].MID || res[1].Seq != 4 {
		e.Fatalf("results %+v", res)
	}
	e.wantErr(res[3].Err, im.ErrIdempotencyMismatch)
	e.wantHead("c1", 4)
}

func oneKeyTwoSenders(e *env) {
	e.direct()
	a, b := e.send(ana, "c1", "k1", "x"), e.send(ben, "c1", "k1", "y")
	if a.Dup || b.Dup || a.Seq == b.Seq {
		e.Fatalf("a key belongs to its sender: %+v, %+v", a, b)
	}
}

func sendTimesRise(e *env) {
	e.direct()
	e.fill(ana, "c1", 100)
	evs := e.log("c1")
	if !slices.IsSortedFunc(evs[2:], func(a, b im.Event) int { return a.At.Compare(b.At) }) {
		e.Fatal("times do not rise with seq")
	}
}

func unavailable(e *env) {
	e.direct()
	ctx, cancel := contextDone(e.ctx)
	defer cancel()
	_, err := e.SendBatch(ctx, []im.SendReq{msg(ana, "c1", "k1", "x")}, false)
	e.wantErr(err, im.ErrUnavailable)
	_, err = e.AckBatch(ctx, []im.AckReq{{From: ana, Conv: "c1", Seq: 1}})
	e.wantErr(err, im.ErrUnavailable)
	_, err = e.Sync(ctx, im.SyncReq{From: ana, Conv: "c1"})
	e.wantErr(err, im.ErrUnavailable)
	_, err = e.ClaimRoutes(ctx, []im.RouteClaim{{User: "u-ana", Device: "u-ana-d1", Install: 1, Gateway: "g"}})
	e.wantErr(err, im.ErrUnavailable)
	_, err = e.BeginLease(ctx, "g", "", 1e9)
	e.wantErr(err, im.ErrUnavailable)
	_, err = e.RenewLease(ctx, "g", "1", 1e9)
	e.wantErr(err, im.ErrUnavailable)
	_, err = e.AssertRoutes(ctx, "g", nil)
	e.wantErr(err, im.ErrUnavailable)
	_, err = e.Events(ctx, []im.SeqRange{{Conv: "c1", From: 1, To: 2}})
	e.wantErr(err, im.ErrUnavailable)
}

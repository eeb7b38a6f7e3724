package storetest

import (
	"errors"
	"fmt"
	"time"

	"imbench/server/internal/im"
)

func (e *env) recall(p im.Principal, conv string, seq int64, cmid string) im.SendResult {
	return e.Recall(e.ctx, im.RecallReq{From: p, Conv: conv, Seq: seq, CMID: cmid})
}

// wantRecall wants the recall of seq to be the event at.
func (e *env) wantRecall(p im.Principal, conv string, seq int64, cmid string, at int64, dup bool) im.SendResult {
	e.Helper()
	r := e.recall(p, conv, seq, cmid)
	if e.must(r.Err); r.Seq != at || r.Dup != dup || r.MID != "" || r.Epoch != 1 || r.At.IsZero() {
		e.Fatalf("recall of %d: %+v, want it at %d, dup %v", seq, r, at, dup)
	}
	return r
}

func recallWindow(e *env) {
	e.direct()
	e.send(ana, "c1", "k1", "in time") // 3
	e.send(ana, "c1", "k2", "too late")
	e.must(e.Age(e.ctx, "c1", time.Minute))
	e.wantRecall(ana, "c1", 3, "r1", 5, false)
	e.must(e.Age(e.ctx, "c1", 2*time.Minute))
	e.wantErr(e.recall(ana, "c1", 4, "r2").Err, im.ErrRecallWindow)
	if ev := e.log("c1")[3]; ev.Body != "too late" {
		e.Fatalf("refused, and the body is %q", ev.Body)
	}
	// What was recalled in time stays so: asked again later it is done before.
	e.wantRecall(ana, "c1", 3, "r1", 5, true)
	e.wantRecall(ana, "c1", 3, "r3", 5, true)
	e.wantHead("c1", 5)
}

func recallNotSender(e *env) {
	e.direct()
	e.send(ana, "c1", "k1", "hello")
	e.wantErr(e.recall(ben, "c1", 3, "r").Err, im.ErrNotSender)
	e.wantErr(e.recall(cyn, "c1", 3, "r").Err, im.ErrNotMember)
	e.wantHead("c1", 3)
	if ev := e.log("c1")[2]; ev.Body != "hello" {
		e.Fatalf("refused, and the body is %q", ev.Body)
	}
	e.wantRecall(ana, "c1", 3, "r", 4, false)
	e.wantErr(e.recall(ben, "c1", 3, "r").Err, im.ErrNotSender)
}

func recallReachesLateSync(e *env) {
	e.direct()
	sent := e.send(ana, "c1", "k1", "secret") // 3
	e.send(ben, "c1", "k1", "an answer")      // 4
	early := e.history(ben, "c1", 10)
	if early[1].Body != "secret" {
		e.Fatalf("before the recall: %+v", early[1])
	}
	r := e.wantRecall(ana, "c1", 3, "r1", 5, false)
	if r.MsgNo != 2 {
		e.Fatalf("a recall counts as no message: %+v", r)
	}
	// Who had it learns of the recall; who comes late never gets the content.
	page, err := e.Sync(e.ctx, im.SyncReq{From: ben, Conv: "c1", After: 4})
	if e.must(err); len(page.Events) != 1 || page.Head != 5 {
		e.Fatalf("after the recall: %+v", page)
	}
	ev := page.Events[0]
	if ev.Kind != im.KindRecall || ev.Target != 3 || ev.Sender != "u-ana" || ev.SenderDevice != "u-ana-d1" || ev.CMID != "r1" || ev.Body != "" || ev.MsgNo != 2 {
		e.Fatalf("the recall: %+v", ev)
	}
	e.wantHistory(ben, "c1", "join@2 msg@3 msg@4 recall@5")
	for path, evs := range map[string][]im.Event{"sync": e.history(ben, "c1", 10)[1:], "fan-out": e.log("c1")[2:]} {
		if ev := evs[0]; ev.Kind != im.KindMsg || ev.Body != "" || ev.MID != sent.MID || ev.Sender != "u-ana" || !ev.At.Equal(sent.At) {
			e.Errorf("%s: the recalled message: %+v", path, ev)
		}
		if evs[1].Body != "an answer" {
			e.Errorf("%s: the other message: %+v", path, evs[1])
		}
	}
	// The message was sent, whatever became of its content.
	if again := e.send(ana, "c1", "k1", "secret"); !again.Dup || again.Seq != 3 || again.MID != sent.MID {
		e.Errorf("sent again: %+v", again)
	}
	e.wantErr(e.trySend(msg(ana, "c1", "k1", "other")).Err, im.ErrIdempotencyMismatch)
}

func recallKeys(e *env) {
	e.direct()
	e.send(ana, "c1", "k3", "x")
	e.send(ana, "c1", "k4", "y")
	first := e.wantRecall(ana, "c1", 3, "r1", 5, false)
	if again := e.wantRecall(ana, "c1", 3, "r1", 5, true); !again.At.Equal(first.At) || again.MsgNo != first.MsgNo {
		e.Errorf("again: %+v, first %+v", again, first)
	}
	e.wantRecall(ana, "c1", 3, "r2", 5, true)
	e.wantErr(e.recall(ana, "c1", 4, "r1").Err, im.ErrIdempotencyMismatch) // the key of another recall
	e.wantErr(e.recall(ana, "c1", 4, "k3").Err, im.ErrIdempotencyMismatch) // of a message
	e.wantErr(e.trySend(msg(ana, "c1", "r1", "3")).Err, im.ErrIdempotencyMismatch)
	e.wantHead("c1", 5)
	// A key belongs to its sender.
	e.send(ben, "c1", "r1", "x")
	e.wantRecall(ana, "c1", 4, "r4", 7, false)
}

func recallOutcomes(e *env) {
	e.setup("g1", []string{"u-ana", "u-ben", "u-cyn"}, 3) // 1..3
	e.send(ben, "g1", "k4", "x")                          // 4
	_, err := e.Leave(e.ctx, ana, "g1", "u-ben")          // 5
	e.must(err)
	e.send(ana, "g1", "k6", "x")               // 6
	_, err = e.Join(e.ctx, ana, "g1", "u-ben") // 7
	e.must(err)
	e.send(cyn, "g1", "k8", "x")                // 8
	e.wantRecall(cyn, "g1", 8, "r9", 9, false)  // 9
	_, err = e.Leave(e.ctx, cyn, "g1", "u-cyn") // 10
	e.must(err)
	for _, c := range []struct {
		what string
		from im.Principal
		conv string
		seq  int64
		cmid string
		want error
	}{
		{"no seq", ana, "g1", 0, "r", im.ErrBadRequest},
		{"a negative seq", ana, "g1", -4, "r", im.ErrBadRequest},
		{"a NUL", ana, "g1", 6, "r\x00", im.ErrBadRequest},
		{"no such conversation", ana, "none", 6, "r", im.ErrNotMember},
		{"past the head", ana, "g1", 11, "r", im.ErrCursorAhead},
		{"far past the head", ana, "g1", 1 << 62, "r", im.ErrCursorAhead},
		{"one who has left", cyn, "g1", 8, "r", im.ErrNotMember},
		{"one who has left, past the head", cyn, "g1", 11, "r", im.ErrNotMember},
		{"between two times of membership", ben, "g1", 6, "r", im.ErrNotMember},
		{"before the first", ben, "g1", 1, "r", im.ErrNotMember},
		{"a join", ana, "g1", 7, "r", im.ErrBadRequest},
		{"a leave", ana, "g1", 5, "r", im.ErrBadRequest},
		{"a recall", ana, "g1", 9, "r", im.ErrBadRequest},
		{"another's message", ana, "g1", 4, "r", im.ErrNotSender},
	} {
		if r := e.recall(c.from, c.conv, c.seq, c.cmid); !errors.Is(r.Err, c.want) {
			e.Errorf("%s: %v, want %v", c.what, r.Err, c.want)
		}
	}
	e.wantHead("g1", 10)
	// Done before is done, also for one who has left since; and one may recall from an earlier time of membership.
	e.wantRecall(cyn, "g1", 8, "r9", 9, true)
	e.wantRecall(ben, "g1", 4, "r", 11, false)
}

func recallConcurrently(e *env) {
	e.direct()
	e.send(ana, "c1", "k", "x")
	results := make([]im.SendResult, 24)
	e.parallel(len(results), func(i int) { results[i] = e.recall(ana, "c1", 3, fmt.Sprintf("r%d", i/2)) })
	fresh := 0
	for _, r := range results {
		if e.must(r.Err); r.Seq != 4 {
			e.Errorf("a second recall: %+v", r)
		}
		if !r.Dup {
			fresh++
		}
	}
	if e.wantHead("c1", 4); fresh != 1 {
		e.Errorf("%d recalls were new, want 1", fresh)
	}
}

func recallLocked(e *env) {
	e.direct()
	e.send(ana, "c1", "k", "x")
	release, err := e.Lock(e.ctx, "c1")
	e.must(err)
	e.wantErr(e.recall(ana, "c1", 3, "r").Err, im.ErrBusy)
	release()
	e.wantRecall(ana, "c1", 3, "r", 4, false)
}

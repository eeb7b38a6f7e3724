package storetest

import (
	"fmt"
	"math/rand/v2"

	"imbench/server/internal/im"
)

// talk sends n messages with keys of their own.
func (e *env) talk(from im.Principal, conv string, n int) {
	e.Helper()
	head := e.head(conv)
	for done := 0; done < n; {
		var reqs []im.SendReq
		for ; done < n && len(reqs) < 64; done++ {
			reqs = append(reqs, msg(from, conv, fmt.Sprintf("talk-%d", head+int64(done)), "x"))
		}
		res, err := e.SendBatch(e.ctx, reqs, true)
		e.must(err)
		for _, r := range res {
			e.must(r.Err)
		}
	}
}

func (e *env) read(p im.Principal, conv string, seq int64) im.ReadResult {
	e.Helper()
	res, err := e.ReadBatch(e.ctx, []im.ReadReq{{From: p, Conv: conv, Seq: seq}})
	e.must(err)
	return res[0]
}

// wantRead reports seq and wants the position and what is unread, moved or not.
func (e *env) wantRead(p im.Principal, conv string, seq, read, unread int64, moved bool) {
	e.Helper()
	if r, want := e.read(p, conv, seq), (im.ReadResult{Read: read, Unread: unread, Moved: moved}); r != want {
		e.Fatalf("%s read up to %d: %+v, want %+v", p.User, seq, r, want)
	}
	e.wantState(p, conv, read, unread)
}

// wantState wants the same of both lists.
func (e *env) wantState(p im.Principal, conv string, read, unread int64) {
	e.Helper()
	list, _, err := e.Convs(e.ctx, p, "", 0)
	e.must(err)
	inbox, _, err := e.Inbox(e.ctx, p, "", 0)
	e.must(err)
	for i, c := range list {
		if c.Conv != conv {
			continue
		}
		if c.Read != read || c.Unread != unread {
			e.Fatalf("%s: read %d, unread %d, want %d and %d", p.User, c.Read, c.Unread, read, unread)
		}
		if inbox[i].ConvState != c {
			e.Fatalf("the inbox says %+v, the list %+v", inbox[i].ConvState, c)
		}
		return
	}
	e.Fatalf("%s has no %s in %+v", p.User, conv, list)
}

func readOutOfOrder(e *env) {
	e.direct()
	e.talk(ana, "c1", 60)                   // 3..62
	e.wantRead(ben, "c1", 50, 50, 12, true) // then the older report arrives
	e.wantRead(ben, "c1", 45, 50, 12, false)
}

func readClamped(e *env) {
	e.direct()
	e.talk(ana, "c1", 5) // 3..7
	e.wantRead(ben, "c1", 107, 7, 0, true)
	e.talk(ana, "c1", 1)
	e.wantState(ben, "c1", 7, 1) // not read before it was written
}

func unreadOneAfterLogout(e *env) {
	e.direct()
	e.talk(ana, "c1", 5)
	e.wantRead(ben, "c1", 7, 7, 0, true)
	e.talk(ana, "c1", 1)
	e.wantState(ben, "c1", 7, 1)
	e.wantState(im.Principal{User: "u-ben", Device: "u-ben-d2", Install: 1}, "c1", 7, 1)
}

// ownMessagesRead: whatever lies between one's messages, the last of them is the position at once.
func ownMessagesRead(e *env) {
	e.direct()
	e.wantState(ben, "c1", 0, 0)
	e.talk(ana, "c1", 3)
	e.wantState(ben, "c1", 0, 3)
	for _, gap := range []int{0, 1, 30, 62, 63, 64, 65, 66, 200} {
		e.talk(ana, "c1", gap)
		e.talk(ben, "c1", 1)
		head := e.head("c1")
		e.wantState(ben, "c1", head, 0)
		e.talk(ana, "c1", 70)
		e.wantState(ben, "c1", head, 70)
		e.talk(ben, "c1", 2)
		e.talk(ana, "c1", 100)
		e.wantState(ben, "c1", head+72, 100)
		e.wantRead(ben, "c1", head+10, head+72, 100, false) // it lies behind what was sent since
		e.wantRead(ben, "c1", head+100, head+100, 72, true)
	}
}

func readerDoesNotMoveSender(e *env) {
	e.direct()
	e.talk(ana, "c1", 2) // 3, 4
	e.talk(ben, "c1", 2) // 5, 6
	e.wantRead(ben, "c1", 6, 6, 0, false)
	e.wantState(ana, "c1", 4, 2)
	list, _, err := e.Convs(e.ctx, ben, "", 0)
	if e.must(err); list[0].Delivered != 2 {
		e.Fatalf("reading moved the device's cursor to %d", list[0].Delivered)
	}
	e.wantAck(ana, "c1", 6, 6)
	e.wantState(ana, "c1", 4, 2) // nor does having it saved make it read
}

func watermarkNeverBack(e *env) {
	e.direct()
	e.talk(ana, "c1", 5) // 3..7
	for _, c := range []struct{ report, read, unread int64 }{{6, 6, 1}, {4, 6, 1}, {101, 7, 0}} {
		e.wantRead(ben, "c1", c.report, c.read, c.unread, c.report != 4)
	}
	e.wantState(ana, "c1", 7, 0)
}

func noEventWhenUnmoved(e *env) {
	e.direct()
	e.talk(ana, "c1", 5)
	for i := range 3 {
		if r := e.read(ben, "c1", 6); r.Moved != (i == 0) {
			e.Fatalf("report %d: %+v", i, r)
		}
	}
	if r := e.read(ana, "c1", 7); r.Moved {
		e.Fatalf("an own message had moved it already: %+v", r)
	}
}

// unreadBySubtraction: between the messages there are joins, leaves and recalls, which are none.
func unreadBySubtraction(e *env) {
	e.setup("g1", []string{"u-ana", "u-ben", "u-cyn", "u-dan"}, 3)
	dan := user("u-dan")
	e.talk(ana, "g1", 2)                        // 4, 5
	_, err := e.Join(e.ctx, ana, "g1", "u-dan") // 6
	e.must(err)
	e.talk(ana, "g1", 1)                       // 7
	e.wantRecall(ana, "g1", 5, "r1", 8, false) // 8
	e.wantState(ben, "g1", 0, 2)               // 4, 7
	e.wantState(dan, "g1", 0, 1)               // 7
	e.wantState(ana, "g1", 7, 0)
	_, err = e.Leave(e.ctx, ana, "g1", "u-cyn") // 9
	e.must(err)
	e.talk(ben, "g1", 1)                 // 10
	e.wantState(cyn, "g1", 0, 2)         // 4, 7
	e.wantState(ben, "g1", 10, 0)        //
	e.wantState(ana, "g1", 7, 1)         // 10
	e.wantRead(ana, "g1", 9, 9, 1, true) // a report may name an event that is no message
	e.wantRead(dan, "g1", 7, 7, 1, true)
	_, err = e.Join(e.ctx, ana, "g1", "u-cyn") // 11
	e.must(err)
	e.talk(ana, "g1", 3)                   // 12..14
	e.wantState(cyn, "g1", 0, 5)           // 4, 7 and 12..14, not 10
	e.wantRead(cyn, "g1", 5, 5, 4, true)   // in the first period
	e.wantRead(cyn, "g1", 10, 10, 3, true) // between the two
	e.wantRead(cyn, "g1", 13, 13, 1, true)
}

func recalledDoesNotStick(e *env) {
	e.direct()
	e.talk(ana, "c1", 3) // 3..5
	e.wantState(ben, "c1", 0, 3)
	e.wantRecall(ana, "c1", 5, "r1", 6, false)
	e.wantState(ben, "c1", 0, 2)
	e.wantRead(ben, "c1", 4, 4, 0, true) // the recall and what it took away are not left over
	e.wantRecall(ana, "c1", 3, "r2", 7, false)
	e.wantState(ben, "c1", 4, 0) // nor does it count below zero
	e.talk(ana, "c1", 1)         // 8
	e.wantState(ben, "c1", 4, 1)
	e.wantRecall(ana, "c1", 8, "r3", 9, false)
	e.wantState(ben, "c1", 4, 0)
	e.wantState(ana, "c1", 8, 0) // having recalled it, one has still sent it
}

func readOutcomes(e *env) {
	e.direct()
	e.talk(ana, "c1", 3)
	old := im.Principal{User: "u-ben", Device: "u-ben-d1", Install: 0}
	res, err := e.ReadBatch(e.ctx, []im.ReadReq{
		{From: ben, Conv: "c1", Seq: 3, Epoch: 1}, {From: cyn, Conv: "c1", Seq: 1}, {From: ben, Conv: "none", Seq: 1},
		{From: ben, Conv: "c1", Seq: 5, Epoch: 2}, {From: ben, Conv: "c1", Seq: -1}, {From: ben, Conv: "c\x00", Seq: 1},
		{From: old, Conv: "c1", Seq: 4}, {From: ben, Conv: "c1", Seq: 0},
	})
	e.must(err)
	for i, want := range []error{nil, im.ErrNotMember, im.ErrNotMember, im.ErrEpochChanged, im.ErrBadRequest, im.ErrBadRequest, nil, nil} {
		e.wantErr(res[i].Err, want)
		if moved := i == 6; want == nil && (res[i].Read != 4 || res[i].Unread != 1 || res[i].Moved != moved) {
			e.Errorf("request %d: %+v, want all of them merged to 4", i, res[i])
		}
	}
	if res, err := e.ReadBatch(e.ctx, nil); err != nil || len(res) != 0 {
		e.Fatalf("no requests: %v, %v", res, err)
	}
}

// readAfterLeaving: one who has left reads what was theirs, and learns of nothing more.
func readAfterLeaving(e *env) {
	e.setup("g1", []string{"u-ana", "u-ben"}, 2)
	e.talk(ana, "g1", 3)                         // 3..5
	_, err := e.Leave(e.ctx, ana, "g1", "u-ben") // 6
	e.must(err)
	e.talk(ana, "g1", 4)
	e.wantState(ben, "g1", 0, 3)
	e.wantRead(ben, "g1", 4, 4, 1, true)
	e.wantRead(ben, "g1", 9, 6, 0, true)
}

func readConcurrently(e *env) {
	e.direct()
	e.talk(ana, "c1", 200) // 3..202
	moves := make([]int, 8)
	e.parallel(len(moves), func(w int) {
		r := rand.New(rand.NewPCG(2, uint64(w)))
		last := int64(0)
		for range 20 {
			seq := 3 + r.Int64N(200)
			res, err := e.ReadBatch(e.ctx, []im.ReadReq{
				{From: ben, Conv: "c1", Seq: seq}, {From: ana, Conv: "c1", Seq: seq}, {From: ben, Conv: "c1", Seq: seq}})
			if err != nil || res[0].Err != nil || res[1].Err != nil || res[2].Err != nil {
				e.Errorf("%v, %+v", err, res)
				return
			}
			if res[0].Read < seq || res[0].Read < last || res[0].Unread != 202-res[0].Read || res[1].Moved || res[2].Moved {
				e.Errorf("reported %d after %d: %+v", seq, last, res)
			}
			if last = res[0].Read; res[0].Moved {
				moves[w]++
			}
		}
	})
	total := 0
	for _, n := range moves {
		total += n
	}
	if total == 0 || total > 160 {
		e.Fatalf("moved %d times", total)
	}
	e.wantRead(ben, "c1", 202, 202, 0, e.read(ben, "c1", 0).Read < 202)
}

func readNewEpoch(e *env) {
	e.direct()
	e.talk(ana, "c1", 10) // 3..12
	e.wantRead(ben, "c1", 9, 9, 3, true)
	_, err := e.RaiseEpoch(e.ctx, "c1")
	e.must(err)
	e.wantState(ben, "c1", 9, 3) // until a report replaces it, further back too
	res, err := e.ReadBatch(e.ctx, []im.ReadReq{{From: ben, Conv: "c1", Seq: 12, Epoch: 1}})
	e.must(err)
	e.wantErr(res[0].Err, im.ErrEpochChanged)
	e.wantRead(ben, "c1", 5, 5, 7, true)
	e.wantRead(ben, "c1", 4, 5, 7, false)
	e.talk(ben, "c1", 1) // 13
	e.wantState(ben, "c1", 13, 0)
	_, err = e.RaiseEpoch(e.ctx, "c1")
	e.must(err)
	e.wantRead(ben, "c1", 5, 13, 0, false) // what one has sent is not forgotten
}

// readRetained: what retention removed is neither unread nor in the way.
func readRetained(e *env) {
	e.direct()
	e.talk(ben, "c1", 1)  // 3
	e.talk(ana, "c1", 10) // 4..13
	e.wantRecall(ana, "c1", 12, "r", 14, false)
	e.must(e.SetRetention(e.ctx, "c1", 1e9))
	e.must(e.Age(e.ctx, "c1", 1e10))
	r, err := e.Retain(e.ctx, 8, 1e12) // 1..8 go
	if e.must(err); r.Events != 8 {
		e.Fatalf("%+v", r)
	}
	e.wantState(ben, "c1", 8, 4) // 9, 10, 11, 13
	e.wantRead(ben, "c1", 5, 8, 4, false)
	e.wantRead(ben, "c1", 9, 9, 3, true)
	for more := true; more; {
		r, err := e.Retain(e.ctx, 100, 1e12)
		e.must(err)
		more = r.More
	}
	e.wantState(ben, "c1", 14, 0)
	e.talk(ana, "c1", 2)
	e.wantState(ben, "c1", 14, 2)
	e.wantState(ana, "c1", 16, 0)
}

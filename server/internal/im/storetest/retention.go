package storetest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"pgregory.net/rapid"

	"imbench/server/internal/im"
)

// retain does steps of retention until there is no more to do, and sums up their reports.
func (e *env) retain(limit int, keep time.Duration) im.RetentionReport {
	e.Helper()
	var sum im.RetentionReport
	for {
		r, err := e.Retain(e.ctx, limit, keep)
		e.must(err)
		if r.Events > int64(limit) {
			e.Fatalf("%d events removed in a step of %d", r.Events, limit)
		}
		sum.Conversations += r.Conversations
		sum.Events += r.Events
		sum.Tombstones += r.Tombstones
		if !r.More {
			return sum
		}
	}
}

// page syncs once and wants success.
func (e *env) page(p im.Principal, conv string, after int64, limit int) im.Page {
	e.Helper()
	page, err := e.Sync(e.ctx, im.SyncReq{From: p, Conv: conv, After: after, Limit: limit})
	e.must(err)
	return page
}

func retentionTombstone(e *env) {
	const day = 24 * time.Hour
	e.direct()
	e.must(e.SetRetention(e.ctx, "c1", time.Hour))
	first := e.send(ana, "c1", "k1", "old")    // 3
	e.wantRecall(ana, "c1", 3, "r1", 4, false) // 4
	e.wantAck(ben, "c1", 4, 4)
	if r := e.retain(100, day); r != (im.RetentionReport{}) {
		e.Fatalf("nothing was old enough: %+v", r)
	}
	e.must(e.Age(e.ctx, "c1", 2*time.Hour))
	e.send(ben, "c1", "k5", "young") // 5
	if r := e.retain(100, day); r.Conversations != 1 || r.Events != 4 || r.Tombstones != 0 {
		e.Fatalf("%+v, want the first four events to go", r)
	}
	page := e.page(ben, "c1", 0, 100)
	if show(page.Events) != "msg@5" || page.MinSeq != 5 || page.Head != 5 || page.NextAfter != 5 {
		e.Fatalf("what is left: %+v", page)
	}
	// A resend after the removal is no second message, neither as a message nor as a recall.
	for _, key := range []string{"k1", "r1"} {
		e.wantErr(e.trySend(msg(ana, "c1", key, "old")).Err, im.ErrExpired)
		e.wantErr(e.recall(ana, "c1", 3, key).Err, im.ErrExpired)
	}
	e.wantErr(e.recall(ana, "c1", 3, "r2").Err, im.ErrExpired)
	if r := e.send(ben, "c1", "k5", "young"); !r.Dup || r.Seq != 5 {
		e.Fatalf("what is there is done before: %+v", r)
	}
	e.wantHead("c1", 5)
	e.wantAck(ben, "c1", 2, 4) // cursors stay where they are

	// The last one goes too: the numbers go on after it.
	e.must(e.Age(e.ctx, "c1", 2*time.Hour))
	if r := e.retain(100, day); r.Conversations != 1 || r.Events != 1 || r.Tombstones != 0 {
		e.Fatalf("%+v, want the last event to go", r)
	}
	if page := e.page(ben, "c1", 2, 100); len(page.Events) != 0 || page.MinSeq != 6 || page.Head != 5 || page.NextAfter != 5 || page.HasMore {
		e.Fatalf("an empty log: %+v", page)
	}
	// Tombstones go when their time is over, and their keys are free again.
	e.must(e.Age(e.ctx, "c1", 23*time.Hour))
	if r := e.retain(1, day); r.Tombstones != 2 || r.Events != 0 {
		e.Fatalf("%+v, want two tombstones to go", r)
	}
	e.wantErr(e.trySend(msg(ben, "c1", "k5", "young")).Err, im.ErrExpired)
	second := e.send(ana, "c1", "k1", "old")
	if second.Dup || second.Seq != 6 || second.MsgNo != 3 {
		e.Fatalf("the first after an empty log: %+v", second)
	}
	if evs := e.log("c1"); second.MID == first.MID || len(evs) != 1 || evs[0].MID != second.MID {
		e.Fatalf("two messages under one key are both named %s; the second is read as %+v", first.MID, evs)
	}
	e.wantHistory(ben, "c1", "msg@6")
}

func retentionNone(e *env) {
	e.direct()
	e.fill(ana, "c1", 3)
	e.must(e.Age(e.ctx, "c1", 1000*time.Hour))
	if r := e.retain(10, time.Hour); r != (im.RetentionReport{}) {
		e.Fatalf("a conversation without retention: %+v", r)
	}
	e.must(e.SetRetention(e.ctx, "c1", 2000*time.Hour))
	if r := e.retain(10, time.Hour); r != (im.RetentionReport{}) {
		e.Fatalf("nothing was old enough: %+v", r)
	}
	e.must(e.SetRetention(e.ctx, "c1", time.Hour)) // shortened: due at once
	e.must(e.SetRetention(e.ctx, "c1", 0))
	if r := e.retain(10, time.Hour); r != (im.RetentionReport{}) {
		e.Fatalf("retention was switched off: %+v", r)
	}
	e.must(e.SetRetention(e.ctx, "c1", time.Hour))
	if r := e.retain(10, time.Hour); r.Events != 5 {
		e.Fatalf("%+v, want all five to go", r)
	}
	_, err := e.Retain(e.ctx, 0, time.Hour)
	e.wantErr(err, im.ErrBadRequest)
}

// retentionLocked: a conversation that another session holds keeps nobody waiting, and its turn comes.
func retentionLocked(e *env) {
	e.provision([]string{"u-ana", "u-ben"},
		Conv{"c1", "direct", im.Push, []string{"u-ana", "u-ben"}}, Conv{"c2", "group", im.Push, []string{"u-ana", "u-ben"}})
	for _, conv := range []string{"c1", "c2"} {
		e.must(e.SetRetention(e.ctx, conv, time.Hour))
		e.must(e.Age(e.ctx, conv, 2*time.Hour))
	}
	release, err := e.Lock(e.ctx, "c1")
	e.must(err)
	if r := e.retain(10, time.Hour); r.Conversations != 1 || r.Events != 2 {
		e.Errorf("beside a locked conversation: %+v", r)
	}
	release()
	if r := e.retain(10, time.Hour); r.Conversations != 1 || r.Events != 2 {
		e.Errorf("when it was free: %+v", r)
	}
}

// retentionConcurrently: however many do it at once, each event goes once, and the logs keep their form.
func retentionConcurrently(e *env) {
	var convs []Conv
	for i := range 10 {
		convs = append(convs, Conv{fmt.Sprintf("g%d", i), "group", im.Push, []string{"u-ana"}})
	}
	e.provision([]string{"u-ana"}, convs...)
	for _, c := range convs {
		e.fill(ana, c.ID, 9) // ten events with the join
		e.must(e.SetRetention(e.ctx, c.ID, time.Hour))
		e.must(e.Age(e.ctx, c.ID, 2*time.Hour))
		e.send(ana, c.ID, "young", "x")
	}
	var removed atomic.Int64
	e.parallel(4, func(int) {
		for range 40 {
			r, err := e.Retain(e.ctx, 7, time.Hour)
			if err != nil {
				e.Error(err)
			}
			removed.Add(r.Events)
		}
	})
	if rest := e.retain(1000, time.Hour); removed.Load()+rest.Events != 100 {
		e.Errorf("%d events removed at once and %d afterwards, want 100", removed.Load(), rest.Events)
	}
	for _, c := range convs {
		e.wantHistory(ana, c.ID, "msg@11")
		e.wantErr(e.trySend(msg(ana, c.ID, "fill-8", "body 8")).Err, im.ErrExpired)
	}
}

// retentionMembership: joins and leaves go with the prefix, but who was a member when does not.
func retentionMembership(e *env) {
	e.setup("g1", []string{"u-ana", "u-ben", "u-cyn"}, 2)
	e.must(e.SetRetention(e.ctx, "g1", time.Hour))
	e.send(ana, "g1", "k3", "x")                 // 3
	_, err := e.Leave(e.ctx, ana, "g1", "u-ben") // 4
	e.must(err)
	e.must(e.Age(e.ctx, "g1", 2*time.Hour))
	e.send(ana, "g1", "k5", "x")               // 5
	_, err = e.Join(e.ctx, ana, "g1", "u-cyn") // 6
	e.must(err)
	if r := e.retain(10, time.Hour); r.Events != 4 {
		e.Fatalf("%+v, want four events to go", r)
	}
	e.wantHistory(ana, "g1", "msg@5 join@6")
	e.wantHistory(cyn, "g1", "join@6")
	if page := e.page(ben, "g1", 0, 10); len(page.Events) != 0 || page.Head != 4 || page.NextAfter != 4 || page.MinSeq != 5 {
		e.Fatalf("one who left in what is gone: %+v", page)
	}
	e.wantErr(e.trySend(msg(ben, "g1", "k", "x")).Err, im.ErrNotMember)
}

// retentionWhileSyncing pages through a log while its beginning is removed and its end grows: each page is of one
// moment, begins where it was asked to or where the log then began, and misses nothing between.
func retentionWhileSyncing(e *env) {
	const old, readers = 300, 3
	e.direct()
	e.must(e.SetRetention(e.ctx, "c1", time.Hour))
	e.fill(ana, "c1", old)
	e.must(e.Age(e.ctx, "c1", 2*time.Hour))
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range readers {
		wg.Go(func() {
			for again := true; again; {
				select {
				case <-done:
					again = false // once more, when all is quiet
				default:
				}
				e.checkPages("c1")
			}
		})
	}
	removed := int64(0)
	for i := 0; ; i++ {
		r, err := e.Retain(e.ctx, 20, time.Hour)
		removed += r.Events
		sent := e.trySend(msg(ben, "c1", fmt.Sprint("young-", i), "x"))
		if err != nil || sent.Err != nil {
			e.Errorf("%v, %v", err, sent.Err)
			break
		}
		if !r.More {
			break
		}
	}
	close(done)
	wg.Wait()
	if page := e.page(ana, "c1", 0, 1); removed != old+2 || page.MinSeq != old+3 {
		e.Errorf("%d events removed, min_seq %d", removed, page.MinSeq)
	}
}

// checkPages goes through what ana, a member from the first event on, sees from 0 to the head.
func (e *env) checkPages(conv string) {
	for after, more := int64(0), true; more; {
		page, err := e.Sync(e.ctx, im.SyncReq{From: ana, Conv: conv, After: after, Limit: 10})
		if err != nil {
			e.Error(err)
			return
		}
		next := max(after+1, page.MinSeq)
		for _, ev := range page.Events {
			if ev.Seq != next {
				e.Errorf("%d stands in the place of %d (after %d, min_seq %d)", ev.Seq, next, after, page.MinSeq)
				return
			}
			next++
		}
		if more = page.HasMore; !more && next != page.Head+1 {
			e.Errorf("the last page ends before %d, the head is %d", next, page.Head)
			return
		}
		after = page.NextAfter
	}
}

// retentionPrefix compares random sends, waits and steps of retention over several conversations with a model that
// knows the age of each event (P1, P5, L2).
func retentionPrefix(e *env) {
	run := 0
	rapid.Check(e, func(t *rapid.T) {
		run++
		who := fmt.Sprintf("r%d-u", run)
		me := user(who)
		var convs []Conv
		for i := range 3 {
			convs = append(convs, Conv{fmt.Sprintf("r%d-c%d", run, i), "group", im.Push, []string{who}})
		}
		e.provision([]string{who}, convs...)
		m := retentionModel{age: map[string][]int{}, min: map[string]int{}}
		for i, c := range convs {
			m.age[c.ID] = []int{0} // the join
			if m.min[c.ID] = 1; i > 0 {
				e.must(e.SetRetention(e.ctx, c.ID, retentionHours*time.Hour))
			}
		}
		m.keeps = convs[0].ID // for ever
		for range rapid.IntRange(1, 15).Draw(t, "steps") {
			conv := rapid.SampledFrom(convs).Draw(t, "conv").ID
			switch rapid.SampledFrom([]string{"send", "age", "retain"}).Draw(t, "op") {
			case "send":
				n := len(m.age[conv]) + 1
				if r := e.trySend(msg(me, conv, fmt.Sprint(n), "x")); r.Err != nil || r.Seq != int64(n) {
					t.Fatalf("send: %+v, want seq %d", r, n)
				}
				m.age[conv] = append(m.age[conv], 0)
			case "age":
				h := rapid.IntRange(1, 2*retentionHours).Draw(t, "hours")
				e.must(e.Age(e.ctx, conv, time.Duration(h)*time.Hour))
				m.wait(conv, h)
			case "retain":
				limit := rapid.IntRange(1, 6).Draw(t, "limit")
				r, err := e.Retain(e.ctx, limit, 10_000*time.Hour)
				e.must(err)
				m.follow(e, t, me, r, limit)
			}
		}
		e.retain(5, 10_000*time.Hour)
		for conv := range m.age {
			m.check(e, t, me, conv)
		}
	})
}

const retentionHours = 10

// retentionModel knows the age in hours of each event by conversation; event seq is at seq-1. An event of exactly
// retentionHours is a moment older than that when retention looks.
type retentionModel struct {
	age   map[string][]int
	min   map[string]int
	keeps string // the conversation without retention
}

// wait makes what is there older.
func (m *retentionModel) wait(conv string, hours int) {
	for i := range m.age[conv] {
		m.age[conv][i] += hours
	}
}

// due is the seq up to which the prefix is old enough, and one more.
func (m *retentionModel) due(conv string) int {
	seq := m.min[conv]
	for conv != m.keeps && seq <= len(m.age[conv]) && m.age[conv][seq-1] >= retentionHours {
		seq++
	}
	return seq
}

// follow takes over where the logs now begin, having checked that one bounded step could do that.
func (m *retentionModel) follow(e *env, t *rapid.T, me im.Principal, r im.RetentionReport, limit int) {
	removed, left := 0, 0
	for conv := range m.age {
		page := e.page(me, conv, 0, 1)
		begin, due := int(page.MinSeq), m.due(conv)
		if begin < m.min[conv] || begin > due {
			t.Fatalf("%s begins at %d, was %d, and %d is the first that is young", conv, begin, m.min[conv], due)
		}
		removed, left = removed+begin-m.min[conv], left+due-begin
		m.min[conv] = begin
	}
	if int64(removed) != r.Events || removed > limit || left > 0 && !r.More {
		t.Fatalf("%d removed, %d left in a step of %d: %+v", removed, left, limit, r)
	}
}

// check wants a drained conversation to hold what is young, whole, and to know the keys of what is not.
func (m *retentionModel) check(e *env, t *rapid.T, me im.Principal, conv string) {
	begin, head := m.due(conv), len(m.age[conv])
	evs := e.log(conv)
	if len(evs) != head-begin+1 {
		t.Fatalf("%s: %d events, want %d..%d", conv, len(evs), begin, head)
	}
	for i, ev := range evs {
		if ev.Seq != int64(begin+i) || ev.MsgNo != ev.Seq-1 {
			t.Fatalf("%s: %+v in the place of %d", conv, ev, begin+i)
		}
	}
	for seq := 2; seq <= head; seq++ {
		r := e.trySend(msg(me, conv, fmt.Sprint(seq), "x"))
		if gone := seq < begin; gone && r.Err != im.ErrExpired || !gone && (r.Err != nil || !r.Dup || r.Seq != int64(seq)) {
			t.Fatalf("%s: the key of %d again: %+v (the log begins at %d)", conv, seq, r, begin)
		}
	}
	if h := e.head(conv); h != int64(head) {
		t.Fatalf("%s: head %d, want %d", conv, h, head)
	}
}

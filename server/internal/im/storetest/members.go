package storetest

import (
	"fmt"
	"slices"

	"pgregory.net/rapid"

	"imbench/server/internal/im"
)

func joinNoPriorHistory(e *env) {
	e.setup("g1", []string{"u-ana", "u-ben", "u-cyn"}, 2)
	e.fill(ana, "g1", 5) // 3..7
	seq, err := e.Join(e.ctx, ana, "g1", "u-cyn")
	if e.must(err); seq != 8 {
		e.Fatalf("join at %d, want 8", seq)
	}
	e.fill(ben, "g1", 2)
	e.wantHistory(cyn, "g1", "join@8 msg@9 msg@10")
	if ev := e.log("g1")[7]; ev.Kind != im.KindJoin || ev.User != "u-cyn" || ev.Sender != "u-ana" || ev.MsgNo != 5 {
		e.Fatalf("the join: %+v", ev)
	}
}

func leaveClosesInterval(e *env) {
	e.setup("g1", []string{"u-ana", "u-ben"}, 2)
	e.fill(ana, "g1", 2) // 3, 4
	seq, err := e.Leave(e.ctx, ben, "g1", "u-ben")
	if e.must(err); seq != 5 {
		e.Fatalf("leave at %d, want 5", seq)
	}
	e.send(ana, "g1", "after", "secret") // 6
	e.wantHistory(ben, "g1", "join@2 msg@3 msg@4 leave@5")
	page, err := e.Sync(e.ctx, im.SyncReq{From: ben, Conv: "g1", After: 5})
	if e.must(err); page.Head != 5 || page.NextAfter != 5 || len(page.Events) != 0 {
		e.Fatalf("after the leave: %+v, want to learn of nothing more", page)
	}
	e.wantErr(e.trySend(msg(ben, "g1", "k", "x")).Err, im.ErrNotMember)
	e.wantAck(ben, "g1", 5, 5)                            // an own interval can still be acknowledged
	e.wantErr(e.ack(ben, "g1", 6).Err, im.ErrCursorAhead) // and no more: an answer would tell how far the log has got
	list, _, err := e.Convs(e.ctx, ben, "", 0)
	if e.must(err); len(list) != 1 || list[0].Head != 5 {
		e.Fatalf("the list of one who left: %+v", list)
	}
}

func rejoinGapStaysHidden(e *env) {
	e.setup("g1", []string{"u-ana", "u-ben"}, 2)
	_, err := e.Leave(e.ctx, ana, "g1", "u-ben") // 3
	e.must(err)
	e.fill(ana, "g1", 3)                       // 4..6
	_, err = e.Join(e.ctx, ana, "g1", "u-ben") // 7
	e.must(err)
	e.send(ana, "g1", "k", "x") // 8
	e.wantHistory(ben, "g1", "join@2 leave@3 join@7 msg@8")
	page, err := e.Sync(e.ctx, im.SyncReq{From: ben, Conv: "g1", After: 3, Limit: 1})
	if e.must(err); len(page.Events) != 1 || page.Events[0].Seq != 7 || !page.HasMore || page.NextAfter != 7 {
		e.Fatalf("over the gap: %+v", page)
	}
}

func groupFull(e *env) {
	users := []string{"u-ana"}
	for i := range 1000 {
		users = append(users, fmt.Sprintf("u%04d", i))
	}
	e.setup("g1", users, 999)
	_, err := e.Join(e.ctx, ana, "g1", users[999])
	e.must(err)
	_, err = e.Join(e.ctx, ana, "g1", users[1000])
	e.wantErr(err, im.ErrGroupFull)
	e.wantHead("g1", 1000)
	_, err = e.Leave(e.ctx, ana, "g1", users[5])
	e.must(err)
	_, err = e.Join(e.ctx, ana, "g1", users[1000])
	e.must(err)
}

func membershipErrors(e *env) {
	e.provision([]string{"u-ana", "u-ben", "u-cyn"},
		Conv{"c1", "direct", im.Push, []string{"u-ana", "u-ben"}}, Conv{"g1", "group", im.Push, []string{"u-ana"}})
	for _, c := range []struct {
		op   func() (int64, error)
		want error
	}{
		{func() (int64, error) { return e.Join(e.ctx, cyn, "g1", "u-cyn") }, im.ErrNotMember},
		{func() (int64, error) { return e.Join(e.ctx, ana, "g1", "u-ana") }, im.ErrAlreadyMember},
		{func() (int64, error) { return e.Join(e.ctx, ana, "g1", "no-such-user") }, im.ErrNotMember},
		{func() (int64, error) { return e.Leave(e.ctx, ana, "g1", "u-ben") }, im.ErrNotMember},
		{func() (int64, error) { return e.Leave(e.ctx, cyn, "g1", "u-ana") }, im.ErrNotMember},
		{func() (int64, error) { return e.Join(e.ctx, ana, "c1", "u-cyn") }, im.ErrBadRequest},
		{func() (int64, error) { return e.Leave(e.ctx, ana, "c1", "u-ben") }, im.ErrBadRequest},
		{func() (int64, error) { return e.Join(e.ctx, ana, "g\x001", "u-ben") }, im.ErrBadRequest},
	} {
		_, err := c.op()
		e.wantErr(err, c.want)
	}
	e.wantHead("g1", 1)
	e.wantHead("c1", 2)
}

// membershipModel compares random joins, leaves and sends with a model that keeps, for each user, the list of seqs that
// the user may see. Afterwards the log obeys P1, P3 and P5.
func membershipModel(e *env) {
	users := []string{"u-ana", "u-ben", "u-cyn", "u-dan"}
	run := 0
	rapid.Check(e, func(t *rapid.T) {
		run++
		// A run's ids are its own: one fixture serves all of them.
		name := func(s string) string { return fmt.Sprintf("r%d-%s", run, s) }
		conv, ids := name("g"), make([]string, len(users))
		for i, u := range users {
			ids[i] = name(u)
		}
		e.setup(conv, ids, 1)
		head, member := int64(1), map[string]bool{ids[0]: true}
		sees := map[string][]int64{ids[0]: {1}}
		note := func() {
			for u, in := range member {
				if in {
					sees[u] = append(sees[u], head)
				}
			}
		}
		for step := range rapid.IntRange(1, 25).Draw(t, "steps") {
			by, whom := rapid.SampledFrom(ids).Draw(t, "by"), rapid.SampledFrom(ids).Draw(t, "whom")
			switch rapid.SampledFrom([]string{"send", "join", "leave"}).Draw(t, "op") {
			case "send":
				r := e.trySend(msg(user(by), conv, fmt.Sprint(step), "x"))
				if member[by] != (r.Err == nil) {
					t.Fatalf("send by %s: %v", by, r.Err)
				}
				if r.Err == nil {
					head++
					note()
				}
			case "join":
				seq, err := e.Join(e.ctx, user(by), conv, whom)
				if (member[by] && !member[whom]) != (err == nil) {
					t.Fatalf("join of %s by %s: %v", whom, by, err)
				}
				if err == nil {
					head++
					member[whom] = true
					note()
					if seq != head {
						t.Fatalf("join at %d, want %d", seq, head)
					}
				}
			case "leave":
				_, err := e.Leave(e.ctx, user(by), conv, whom)
				if (member[by] && member[whom]) != (err == nil) {
					t.Fatalf("leave of %s by %s: %v", whom, by, err)
				}
				if err == nil {
					head++
					note()
					member[whom] = false
				}
			}
		}
		for i, ev := range e.log(conv) {
			if ev.Seq != int64(i+1) {
				t.Fatalf("place %d has seq %d", i, ev.Seq)
			}
		}
		if h := e.head(conv); h != head {
			t.Fatalf("head %d, want %d", h, head)
		}
		for _, u := range ids {
			if sees[u] == nil {
				_, err := e.Sync(e.ctx, im.SyncReq{From: user(u), Conv: conv})
				if err == nil {
					t.Fatalf("%s never was a member, and reads", u)
				}
				continue
			}
			var got []int64
			for _, ev := range e.history(user(u), conv, rapid.IntRange(1, 5).Draw(t, "limit")) {
				got = append(got, ev.Seq)
			}
			if !slices.Equal(got, sees[u]) {
				t.Fatalf("%s sees %v, want %v", u, got, sees[u])
			}
		}
	})
}

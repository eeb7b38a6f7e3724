package storetest

import (
	"fmt"
	"math"
	"slices"
	"sync/atomic"

	"imbench/server/internal/im"
)

func syncPages(e *env) {
	e.direct()
	e.fill(ana, "c1", 250)
	page, err := e.Sync(e.ctx, im.SyncReq{From: ana, Conv: "c1"})
	e.must(err)
	if len(page.Events) != im.DefaultSyncLimit || !page.HasMore || page.NextAfter != 100 || page.Head != 252 || page.MinSeq != 1 || page.Epoch != 1 {
		e.Fatalf("first page: %d events, %+v", len(page.Events), pageWithout(page))
	}
	for _, limit := range []int{1, 7, 84, 126, 200} {
		evs := e.history(ana, "c1", limit)
		if len(evs) != 252 {
			e.Fatalf("pages of %d: %d events", limit, len(evs))
		}
		for i, ev := range evs {
			if ev.Seq != int64(i+1) {
				e.Fatalf("pages of %d: place %d has seq %d", limit, i, ev.Seq)
			}
		}
	}
	// A page that ends exactly at the head has no more; at and past the head there is nothing, and nobody goes back.
	for _, c := range []struct{ after, next int64 }{{152, 252}, {251, 252}, {252, 252}, {300, 300}} {
		page, err := e.Sync(e.ctx, im.SyncReq{From: ana, Conv: "c1", After: c.after, Limit: 100})
		e.must(err)
		if page.HasMore || page.NextAfter != c.next || int64(len(page.Events)) != max(0, 252-c.after) {
			e.Fatalf("after %d: %d events, %+v", c.after, len(page.Events), pageWithout(page))
		}
	}
}

func pageWithout(p im.Page) im.Page {
	p.Events = nil
	return p
}

func syncBadRequests(e *env) {
	e.direct()
	for _, r := range []im.SyncReq{{Limit: -1}, {Limit: im.MaxSyncLimit + 1}, {After: -1}} {
		r.From, r.Conv = ana, "c1"
		_, err := e.Sync(e.ctx, r)
		e.wantErr(err, im.ErrBadRequest)
	}
	_, err := e.Sync(e.ctx, im.SyncReq{From: ana, Conv: "c1", Epoch: 7})
	e.wantErr(err, im.ErrEpochChanged)
	page, err := e.Sync(e.ctx, im.SyncReq{From: ana, Conv: "c1", Epoch: 1})
	if e.must(err); len(page.Events) != 2 {
		e.Fatalf("%d events", len(page.Events))
	}
}

// syncBatch: in a batch everyone is answered as if alone, whoever else asks for the same.
func syncBatch(e *env) {
	e.setup("g1", []string{"u-ana", "u-ben", "u-cyn"}, 2)
	e.fill(ana, "g1", 4)
	_, err := e.Leave(e.ctx, ben, "g1", "u-ben")
	e.must(err)
	_, err = e.Join(e.ctx, ana, "g1", "u-cyn")
	e.must(err)
	e.fill(ana, "g1", 120)
	var reqs []im.SyncReq
	for _, from := range []im.Principal{ana, ben, cyn, ana, {User: "u-nobody", Device: "d"}} {
		for _, r := range []im.SyncReq{{}, {After: 5}, {After: 7, Limit: 3}, {After: 125}, {After: math.MaxInt64}, {After: 5, Epoch: 1},
			{After: 5, Epoch: 7}, {Limit: -1}, {After: -1}, {Limit: im.MaxSyncLimit + 1}} {
			r.From, r.Conv = from, "g1"
			reqs = append(reqs, r)
		}
	}
	reqs = append(reqs, im.SyncReq{From: ana, Conv: "no-such"})
	res, err := e.SyncBatch(e.ctx, reqs)
	e.must(err)
	if len(res) != len(reqs) {
		e.Fatalf("%d answers to %d requests", len(res), len(reqs))
	}
	pages := 0
	for i, r := range reqs {
		page, err := e.Sync(e.ctx, r)
		if err == nil {
			pages++
		}
		if fmt.Sprint(res[i].Err) != fmt.Sprint(err) || fmt.Sprint(res[i].Page) != fmt.Sprint(page) {
			e.Errorf("%+v: in the batch %v, %v; alone %v, %v", r, res[i].Page, res[i].Err, page, err)
		}
	}
	if pages < 20 {
		e.Errorf("%d of %d requests have a page", pages, len(reqs))
	}
	if res, err = e.SyncBatch(e.ctx, nil); err != nil || len(res) != 0 {
		e.Errorf("a batch of none: %v, %v", res, err)
	}
}

func pageWhileWriting(e *env) {
	e.direct()
	var done atomic.Bool
	e.parallel(2, func(i int) {
		if i == 0 {
			defer done.Store(true)
			for n := range 100 {
				if r := e.trySend(msg(ana, "c1", fmt.Sprintf("k%d", n), "x")); r.Err != nil {
					e.Error(r.Err)
				}
			}
			return
		}
		next, after := int64(2), int64(1)
		for finished := false; ; {
			page, err := e.Sync(e.ctx, im.SyncReq{From: ben, Conv: "c1", After: after, Limit: 5})
			if err != nil {
				e.Error(err)
				return
			}
			for _, ev := range page.Events {
				if ev.Seq != next {
					e.Errorf("seq %d, want %d", ev.Seq, next)
				}
				next = ev.Seq + 1
			}
			after = page.NextAfter
			if finished && !page.HasMore {
				break
			}
			finished = done.Load()
		}
		if next != 103 {
			e.Errorf("read up to %d, want 102", next-1)
		}
	})
}

func convsPages(e *env) {
	var convs []Conv
	for i := range 25 {
		convs = append(convs, Conv{fmt.Sprintf("c%02d", i), "group", im.Push, []string{"u-ana", "u-ben"}})
	}
	convs[3].Mode, convs[4].Kind = im.Pull, "direct"
	convs = append(convs, Conv{"not-hers", "group", im.Push, []string{"u-ben"}})
	e.provision([]string{"u-ana", "u-ben"}, convs...)
	var all []im.ConvState
	for after, more := "", true; more; {
		list, m, err := e.Convs(e.ctx, ana, after, 10)
		e.must(err)
		if more = m; len(list) == 0 || len(list) > 10 || more != (len(all)+len(list) < 25) {
			e.Fatalf("page of %d, more %v", len(list), more)
		}
		all, after = append(all, list...), list[len(list)-1].Conv
	}
	if len(all) != 25 {
		e.Fatalf("%d conversations", len(all))
	}
	for i, c := range all {
		want := im.ConvState{Conv: convs[i].ID, Kind: convs[i].Kind, Mode: convs[i].Mode, Head: 2, MinSeq: 1, Epoch: 1, Delivered: 2}
		if c != want {
			e.Errorf("%+v, want %+v", c, want)
		}
	}
	_, _, err := e.Convs(e.ctx, ana, "", -1)
	e.wantErr(err, im.ErrBadRequest)
}

func convsUnread(e *env) {
	e.setup("g1", []string{"u-ana", "u-ben", "u-cyn", "u-dan"}, 3)
	want := func(p im.Principal, head, read, unread int64) {
		e.Helper()
		list, _, err := e.Convs(e.ctx, p, "", 0)
		e.must(err)
		if c := list[0]; c.Head != head || c.Read != read || c.Unread != unread {
			e.Errorf("%s: head %d read %d unread %d, want %d %d %d", p.User, c.Head, c.Read, c.Unread, head, read, unread)
		}
	}
	e.fill(ana, "g1", 4) // 4..7
	want(ana, 7, 7, 0)   // one's own messages are read
	want(ben, 7, 0, 4)
	e.send(ben, "g1", "k", "x") // 8
	want(ben, 8, 8, 0)
	want(ana, 8, 7, 1)
	_, err := e.Join(e.ctx, ana, "g1", "u-dan") // 9
	e.must(err)
	want(user("u-dan"), 9, 0, 0)                // nothing from before counts
	want(ana, 9, 7, 1)                          // a join is no message
	e.send(ana, "g1", "k2", "x")                // 10
	_, err = e.Leave(e.ctx, ana, "g1", "u-dan") // 11
	e.must(err)
	e.send(ana, "g1", "k3", "x") // 12
	want(user("u-dan"), 11, 0, 1)
}

func eventsByRange(e *env) {
	e.provision([]string{"u-ana", "u-ben"},
		Conv{"c1", "group", im.Push, []string{"u-ana", "u-ben"}}, Conv{"c2", "group", im.Push, []string{"u-ana"}})
	e.fill(ana, "c1", 10)
	e.fill(ana, "c2", 3)
	evs, err := e.Events(e.ctx, []im.SeqRange{{Conv: "c2", From: 1, To: 2}, {Conv: "c1", From: 11, To: 99}, {Conv: "none", From: 1, To: 5}, {Conv: "c1", From: 3, To: 4}, {Conv: "c2", From: 4, To: 3}})
	e.must(err)
	var got []string
	for _, ev := range evs {
		got = append(got, fmt.Sprintf("%s:%d:%s:%s", ev.Conv, ev.Seq, ev.Kind, ev.User))
	}
	want := []string{"c1:3:msg:", "c1:4:msg:", "c1:11:msg:", "c1:12:msg:", "c2:1:join:u-ana", "c2:2:msg:"}
	if !slices.Equal(got, want) {
		e.Fatalf("events %v, want %v", got, want)
	}
	if evs, err := e.Events(e.ctx, nil); err != nil || len(evs) != 0 {
		e.Fatalf("no ranges: %v, %v", evs, err)
	}
	_, err = e.Events(e.ctx, []im.SeqRange{{Conv: "c1", From: 1, To: 1 << 40}})
	e.wantErr(err, im.ErrTooLarge)
}

func convInfos(e *env) {
	e.provision([]string{"u-ana", "u-ben", "u-cyn"},
		Conv{"c1", "group", im.Pull, []string{"u-ana", "u-ben"}}, Conv{"c2", "group", im.Push, []string{"u-cyn"}})
	_, err := e.Leave(e.ctx, ana, "c1", "u-ben") // 3
	e.must(err)
	_, err = e.Join(e.ctx, ana, "c1", "u-ben") // 4
	e.must(err)
	for _, c := range []struct {
		from int64
		want []im.Period
	}{
		{1, []im.Period{{User: "u-ana", From: 1, To: 0}, {User: "u-ben", From: 2, To: 3}, {User: "u-ben", From: 4, To: 0}}},
		{3, []im.Period{{User: "u-ana", From: 1, To: 0}, {User: "u-ben", From: 2, To: 3}, {User: "u-ben", From: 4, To: 0}}},
		{4, []im.Period{{User: "u-ana", From: 1, To: 0}, {User: "u-ben", From: 4, To: 0}}},
	} {
		infos, err := e.ConvInfos(e.ctx, []im.SeqRange{{Conv: "c1", From: c.from}, {Conv: "none", From: 1}, {Conv: "c2", From: 1}})
		e.must(err)
		if len(infos) != 2 {
			e.Fatalf("%d infos", len(infos))
		}
		for _, info := range infos {
			if info.Conv == "c2" {
				if info.Mode != im.Push || info.Head != 1 || !slices.Equal(info.Periods, []im.Period{{User: "u-cyn", From: 1, To: 0}}) {
					e.Errorf("c2: %+v", info)
				}
				continue
			}
			slices.SortFunc(info.Periods, func(a, b im.Period) int { return int(a.From - b.From) })
			if info.Mode != im.Pull || info.Epoch != 1 || info.Head != 4 || !slices.Equal(info.Periods, c.want) {
				e.Errorf("from %d: %+v, want periods %v", c.from, info, c.want)
			}
		}
	}
}

func heads(e *env) {
	e.direct()
	e.send(ana, "c1", "k", "x")
	h, err := e.Heads(e.ctx, []string{"c1", "none"})
	e.must(err)
	if len(h) != 1 || h["c1"] != 3 {
		e.Fatalf("heads %v", h)
	}
}

package storetest

import (
	"fmt"

	"imbench/server/internal/im"
)

func inboxShows(e *env) {
	e.provision([]string{"u-ana", "u-ben", "u-cyn"},
		Conv{"c1", "direct", im.Push, []string{"u-ana", "u-ben"}},
		Conv{"c2", "group", im.Pull, []string{"u-cyn", "u-ben", "u-ana"}},
		Conv{"c3", "group", im.Push, []string{"u-ana", "u-ben"}},
		Conv{"c4", "direct", im.Push, []string{"u-ben", "u-cyn"}})
	e.send(ana, "c1", "k1", "hello") // 3
	e.wantAck(ben, "c1", 3, 3)
	_, err := e.Leave(e.ctx, ana, "c3", "u-ben") // 3
	e.must(err)
	e.send(ana, "c3", "k1", "not for ben") // 4
	list, more, err := e.Inbox(e.ctx, ben, "", 0)
	e.must(err)
	if len(list) != 4 || more {
		e.Fatalf("%d entries, more %v", len(list), more)
	}
	for i, want := range []struct {
		state im.ConvState
		peer  string
		last  string
	}{
		{im.ConvState{Conv: "c1", Kind: "direct", Mode: im.Push, Head: 3, MinSeq: 1, Epoch: 1, Delivered: 3, Unread: 1}, "u-ana", "msg@3 hello"},
		{im.ConvState{Conv: "c2", Kind: "group", Mode: im.Pull, Head: 3, MinSeq: 1, Epoch: 1, Delivered: 3}, "", "join@3 "},
		{im.ConvState{Conv: "c3", Kind: "group", Mode: im.Push, Head: 3, MinSeq: 1, Epoch: 1, Delivered: 2}, "", "leave@3 "},
		{im.ConvState{Conv: "c4", Kind: "direct", Mode: im.Push, Head: 2, MinSeq: 1, Epoch: 1, Delivered: 2}, "u-cyn", "join@2 "},
	} {
		got, last := list[i], list[i].Last
		if last == nil || got.ConvState != want.state || got.Peer != want.peer || fmt.Sprintf("%s@%d %s", last.Kind, last.Seq, last.Body) != want.last || last.Conv != want.state.Conv {
			e.Errorf("%+v with %+v, want %+v", got, last, want)
		}
	}
	// What retention has removed is shown by nobody; the conversation stays in the list.
	e.must(e.SetRetention(e.ctx, "c1", 1e9))
	e.must(e.Age(e.ctx, "c1", 1e10))
	e.retain(100, 1e12)
	list, _, err = e.Inbox(e.ctx, ben, "", 1)
	if e.must(err); list[0].Conv != "c1" || list[0].Last != nil || list[0].Unread != 0 || list[0].Head != 3 || list[0].MinSeq != 4 {
		e.Fatalf("after retention: %+v", list[0])
	}
	e.send(ana, "c1", "k2", "again") // 4
	list, _, err = e.Inbox(e.ctx, ben, "", 1)
	if e.must(err); list[0].Last == nil || list[0].Last.Body != "again" || list[0].Unread != 1 {
		e.Fatalf("after another message: %+v", list[0])
	}
}

func inboxPages(e *env) {
	var convs []Conv
	for i := range 25 {
		convs = append(convs, Conv{fmt.Sprintf("c%02d", i), "group", im.Push, []string{"u-ana", "u-ben"}})
	}
	convs = append(convs, Conv{"not-hers", "group", im.Push, []string{"u-ben"}})
	e.provision([]string{"u-ana", "u-ben"}, convs...)
	e.wantAck(ana, "c00", 1, 2)
	var all []im.InboxEntry
	for after, more := "", true; more; {
		list, m, err := e.Inbox(e.ctx, ana, after, 10)
		e.must(err)
		if more = m; len(list) == 0 || len(list) > 10 || more != (len(all)+len(list) < 25) {
			e.Fatalf("page of %d, more %v", len(list), more)
		}
		all, after = append(all, list...), list[len(list)-1].Conv
	}
	for i, c := range all {
		if c.Conv != convs[i].ID {
			e.Fatalf("place %d has %s", i, c.Conv)
		}
	}
	for _, limit := range []int{-1, im.MaxInboxPage + 1} {
		_, _, err := e.Inbox(e.ctx, ana, "", limit)
		e.wantErr(err, im.ErrBadRequest)
	}
	_, _, err := e.Inbox(e.ctx, ana, "\x00", 10)
	e.wantErr(err, im.ErrBadRequest)
	// Who names no installation is shown the cursor of the present one, and nobody the cursor of another user's device.
	for _, c := range []struct {
		p    im.Principal
		want int64
	}{
		{im.Principal{User: "u-ana", Device: "u-ana-d1"}, 2}, {im.Principal{User: "u-ana", Device: "u-ana-d1", Install: 7}, 0},
		{im.Principal{User: "u-ana", Device: "u-ben-d1"}, 0}, {im.Principal{User: "u-ana"}, 0},
	} {
		list, _, err := e.Inbox(e.ctx, c.p, "", 1)
		if e.must(err); list[0].Delivered != c.want {
			e.Errorf("%+v: delivered %d, want %d", c.p, list[0].Delivered, c.want)
		}
	}
}

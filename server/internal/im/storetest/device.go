package storetest

import (
	"fmt"
	"time"

	"imbench/server/internal/im"
)

func (e *env) device(q im.DeviceQuery) im.DeviceState {
	e.Helper()
	st, err := e.DeviceState(e.ctx, q)
	e.must(err)
	return st
}

// wantConvs compares the page as "conversation:delivered/head lag cursor read unread".
func (e *env) wantConvs(st im.DeviceState, want ...string) {
	e.Helper()
	var got []string
	for _, c := range st.Convs {
		got = append(got, fmt.Sprintf("%s:%d/%d %d %d@%d.%d %d %d", c.Conv, c.Delivered, c.Head, c.Lag, c.Cursor, c.CursorInstall, c.CursorEpoch, c.Read, c.Unread))
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		e.Fatalf("conversations %q, want %q", got, want)
	}
}

func deviceState(e *env) {
	e.provision([]string{"u-ana", "u-ben"}, Conv{ID: "a", Kind: "group", Mode: im.Push, Members: []string{"u-ana", "u-ben"}},
		Conv{ID: "b", Kind: "group", Mode: im.Pull, Members: []string{"u-ben", "u-ana"}},
		Conv{ID: "c", Kind: "group", Mode: im.Push, Members: []string{"u-ana"}})
	q := im.DeviceQuery{Device: "u-ana-d1"}
	st := e.device(q)
	if st.User != "u-ana" || st.Device != "u-ana-d1" || st.Install != 1 || st.Generation != 0 || st.Route != nil || st.Looked != 3 || st.Behind != 0 || st.More {
		e.Fatalf("a device that never came: %+v", st)
	}
	e.wantConvs(st, "a:2/2 0 2@1.1 0 0", "b:2/2 0 2@1.1 0 0", "c:1/1 0 1@1.1 0 0")

	began := time.Now().Add(-time.Hour) // the clock of the database may be another
	lease := e.begin("g1", "", time.Hour)
	e.wantRoute(claim(ana, "g0", 4), 1, "")
	e.wantRoute(claim(ana, "g1", 5), 2, "g0")
	e.fill(ben, "a", 1)
	e.fill(ben, "b", 3)
	e.must(e.ackOne(im.AckReq{From: ana, Conv: "b", Seq: 3}))
	st = e.device(q)
	e.wantConvs(st, "b:3/5 2 3@1.1 0 3", "a:2/3 1 2@1.1 0 1", "c:1/1 0 1@1.1 0 0")
	if st.Behind != 2 || st.Lag != 3 || st.Generation != 2 || st.Route == nil {
		e.Fatalf("state %+v", st)
	}
	r := *st.Route
	if r.Gateway != "g1" || r.PrevGateway != "g0" || r.Conn != 5 || r.Generation != 2 || r.Install != 1 || !r.Leased || r.LeaseLeft <= 50*time.Minute || r.LeaseLeft > time.Hour {
		e.Fatalf("route %+v", r)
	}
	if !r.Since.IsZero() && r.Since.Before(began) { // the model keeps no time
		e.Fatalf("connected since %v", r.Since)
	}
	e.must(e.DropLease(e.ctx, "g1", lease))
	e.wantRoute(claim(ana, "g9", 6), 3, "")
	if r := e.device(q).Route; r == nil || r.Leased || r.LeaseLeft != 0 || r.PrevGateway != "" {
		e.Fatalf("route to a gateway without a lease: %+v", r)
	}

	// Of another installation or epoch, a cursor counts as none, and is shown.
	fresh := ana
	fresh.Install = 2
	e.wantRoute(claim(fresh, "g1", 7), 4, "g9")
	_, err := e.RaiseEpoch(e.ctx, "b")
	e.must(err)
	e.must(e.ackOne(im.AckReq{From: fresh, Conv: "b", Seq: 4}))
	st = e.device(q)
	e.wantConvs(st, "a:0/3 3 2@1.1 0 1", "b:4/5 1 4@2.2 0 3", "c:0/1 1 1@1.1 0 0")
}

func (e *env) ackOne(r im.AckReq) error {
	e.Helper()
	res, err := e.AckBatch(e.ctx, []im.AckReq{r})
	e.must(err)
	return res[0].Err
}

func devicePages(e *env) {
	var convs []Conv
	for i := range 7 {
		convs = append(convs, Conv{ID: fmt.Sprintf("c%d", i), Kind: "group", Mode: im.Push, Members: []string{"u-ana", "u-ben"}})
	}
	e.provision([]string{"u-ana", "u-ben"}, convs...)
	for i, c := range convs {
		e.fill(ben, c.ID, i)
	}
	worst := e.device(im.DeviceQuery{Device: "u-ana-d1", Limit: 2})
	e.wantConvs(worst, "c6:2/8 6 2@1.1 0 6", "c5:2/7 5 2@1.1 0 5")
	if !worst.More || worst.Looked != 7 || worst.Behind != 6 || worst.Lag != 21 || worst.NextAfter != "" {
		e.Fatalf("the worst: %+v", worst)
	}
	if all := e.device(im.DeviceQuery{Device: "u-ana-d1", Limit: 7}); all.More || len(all.Convs) != 7 {
		e.Fatalf("all: %+v", all)
	}
	var got []string
	q := im.DeviceQuery{Device: "u-ana-d1", ByID: true, Limit: 3}
	for {
		page := e.device(q)
		if page.Looked != len(page.Convs) || page.More != (page.NextAfter != "") {
			e.Fatalf("page %+v", page)
		}
		for _, c := range page.Convs {
			got = append(got, c.Conv)
		}
		if !page.More {
			break
		}
		q.After = page.NextAfter
	}
	if fmt.Sprint(got) != "[c0 c1 c2 c3 c4 c5 c6]" {
		e.Fatalf("pages of %v", got)
	}
	// Who has left is not behind what came later, and a page may be of exactly the limit.
	_, err := e.Leave(e.ctx, ana, "c6", "u-ana")
	e.must(err)
	e.must(e.ackOne(im.AckReq{From: ana, Conv: "c6", Seq: 9}))
	e.fill(user("u-ben"), "c6", 7) // of which six are repetitions
	last := e.device(im.DeviceQuery{Device: "u-ana-d1", ByID: true, After: "c5", Limit: 1})
	e.wantConvs(last, "c6:9/9 0 9@1.1 0 6")
	if last.More {
		e.Fatalf("more than the last: %+v", last)
	}
}

func deviceOutcomes(e *env) {
	e.direct()
	for _, c := range []struct {
		q    im.DeviceQuery
		want error
	}{
		{im.DeviceQuery{Device: "none"}, im.ErrUnknownDevice},
		{im.DeviceQuery{Device: "u-ana"}, im.ErrUnknownDevice}, // a user's id
		{im.DeviceQuery{}, im.ErrUnknownDevice},
		{im.DeviceQuery{Device: "a\x00"}, im.ErrBadRequest},
		{im.DeviceQuery{Device: "u-ana-d1", ByID: true, After: "a\x00"}, im.ErrBadRequest},
		{im.DeviceQuery{Device: "u-ana-d1", After: "c"}, im.ErrBadRequest},
		{im.DeviceQuery{Device: "u-ana-d1", Limit: -1}, im.ErrBadRequest},
		{im.DeviceQuery{Device: "u-ana-d1", Limit: im.MaxDevicePage + 1}, im.ErrBadRequest},
	} {
		_, err := e.DeviceState(e.ctx, c.q)
		e.wantErr(err, c.want)
	}
	if st := e.device(im.DeviceQuery{Device: "u-ana-d1", ByID: true, After: "zzz"}); len(st.Convs) != 0 || st.More || st.Looked != 0 {
		e.Fatalf("behind the last: %+v", st)
	}
}

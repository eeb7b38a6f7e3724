package postgres

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"imbench/server/internal/im"
)

var bodies = []string{"x", "hello", "grüße 😀", `'); --`, "nul\x00", "\xff"}

// cmid is the n-th key: every third is a UUID, as clients make them, which a row holds in another way.
func cmid(n int) string {
	if n%3 == 0 {
		return fmt.Sprintf("00000000-0000-4000-8000-%012d", n)
	}
	return fmt.Sprintf("k%d", n)
}

func (w *world) stepSend() error {
	var reqs []im.SendReq
	for range w.c.Int("batch", 1, 4) {
		conv := w.conv()
		r := im.SendReq{From: w.member(conv), Conv: conv, CMID: w.or(cmid(w.c.Int("key", 0, 99))), Body: bodies[max(0, w.c.Int("body", -6, len(bodies)-1))]}
		reqs = append(reqs, r)
	}
	return w.send(reqs)
}

// stepResend repeats an earlier send, perhaps one that retention removed, with another body, from another device, or by
// someone else.
func (w *world) stepResend() error {
	if len(w.sent) == 0 {
		return nil
	}
	from := w.sent
	if removed := slices.DeleteFunc(slices.Clone(from), func(r im.SendReq) bool { return w.model.SeqOf(r) > 0 }); len(removed) > 0 && w.chance("removed", 2) {
		from = removed
	}
	var reqs []im.SendReq
	for range w.c.Int("batch", 1, 3) {
		r := pick(w.c, "which", from)
		switch w.c.Int("change", 0, 5) {
		case 5:
			r.Body += "!"
		case 4:
			r.From.Device = pick(w.c, "device", w.devices[r.From.User])
		case 3:
			r.From = w.who(r.Conv)
		}
		reqs = append(reqs, r)
	}
	return w.send(reqs)
}

func (w *world) send(reqs []im.SendReq) error {
	wait := w.chance("wait", 2)
	if wait { // the contended lane has one conversation a call
		for i := range reqs {
			reqs[i].Conv = reqs[0].Conv
		}
	}
	got, err := w.store.SendBatch(w.ctx, reqs, wait)
	if err != nil {
		return err
	}
	want, err := w.model.SendBatch(w.ctx, reqs, wait)
	if err != nil {
		return err
	}
	for i, r := range reqs {
		w.note("send %q by %+v key %q body %q → %+v", short(r.Conv), r.From, short(r.CMID), r.Body, got[i])
		if err := w.result(r.Conv, true, got[i], want[i]); err != nil {
			return fmt.Errorf("request %d: %w", i, err)
		}
		if got[i].Err == nil && r.From.User != "" && len(w.devices[r.From.User]) > 0 {
			w.sent = append(w.sent, r)
		}
	}
	return nil
}

func short(s string) string {
	if len(s) > 20 {
		return s[:20] + "…"
	}
	return s
}

func (w *world) stepJoin() error  { return w.membership("join", w.store.Join, w.model.Join) }
func (w *world) stepLeave() error { return w.membership("leave", w.store.Leave, w.model.Leave) }

func (w *world) membership(name string, store, model memberFunc) error {
	conv := w.conv()
	by, user := w.member(conv), w.or(w.user(conv))
	if w.chance("oneself", 4) {
		user = by.User
	}
	got, err := store(w.ctx, by, conv, user)
	want, wantErr := model(w.ctx, by, conv, user)
	w.note("%s %q %q by %+v → %d, %v", name, conv, short(user), by, got, err)
	if err := same(err, wantErr); err != nil {
		return err
	}
	if wantErr == nil { // the next steps are likely to be about who came or went
		w.focus.conv, w.focus.user, w.focus.device = conv, user, w.devices[user][0]
	}
	return differ(got, want, got == want)
}

func (w *world) stepAck() error {
	if w.chance("reinstalled", 6) {
		if err := w.stepClaim(); err != nil {
			return err
		}
	}
	var reqs []im.AckReq
	for range w.c.Int("batch", 1, 3) {
		r := im.AckReq{Conv: w.conv()}
		r.From, r.Seq, r.Epoch = w.who(r.Conv), w.seq(r.Conv), w.epoch(r.Conv)
		if len(reqs) > 0 && w.chance("same cursor", 2) {
			r.From, r.Conv = reqs[0].From, reqs[0].Conv
		}
		if w.chance("told", 2) {
			r.Epoch = w.model.Epoch(r.Conv)
			r.Told = w.model.CouldBeTold(r)
		}
		reqs = append(reqs, r)
	}
	got, err := w.store.AckBatch(w.ctx, reqs)
	if err != nil {
		return err
	}
	want, err := w.model.AckBatch(w.ctx, reqs)
	if err != nil {
		return err
	}
	for i, r := range reqs {
		w.note("ack %q@%d epoch %d told %v by %+v → %+v", r.Conv, r.Seq, r.Epoch, r.Told, r.From, got[i])
		if err := same(got[i].Err, want[i].Err); err != nil {
			return fmt.Errorf("request %d: %w", i, err)
		}
		// Requests of one cursor that could not be merged may learn of it one after the other; alone there is one answer.
		if got[i].Err == nil && (got[i].Delivered < r.Seq || got[i].Delivered > want[i].Delivered || len(reqs) == 1 && got[i] != want[i]) {
			return fmt.Errorf("request %d: %w", i, differ(got[i], want[i], false))
		}
	}
	return nil
}

func (w *world) stepRead() error {
	var reqs []im.ReadReq
	for range w.c.Int("batch", 1, 3) {
		r := im.ReadReq{Conv: w.conv()}
		r.From, r.Seq, r.Epoch = w.who(r.Conv), w.seq(r.Conv), w.epoch(r.Conv)
		reqs = append(reqs, r)
	}
	got, err := w.store.ReadBatch(w.ctx, reqs)
	if err != nil {
		return err
	}
	want, err := w.model.ReadBatch(w.ctx, reqs)
	if err != nil {
		return err
	}
	for i, r := range reqs {
		w.note("read %q@%d epoch %d by %+v → %+v", short(r.Conv), r.Seq, r.Epoch, r.From, got[i])
		if err := same(got[i].Err, want[i].Err); err != nil {
			return fmt.Errorf("request %d: %w", i, err)
		}
		if got[i].Err = want[i].Err; got[i] != want[i] {
			return fmt.Errorf("request %d: %w", i, differ(got[i], want[i], false))
		}
	}
	return nil
}

func (w *world) stepRecall() error {
	var r im.RecallReq
	switch {
	case len(w.recalls) > 0 && w.chance("repeat", 3):
		if r = pick(w.c, "which", w.recalls); w.chance("another message", 4) {
			r.Seq++
		}
	case len(w.sent) > 0 && w.chance("own message", 2):
		m := pick(w.c, "which", w.sent)
		r = im.RecallReq{From: m.From, Conv: m.Conv, Seq: w.model.SeqOf(m), CMID: w.or(cmid(w.c.Int("key", 100, 120)))}
		if w.chance("by another", 4) {
			r.From = w.member(m.Conv)
		}
	default:
		r = im.RecallReq{Conv: w.conv(), CMID: cmid(w.c.Int("key", 90, 120))}
		r.From, r.Seq = w.member(r.Conv), w.seq(r.Conv)
	}
	got, want := w.store.Recall(w.ctx, r), w.model.Recall(w.ctx, r)
	w.note("recall %q@%d by %+v key %q → %+v", r.Conv, r.Seq, r.From, short(r.CMID), got)
	if got.Err == nil {
		w.recalls = append(w.recalls, r)
	}
	return w.result(r.Conv, false, got, want)
}

func (w *world) stepDirect() error {
	p, peer := w.who(""), w.or(w.user(""))
	id, created, err := w.store.Direct(w.ctx, p, peer)
	w.note("direct %+v with %q → %s, %v, %v", p, short(peer), id, created, err)
	w.model.NewConv = func() string { return id }
	wantID, wantCreated, wantErr := w.model.Direct(w.ctx, p, peer)
	if err := same(err, wantErr); err != nil {
		return err
	}
	if id != wantID || created != wantCreated {
		return fmt.Errorf("%s, %v, want %s, %v", id, created, wantID, wantCreated)
	}
	if created {
		w.convs = append(w.convs, id)
		return w.setTimes(id, 0)
	}
	return nil
}

func (w *world) stepClaim() error {
	var claims []im.RouteClaim
	for i := range w.c.Int("batch", 1, 2) {
		p := w.who(w.focus.conv)
		cl := im.RouteClaim{User: p.User, Device: p.Device, Install: p.Install, Gateway: pick(w.c, "gateway", []string{"g1", "g2"}), Conn: int64(i)}
		if w.chance("reinstalled", 2) {
			cl.Install++
		}
		claims = append(claims, cl)
	}
	got, err := w.store.ClaimRoutes(w.ctx, claims)
	if err != nil {
		return err
	}
	want, err := w.model.ClaimRoutes(w.ctx, claims)
	if err != nil {
		return err
	}
	for i, cl := range claims {
		w.note("claim %+v → %+v", cl, got[i])
		if err := same(got[i].Err, want[i].Err); err != nil {
			return err
		}
		if got[i].Err = nil; want[i].Err == nil {
			if err := differ(got[i], want[i], got[i] == want[i]); err != nil {
				return err
			}
			w.routes = append(w.routes, im.Route{Device: cl.Device, Generation: got[i].Generation})
			w.focus.user, w.focus.device = cl.User, cl.Device
		}
	}
	return nil
}

func (w *world) stepRelease() error {
	if len(w.routes) == 0 {
		return nil
	}
	r := pick(w.c, "route", w.routes[max(0, len(w.routes)-4):])
	w.note("release %+v", r)
	err := w.store.ReleaseRoutes(w.ctx, []im.Route{r})
	if err == nil {
		err = w.model.ReleaseRoutes(w.ctx, []im.Route{r})
	}
	return err
}

// stepAge lets time pass.
func (w *world) stepAge() error {
	d := ageStep * time.Duration(w.c.Int("long", 1, 3))
	w.note("%v pass", d)
	w.aged += d
	for _, id := range w.convs {
		if err := (fixture{w.store.Store}).Age(w.ctx, id, d); err != nil {
			return err
		}
		if err := w.model.Age(w.ctx, id, d); err != nil {
			return err
		}
	}
	return nil
}

// stepRetain does one step of retention, often too small for all that is due; the model follows where it is allowed to.
func (w *world) stepRetain() error {
	if w.chance("later", 2) {
		if err := w.stepAge(); err != nil {
			return err
		}
	}
	limit := []int{1000, 1000, 1, 2, 5, 5, 0, -1}[w.c.Int("limit", 0, 7)]
	rep, err := w.store.Retain(w.ctx, limit, keepKeys)
	w.note("retain %d → %+v, %v", limit, rep, err)
	if limit < 1 {
		return same(err, im.ErrBadRequest)
	}
	if err != nil {
		return err
	}
	begins, tombs, err := w.retained()
	if err != nil {
		return err
	}
	return w.model.Follow(rep, limit, keepKeys, begins, tombs)
}

func (w *world) stepEpoch() error {
	if w.chance("all", 8) {
		n, err := w.store.RaiseAllEpochs(w.ctx, nil)
		w.note("all epochs raised → %d, %v", n, err)
		want, wantErr := w.model.RaiseAllEpochs(w.ctx, nil)
		if err := same(err, wantErr); err != nil {
			return err
		}
		return differ(n, want, n == want)
	}
	conv := w.conv()
	got, err := w.store.RaiseEpoch(w.ctx, conv)
	want, wantErr := w.model.RaiseEpoch(w.ctx, conv)
	w.note("epoch of %q raised → %d, %v", short(conv), got, err)
	if err := same(err, wantErr); err != nil {
		return err
	}
	return differ(got, want, got == want)
}

func (w *world) stepLagging() error {
	gateway := pick(w.c, "gateway", []string{"g1", "g2", "g3"})
	heads, err := w.store.Heads(w.ctx, append(slices.Clone(w.convs), "no-such"))
	if err != nil {
		return err
	}
	wantHeads, err := w.model.Heads(w.ctx, w.convs)
	if err != nil {
		return err
	}
	if err := differ(heads, wantHeads, maps.Equal(heads, wantHeads)); err != nil {
		return err
	}
	var ask []im.Head
	for _, id := range w.convs {
		ask = append(ask, im.Head{Conv: id, To: heads[id] - int64(w.c.Int("older", 0, 2))})
	}
	got, err := w.store.Lagging(w.ctx, gateway, ask, 1000)
	if err != nil {
		return err
	}
	want, err := w.model.Lagging(w.ctx, gateway, ask, 1000)
	if err != nil {
		return err
	}
	w.note("lagging at %s of %v → %v", gateway, ask, got)
	return sameSet(got, want)
}

// sameSet compares answers whose order is not stated.
func sameSet[T any](got, want []T) error {
	text := func(list []T) []string {
		var out []string
		for _, v := range list {
			out = append(out, fmt.Sprintf("%+v", v))
		}
		slices.Sort(out)
		return out
	}
	return differ(got, want, slices.Equal(text(got), text(want)))
}

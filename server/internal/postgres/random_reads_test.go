package postgres

import (
	"context"
	"fmt"
	"slices"

	"imbench/server/internal/im"
)

type memberFunc func(context.Context, im.Principal, string, string) (int64, error)

// page compares two pages.
func (w *world) page(got, want im.Page, err, wantErr error) error {
	if err := same(err, wantErr); err != nil || wantErr != nil {
		return err
	}
	if err := w.events(got.Events, want.Events); err != nil {
		return err
	}
	got.Events, want.Events = nil, nil
	return differ(got, want, fmt.Sprint(got) == fmt.Sprint(want))
}

var pageLimits = []int{0, 1, 2, 3, 200, 201, -1}

// stepSync reads a page, and often goes on to the end of the log as a client does: nothing comes twice, nothing is missed
// (O2, O3), because the model's pages are the same.
func (w *world) stepSync() error {
	r := im.SyncReq{Conv: w.conv(), Limit: pick(w.c, "limit", pageLimits)}
	r.From = w.who(r.Conv)
	if r.Epoch = w.epoch(r.Conv); w.chance("from a place", 2) {
		r.After = w.seq(r.Conv)
	}
	for {
		got, err := w.store.Sync(w.ctx, r)
		want, wantErr := w.model.Sync(w.ctx, r)
		w.note("sync %q after %d limit %d epoch %d by %+v → %d events, next %d, more %v, %v", short(r.Conv), r.After, r.Limit, r.Epoch, r.From, len(got.Events), got.NextAfter, got.HasMore, err)
		if err := w.page(got, want, err, wantErr); err != nil || !want.HasMore {
			return err
		}
		r.After = got.NextAfter
	}
}

// stepSyncBatch reads pages for a crowd, in which some ask for the same, some joined late or have left, and some ask for what
// cannot be: each is answered as if it were alone.
func (w *world) stepSyncBatch() error {
	conv, after := w.conv(), int64(0)
	if w.chance("from a place", 2) {
		after = w.seq(conv)
	}
	reqs := make([]im.SyncReq, w.c.Int("requests", 2, 8))
	for i := range reqs {
		r := im.SyncReq{Conv: conv, After: after, Limit: 3}
		if w.chance("another place", 4) {
			r.Conv = w.conv()
			r.After = w.seq(r.Conv)
		}
		if w.chance("another limit", 4) {
			r.Limit = pick(w.c, "limit", pageLimits)
		}
		r.From = w.who(r.Conv)
		r.Epoch = w.epoch(r.Conv)
		reqs[i] = r
	}
	got, err := w.store.SyncBatch(w.ctx, reqs)
	want, wantErr := w.model.SyncBatch(w.ctx, reqs)
	w.note("sync of %d in a batch, most of %q after %d → %v", len(reqs), short(conv), after, err)
	if err := same(err, wantErr); err != nil || wantErr != nil {
		return err
	}
	for i := range reqs {
		if err := w.page(got[i].Page, want[i].Page, got[i].Err, want[i].Err); err != nil {
			return fmt.Errorf("request %d of the batch, %+v: %w", i, reqs[i], err)
		}
	}
	return nil
}

func (w *world) stepBefore() error {
	conv, limit := w.conv(), pick(w.c, "limit", pageLimits)
	p := w.who(conv)
	before := int64(0)
	if w.chance("from a place", 2) {
		before = w.seq(conv)
	}
	for {
		got, err := w.store.Before(w.ctx, p, conv, before, limit)
		want, wantErr := w.model.Before(w.ctx, p, conv, before, limit)
		w.note("before %q@%d limit %d by %+v → %d events, more %v, %v", short(conv), before, limit, p, len(got.Events), got.HasMore, err)
		if err := w.page(got, want, err, wantErr); err != nil || !want.HasMore {
			return err
		}
		before = got.Events[0].Seq
	}
}

func (w *world) stepFetch() error {
	conv := w.conv()
	p, seq := w.who(conv), w.seq(conv)
	got, err := w.store.Fetch(w.ctx, p, conv, seq)
	want, wantErr := w.model.Fetch(w.ctx, p, conv, seq)
	w.note("fetch %q@%d by %+v → %s %q, %v", short(conv), seq, p, got.Kind, got.Body, err)
	if err := same(err, wantErr); err != nil || wantErr != nil {
		return err
	}
	return w.events([]im.Event{got}, []im.Event{want})
}

func (w *world) stepReceipts() error {
	conv := w.conv()
	p, seq := w.who(conv), w.seq(conv)
	got, err := w.store.Receipts(w.ctx, p, conv, seq)
	want, wantErr := w.model.Receipts(w.ctx, p, conv, seq)
	w.note("receipts %q@%d by %+v → %+v, %v", short(conv), seq, p, got, err)
	if err := same(err, wantErr); err != nil || wantErr != nil {
		return err
	}
	return differ(got, want, got == want)
}

// listing draws what Convs and Inbox take.
func (w *world) listing() (p im.Principal, after string, limit int) {
	p, limit = w.who(w.focus.conv), []int{0, 1, 2, 100, 501, -1}[w.c.Int("limit", 0, 5)]
	if w.chance("from a place", 3) {
		after = w.conv()
	}
	return p, after, limit
}

func (w *world) stepConvs() error {
	p, after, limit := w.listing()
	got, more, err := w.store.Convs(w.ctx, p, after, limit)
	want, wantMore, wantErr := w.model.Convs(w.ctx, p, after, limit)
	if w.chance("brief", 2) {
		got, more, err = w.store.Standings(w.ctx, p, after, limit)
		want, wantMore, wantErr = w.model.Standings(w.ctx, p, after, limit)
	}
	w.note("convs after %q limit %d of %+v → %+v, %v, %v", short(after), limit, p, got, more, err)
	if err := same(err, wantErr); err != nil || wantErr != nil {
		return err
	}
	return differ(got, want, slices.Equal(got, want) && more == wantMore)
}

func (w *world) stepInbox() error {
	p, after, limit := w.listing()
	if w.chance("present installation", 4) {
		p.Install = 0
	}
	got, more, err := w.store.Inbox(w.ctx, p, after, limit)
	want, wantMore, wantErr := w.model.Inbox(w.ctx, p, after, limit)
	w.note("inbox after %q limit %d of %+v → %d entries, %v, %v", short(after), limit, p, len(got), more, err)
	if err := same(err, wantErr); err != nil || wantErr != nil {
		return err
	}
	if len(got) != len(want) || more != wantMore {
		return fmt.Errorf("%d entries and more %v, want %d and %v", len(got), more, len(want), wantMore)
	}
	for i := range got {
		g, m := got[i], want[i]
		if err := w.events(list(g.Last), list(m.Last)); err != nil {
			return err
		}
		g.Last, m.Last = nil, nil
		if err := differ(g, m, g == m); err != nil {
			return err
		}
	}
	return nil
}

func list(ev *im.Event) []im.Event {
	if ev == nil {
		return nil
	}
	return []im.Event{*ev}
}

// stepFanOut reads what fan-out reads: events whatever their visibility, and who may see them.
func (w *world) stepFanOut() error {
	var ranges []im.SeqRange
	for _, id := range w.convs {
		from := w.seq(id)
		if r := (im.SeqRange{Conv: id, From: from, To: from}); from > 0 && from < 1<<30 {
			r.To += int64(w.c.Int("length", 0, 5))
			ranges = append(ranges, r)
		}
	}
	got, err := w.store.Events(w.ctx, ranges)
	if err != nil {
		return err
	}
	want, err := w.model.Events(w.ctx, ranges)
	if err != nil {
		return err
	}
	w.note("events %v → %d", ranges, len(got))
	if err := w.events(got, want); err != nil {
		return err
	}
	infos, err := w.store.ConvInfos(w.ctx, ranges)
	if err != nil {
		return err
	}
	wantInfos, err := w.model.ConvInfos(w.ctx, ranges)
	if err != nil {
		return err
	}
	for _, l := range [][]im.ConvInfo{infos, wantInfos} {
		for _, i := range l {
			slices.SortFunc(i.Periods, func(a, b im.Period) int { return int(a.From - b.From) })
		}
	}
	return sameSet(infos, wantInfos)
}

package storetest

import (
	"slices"

	"imbench/server/internal/im"
)

// backwards reads everything that a principal may see, from the head back, in pages of limit.
func (e *env) backwards(p im.Principal, conv string, limit int) []im.Event {
	e.Helper()
	var all []im.Event
	for before := int64(0); ; {
		page, err := e.Before(e.ctx, p, conv, before, limit)
		e.must(err)
		all = append(slices.Clone(page.Events), all...)
		if len(page.Events) > limit || page.HasMore && len(page.Events) < limit {
			e.Fatalf("a page of %d for a limit of %d, more %v", len(page.Events), limit, page.HasMore)
		}
		if !page.HasMore {
			return all
		}
		before = page.Events[0].Seq
	}
}

func historyBackwards(e *env) {
	e.direct()
	e.talk(ana, "c1", 250) // 3..252
	page, err := e.Before(e.ctx, ana, "c1", 0, 0)
	e.must(err)
	if len(page.Events) != im.DefaultSyncLimit || !page.HasMore || page.Events[0].Seq != 153 || page.Events[99].Seq != 252 ||
		page.Head != 252 || page.MinSeq != 1 || page.Epoch != 1 || page.NextAfter != 0 {
		e.Fatalf("the last page: %d events, %+v", len(page.Events), pageWithout(page))
	}
	for _, limit := range []int{1, 7, 84, 126, 200} {
		if got, want := e.backwards(ana, "c1", limit), e.history(ana, "c1", 200); !slices.Equal(got, want) {
			e.Fatalf("pages of %d: %d events backwards, %d forwards", limit, len(got), len(want))
		}
	}
	for _, c := range []struct {
		before int64
		n      int
		more   bool
	}{{1, 0, false}, {2, 1, false}, {3, 2, false}, {11, 10, false}, {12, 10, true}, {253, 10, true}, {1 << 62, 10, true}} {
		page, err := e.Before(e.ctx, ana, "c1", c.before, 10)
		e.must(err)
		if len(page.Events) != c.n || page.HasMore != c.more {
			e.Fatalf("before %d: %d events, more %v, want %d and %v", c.before, len(page.Events), page.HasMore, c.n, c.more)
		}
	}
	for _, c := range []struct {
		p      im.Principal
		conv   string
		before int64
		limit  int
		want   error
	}{
		{ana, "c1", -1, 10, im.ErrBadRequest}, {ana, "c1", 0, -1, im.ErrBadRequest}, {ana, "c\x00", 0, 1, im.ErrBadRequest},
		{ana, "c1", 0, im.MaxSyncLimit + 1, im.ErrBadRequest}, {cyn, "c1", 0, 1, im.ErrNotMember}, {ana, "none", 0, 1, im.ErrNotMember},
	} {
		_, err := e.Before(e.ctx, c.p, c.conv, c.before, c.limit)
		e.wantErr(err, c.want)
	}
}

// historyOfPeriods: backwards as forwards, a user sees their periods and nothing between.
func historyOfPeriods(e *env) {
	e.setup("g1", []string{"u-ana", "u-ben"}, 2)
	for range 3 {
		e.talk(ana, "g1", 3)
		_, err := e.Leave(e.ctx, ana, "g1", "u-ben")
		e.must(err)
		e.talk(ana, "g1", 3)
		_, err = e.Join(e.ctx, ana, "g1", "u-ben")
		e.must(err)
	}
	_, err := e.Leave(e.ctx, ana, "g1", "u-ben")
	e.must(err)
	e.talk(ana, "g1", 3)
	for limit := 1; limit <= 8; limit++ {
		got := show(e.backwards(ben, "g1", limit))
		want := "join@2 msg@3 msg@4 msg@5 leave@6 join@10 msg@11 msg@12 msg@13 leave@14 join@18 msg@19 msg@20 msg@21 leave@22 join@26 leave@27"
		if got != want {
			e.Fatalf("pages of %d: %q, want %q", limit, got, want)
		}
	}
	page, err := e.Before(e.ctx, ben, "g1", 0, 1)
	if e.must(err); page.Head != 27 {
		e.Fatalf("one who left learns of head %d", page.Head)
	}
}

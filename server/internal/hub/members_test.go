package hub

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"imbench/server/internal/im"
)

// membersAt lists the members at seq, as the log has them.
func membersAt(periods []im.Period, seq int64) string {
	var users []string
	for _, p := range periods {
		if p.From <= seq && (p.To == 0 || seq <= p.To) {
			users = append(users, p.User)
		}
	}
	slices.Sort(users)
	return strings.Join(users, " ")
}

// members lists those at seq, as an entry has them.
func members(e *entry, seq int64) string {
	var users []string
	e.each(seq, seq, func(u *user) bool {
		users = append(users, u.id)
		return true
	})
	slices.Sort(users)
	return strings.Join(users, " ")
}

// 08-cache-version: whatever the order of joins, leaves, rejoins and messages, the members that a cache entry gives for
// a seq are those of the log; where it cannot know them it says so.
func TestMembersAgainstTheLog(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newMemory()
		m.create("c", im.Push, "u0", "u1")
		in := map[string]bool{"u0": true, "u1": true}
		for range rapid.IntRange(1, 40).Draw(t, "events") {
			u := fmt.Sprint("u", rapid.IntRange(0, 4).Draw(t, "user"))
			switch k := rapid.IntRange(0, 2).Draw(t, "kind"); {
			case k == 0:
				m.msg("c", "u0", "d0")
			case in[u]:
				m.add("c", im.Event{Kind: im.KindLeave, User: u})
				in[u] = false
			default:
				m.add("c", im.Event{Kind: im.KindJoin, User: u})
				in[u] = true
			}
		}
		log := m.convs["c"].events
		head := int64(len(log))
		// What a load at some earlier time, with an earlier head, would have given.
		at := rapid.Int64Range(2, head).Draw(t, "loaded at head")
		past := newMemory()
		past.create("c", im.Push)
		for _, ev := range log[:at] {
			past.add("c", im.Event{Kind: ev.Kind, User: ev.User})
		}
		from := rapid.Int64Range(1, at).Draw(t, "from")
		infos, _ := past.ConvInfos(t.Context(), []im.SeqRange{{Conv: "c", From: from}})
		r := newRegistry()
		e := &entry{conv: "c"}
		e.load(&r, infos[0], from)
		for seq := from; seq <= head; seq++ {
			if !e.valid(seq) || !e.apply(&r, &log[seq-1]) {
				t.Fatalf("seq %d follows %d..%d and is refused", seq, e.lo, e.hi)
			}
			if got, want := members(e, seq), membersAt(m.convs["c"].periods, seq); got != want {
				t.Fatalf("members at %d: %q, want %q", seq, got, want)
			}
			if e.count(seq) != len(strings.Fields(members(e, seq))) {
				t.Fatal("count")
			}
			e.compact(&r, seq)
		}
		if e.valid(head+2) || e.valid(e.lo-1) || e.apply(&r, &im.Event{Seq: head + 2}) {
			t.Fatal("a gap was not noticed")
		}
		refs := 0
		for _, u := range r.users {
			refs += u.refs
		}
		if refs != len(e.members)+len(e.ended) {
			t.Fatalf("%d references for %d open and %d ended periods", refs, len(e.members), len(e.ended))
		}
		e.forget(&r)
		if len(r.users) != 0 {
			t.Fatalf("forgotten, and still known: %v", r.users)
		}
	})
}

func TestCompactKeepsWhatIsStillAsked(t *testing.T) {
	r := newRegistry()
	e := &entry{}
	e.load(&r, im.ConvInfo{Head: 1, Periods: []im.Period{{User: "stays", From: 1}}}, 1)
	for seq := int64(2); seq < 500; seq += 2 {
		e.apply(&r, &im.Event{Kind: im.KindJoin, User: "guest", Seq: seq})
		e.apply(&r, &im.Event{Kind: im.KindLeave, User: "guest", Seq: seq + 1})
		e.compact(&r, seq+1)
	}
	if len(e.members) > 2 || len(e.ended) > maxEnded+1 {
		t.Fatalf("%d open periods, %d ended", len(e.members), len(e.ended))
	}
	if got := members(e, e.hi); got != "guest stays" {
		t.Fatalf("members at the last leave: %q", got)
	}
	if e.valid(100) {
		t.Fatal("the entry claims to know what it has dropped")
	}
}

// The cache stays within both limits, evicts the least recently used, and counts right.
func TestCacheIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newRegistry()
		c := newCache(&r, 8, 40)
		var order []string // most recently used last
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			conv := fmt.Sprint("c", rapid.IntRange(0, 12).Draw(t, "conv"))
			e := c.get(conv)
			if (e != nil) != slices.Contains(order, conv) {
				t.Fatalf("%s: cached %v, order %v", conv, e != nil, order)
			}
			if e == nil {
				e = c.add(conv)
			}
			order = append(slices.DeleteFunc(order, func(s string) bool { return s == conv }), conv)
			info := im.ConvInfo{Conv: conv, Head: 99}
			for i := range rapid.Int64Range(0, 15).Draw(t, "periods") {
				info.Periods = append(info.Periods, im.Period{User: fmt.Sprint("u", i%5), From: i + 1, To: (i % 2) * (i + 1)})
			}
			e.load(&r, info, 1)
			c.resized(e)
			for len(order) > len(c.entries) {
				order = order[1:]
			}
			total, refs := 0, 0
			for _, u := range r.users {
				refs += u.refs
			}
			for _, e := range c.entries {
				total += len(e.members) + len(e.ended)
			}
			if total != c.periods || total != refs || len(c.entries) > 8 || (total > 40 && len(c.entries) > 1) {
				t.Fatalf("%d periods counted as %d, %d references, in %d entries", total, c.periods, refs, len(c.entries))
			}
		}
	})
}

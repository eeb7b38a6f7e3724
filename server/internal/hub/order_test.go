package hub

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"imbench/server/internal/im"
)

// A round of conversations that each lack much, before and behind what was fanned out, asks for no more than the store
// gives in one call: it would be refused again and again.
func TestRoundStaysBelowTheStoresLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		cfg := testConfig()
		cfg.Shards, cfg.MaxGap = 1, 64
		h := newHub(t, cfg, m)
		connect(t, h, "ben", "b1").start()
		own, last := int64(cfg.MaxGap+1), int64(2*cfg.MaxGap)
		conv := func(i int) string { return fmt.Sprint("c", i) }
		for i := range waitingConvs {
			m.create(conv(i), im.Push, "ana", "ben")
			for range last - 2 {
				m.msg(conv(i), "ana", "a1")
			}
			h.Committed(m.convs[conv(i)].events[own-1 : own])
		}
		synctest.Wait()
		_, before, _, _ := m.reads()
		m.fail(errAway)
		for i := range waitingConvs {
			h.Announced(head(conv(i), 3, last))
		}
		synctest.Wait()
		m.fail(nil)
		errs := h.metrics.readErrors.Load()
		advance(time.Minute)
		_, rows, _, _ := m.reads()
		if want := waitingConvs * int(last-3); rows-before != want || want <= im.MaxRangeEvents || h.metrics.readErrors.Load() != errs {
			t.Errorf("%d events read, want %d; %d reads failed", rows-before, want, h.metrics.readErrors.Load()-errs)
		}
	})
}

// permutations calls f with each order of 0..n-1.
func permutations(n int, f func(order []int)) {
	var rec func(order []int)
	rec = func(order []int) {
		if len(order) == n {
			f(order)
			return
		}
		for i := range n {
			if !slices.Contains(order, i) {
				rec(append(slices.Clone(order), i))
			}
		}
	}
	rec(nil)
}

// Announcements of one conversation come in any order, this gateway's own commits among them: every seq is pushed, and
// pushed once. Where the cache has forgotten the conversation in between it is at least that.
func TestAnyOrderOfAnnouncements(t *testing.T) {
	own := func(seq int64) func(h *Hub, m *memory) {
		return func(h *Hub, m *memory) { h.Committed(m.convs["c"].events[seq-1 : seq]) }
	}
	told := func(from, to int64) func(h *Hub, m *memory) {
		return func(h *Hub, _ *memory) { h.Announced(head("c", from, to)) }
	}
	evict := func(h *Hub, m *memory) { h.Committed(m.convs["other"].events[2:]) }
	for _, c := range []struct {
		name  string
		steps []func(*Hub, *memory)
		want  string
	}{
		{"own 4, told 3", []func(*Hub, *memory){own(4), told(3, 3)}, "[ev c 3 ev c 4]"},
		{"own 4, told 5", []func(*Hub, *memory){own(4), told(5, 5)}, "[ev c 4 ev c 5]"},
		{"own 4, told 3 and 5", []func(*Hub, *memory){own(4), told(3, 3), told(5, 5)}, "[ev c 3 ev c 4 ev c 5]"},
		{"own 4, told 3-5", []func(*Hub, *memory){own(4), told(3, 5)}, "[ev c 3 ev c 4 ev c 5]"},
		{"own 5, told 3-4 twice", []func(*Hub, *memory){own(5), told(3, 4), told(3, 4)}, "[ev c 3 ev c 4 ev c 5]"},
		{"own 3 and 6, told 4-5", []func(*Hub, *memory){own(3), own(6), told(4, 5)}, "[ev c 3 ev c 4 ev c 5 ev c 6]"},
		{"own 4, told 3, evicted", []func(*Hub, *memory){own(4), told(3, 3), evict}, "[ev c 3 ev c 4]"},
		{"own 4, told 3-5, evicted", []func(*Hub, *memory){own(4), told(3, 3), told(5, 5), evict}, "[ev c 3 ev c 4 ev c 5]"},
	} {
		for _, settle := range []bool{true, false} {
			permutations(len(c.steps), func(order []int) {
				t.Run(fmt.Sprint(c.name, " ", order, " settled=", settle), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						m := newMemory()
						m.create("c", im.Push, "ana", "ben")
						m.create("other", im.Push, "ana", "cid")
						m.msg("other", "ana", "a1")
						for range 4 {
							m.msg("c", "ana", "a1")
						}
						cfg := testConfig()
						cfg.Shards, cfg.CacheConvs = 1, 1
						h := newHub(t, cfg, m)
						ben := connect(t, h, "ben", "b1").start()
						for _, i := range order {
							c.steps[i](h, m)
							if settle {
								synctest.Wait()
							}
						}
						synctest.Wait()
						got := ben.texts()
						slices.Sort(got)
						if strings.Contains(c.name, "evicted") {
							got = slices.Compact(got)
						}
						if fmt.Sprint(got) != c.want {
							t.Fatalf("got %v, want %s", got, c.want)
						}
					})
				})
			})
		}
	}
}

// What lies far behind what was fanned out is not pushed: the devices have found that gap by themselves.
func TestLateAnnouncementIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		m.create("c", im.Push, "ana", "ben")
		m.create("hinted", im.Pull, "ana", "ben")
		cfg := testConfig()
		cfg.MaxGap = 5
		h := newHub(t, cfg, m)
		ben := connect(t, h, "ben", "b1").start()
		for range 20 {
			m.msg("c", "ana", "a1")
			m.msg("hinted", "ana", "a1")
		}
		h.Announced(head("c", 20, 20))
		ben.expect("ev c 20")
		h.Announced(head("c", 15, 15))
		ben.expect()
		h.Announced(head("c", 16, 17))
		ben.expect("ev c 16", "ev c 17", "ev c 18", "ev c 19")
		h.Announced(head("c", 15, 22))
		ben.expect("ev c 15", "ev c 21", "ev c 22")
		if _, rows, _, _ := m.reads(); rows != 8 {
			t.Fatalf("%d events read for 8 that were pushed", rows)
		}
		h.Announced(head("hinted", 20, 20))
		ben.expect("hint hinted 20")
		h.Announced(head("hinted", 19, 19)) // says nothing that the later hint does not
		ben.expect()
	})
}

// What came again with its bytes, beside something late, is not pushed again.
func TestLateAnnouncementBesideARepetition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		m.create("c", im.Push, "ana", "ben")
		h := newHub(t, testConfig(), m)
		ben := connect(t, h, "ben", "b1").start()
		m.msg("c", "ana", "a1")
		ev := m.msg("c", "ana", "a1")
		h.Committed([]im.Event{ev})
		ben.expect("ev c 4")
		h.Announced(head("c", 3, 3))
		h.Committed([]im.Event{ev})
		ben.expect("ev c 3")
		if _, rows, _, _ := m.reads(); rows != 1 {
			t.Fatalf("%d events read", rows)
		}
	})
}

// A change of members and the head of its event may come in either order and in one batch or two: whoever joined is
// told, though nobody here was a member before.
func TestMembersChangedBeforeOrAfterTheHead(t *testing.T) {
	for _, c := range []struct {
		name          string
		headFirst     bool
		settle, fails bool
		want          string
	}{
		{"members, head", false, true, false, "ev c 5"},
		{"head, members", true, true, false, "hint c 5"},
		{"one batch, members first", false, false, false, "ev c 5"},
		{"one batch, head first", true, false, false, "ev c 5"},
		{"head, members, the store away meanwhile", true, true, true, "hint c 5"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMemory()
				m.create("c", im.Push, "ana", "ben")
				h := newHub(t, testConfig(), m)
				cid := connect(t, h, "cid", "c1").start()
				for range 2 { // the cache knows the members, and none is here
					h.Announced(head("c", m.msg("c", "ana", "a1").Seq, 4))
					synctest.Wait()
				}
				join := m.add("c", im.Event{Kind: im.KindJoin, User: "cid"})
				steps := []func(){func() { h.MembersChanged("c") }, func() { h.Announced(head("c", join.Seq, join.Seq)) }}
				if c.headFirst {
					slices.Reverse(steps)
				}
				for _, step := range steps {
					step()
					if c.settle {
						synctest.Wait()
					}
					if c.fails {
						m.fail(errAway)
					}
				}
				if c.fails {
					cid.expect()
					m.fail(nil)
					advance(3 * time.Second)
				}
				cid.expect(c.want)
				h.Announced(head("c", m.msg("c", "ana", "a1").Seq, 6))
				cid.expect("ev c 6")
				h.MembersChanged("c")
				cid.expect()
			})
		})
	}
}

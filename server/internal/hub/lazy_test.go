package hub

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"imbench/server/internal/im"
)

// Four devices in five never acknowledge, and the sweep may send fewer hints than they are due: what an honest device has
// lost is repaired within grace and two periods all the same, as it was not told again before; and when the lazy ones lack
// the same message, as soon as each of them has been told once.
func TestSweepStarvesNoLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const devices, honest, losers, convs, hints = 100, 20, 5, 8, 20
		m := newMemory()
		var users []string
		for i := range devices {
			users = append(users, fmt.Sprint("u", i))
		}
		for i := range convs {
			m.create(fmt.Sprint("c", i), im.Push, append(users, "ana")...)
		}
		m.create("few", im.Push, append(users[:honest:honest], "ana")...)
		m.create("all", im.Push, append(users, "ana")...)
		cfg := sweepConfig()
		cfg.SweepHints, cfg.Heartbeat = hints, time.Hour
		h := newHub(t, cfg, m)
		var peers []*peer
		for i, u := range users {
			peers = append(peers, connect(t, h, u, fmt.Sprint("d", i)).start())
		}
		tell := func(conv string, deaf int) {
			ev := m.msg(conv, "ana", "a1")
			h.Committed([]im.Event{ev})
			synctest.Wait()
			for _, p := range peers[deaf:honest] {
				p.conn.Acked(conv, ev.Seq)
			}
		}
		told := func(conv string) (n int) {
			synctest.Wait()
			for _, p := range peers[:losers] {
				if slices.ContainsFunc(p.texts(), func(s string) bool { return s == fmt.Sprint("hint ", conv, " ", len(m.convs[conv].events), " sweep") }) {
					n++
				}
			}
			return n
		}
		advance(cfg.Sweep / 2) // nothing below is asked at the moment of a sweep
		for i := range convs {
			tell(fmt.Sprint("c", i), 0)
		}
		advance(time.Minute) // all lazy ones have been told again at least once, and more of them are due than the bound allows
		before := h.metrics.sweepHints.Load()
		advance(cfg.Sweep)
		if n := h.metrics.sweepHints.Load() - before; n != hints {
			t.Fatalf("%d hints a period, want %d: the bound is not met, so that nobody could starve", n, hints)
		}
		tell("few", losers)
		advance(cfg.Grace + 2*cfg.Sweep)
		if n := told("few"); n != losers {
			t.Errorf("%d of %d were told what they had lost", n, losers)
		}
		tell("all", losers)
		lazy := devices - honest
		advance(cfg.Grace + 2*cfg.Sweep + time.Duration((lazy+losers)/hints)*cfg.Sweep)
		if n := told("all"); n != losers {
			t.Errorf("%d of %d were told what they had lost as the lazy ones had", n, losers)
		}
	})
}

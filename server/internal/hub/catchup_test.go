package hub

import (
	"testing"
	"testing/synctest"
	"time"

	"imbench/server/internal/im"
)

// A conversation that was quiet since the start, so that nothing is known of it here, was written to while nobody
// listened: its members are told when the hub catches up, and not only by the sweep.
func TestResyncFindsConversationsThatWereQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		m.create("c", im.Push, "ana", "ben")
		m.create("d", im.Pull, "ana", "ben")
		cfg := testConfig()
		cfg.Sweep, cfg.Shards = 0, 1
		h := newHub(t, cfg, m)
		ben := connect(t, h, "ben", "b1").start()
		advance(20 * time.Second)
		m.msg("c", "ana", "a1")
		m.msg("c", "ana", "a1")
		m.msg("d", "ana", "a1")
		m.mu.Lock()
		m.lags = []im.Lag{{Conv: "c", Head: 4}, {Conv: "d", Head: 3}} // of which Written tells the conversations
		m.mu.Unlock()
		advance(20 * time.Second)
		ben.expect()
		h.Resync()
		advance(time.Second)
		ben.expect("ev c 4", "hint d 3")
		// Nothing is told twice.
		h.Resync()
		advance(time.Second)
		ben.expect()
	})
}

func TestRoutesAreThoseOfTheRegistered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub(t, testConfig(), newMemory())
		if n := len(h.Routes()); n != 0 {
			t.Fatalf("%d routes without a connection", n)
		}
		ben := connect(t, h, "ben", "b1").start()
		list := h.Routes()
		if len(list) != 1 || list[0].Device != "b1" || !h.Holds(list[0].Route) {
			t.Fatalf("routes %+v", list)
		}
		other := list[0].Route
		other.Generation++
		if h.Holds(other) || h.Holds(im.Route{Device: "b2", Generation: list[0].Generation}) {
			t.Error("a route that nobody holds")
		}
		h.RouteTaken("b1", other.Generation)
		synctest.Wait()
		if ben.mu.Lock(); ben.closed != 4003 {
			t.Errorf("closed with %d", ben.closed)
		}
		ben.mu.Unlock()
		ben.conn.Gone(0)
		if n := len(h.Routes()); n != 0 {
			t.Fatalf("%d routes after the only one was taken", n)
		}
	})
}

package hub

import (
	"fmt"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"imbench/server/wire"
)

// closedWith says with which code our side closed a connection, 0 if it did not.
func closedWith(c *Conn) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.code
}

// register is a handshake: claim, register.
func register(h *Hub, c *Conn, user, device string, generation int64) bool {
	h.Claiming(device)
	return h.Register(c, Peer{User: user, Device: device, Generation: generation})
}

// others counts a user's devices but one.
func (h *Hub) others(user, but string) int {
	h.registry.mu.RLock()
	defer h.registry.mu.RUnlock()
	return h.registry.othersLocked(user, but)
}

// Places are taken before connections are registered, one a device, and come back.
func TestReserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub(t, testConfig(), newMemory())
		reserve := func(device string, want bool) {
			t.Helper()
			if got := h.Reserve("u", device, 2); got != want {
				t.Errorf("%s: %v, want %v", device, got, want)
			}
		}
		reserve("d1", true)
		reserve("d2", true)
		reserve("d2", true) // a second handshake of the same device
		reserve("d3", false)
		if !h.Reserve("v", "e1", 1) {
			t.Error("another user's place was taken")
		}
		h.Unreserve("u", "d2")
		reserve("d3", false) // the other handshake goes on
		h.Unreserve("u", "d2")
		reserve("d3", true)
		h.Unreserve("u", "d3")
		connect(t, h, "u", "d1").start() // registered, with its place still taken: that is one device
		reserve("d2", true)
		h.Unreserve("u", "d2")
		h.Unreserve("u", "d1")
		h.Unreserve("v", "e1")
		if n := h.others("u", ""); n != 1 || len(h.registry.coming) != 0 {
			t.Errorf("%d devices, left behind: %v", n, h.registry.coming)
		}
	})
}

// G1, G2: of two connections of a device the newer generation stays, in whichever order they come; the clean-up of the
// old one does not touch the new one.
func TestNewerGenerationReplacesTheOlder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub(t, testConfig(), newMemory())
		first := connect(t, h, "u", "d").start()
		second := connect(t, h, "u", "d").start()
		synctest.Wait()
		if first.closed != wire.CloseReplaced.Code || closedWith(second.conn) != 0 {
			t.Fatalf("first closed with %d, second with %d", first.closed, closedWith(second.conn))
		}
		first.conn.Gone(0)
		if h.device("d") != second.conn || h.others("u", "") != 1 {
			t.Fatal("the old one's clean-up removed the new one")
		}
		late := h.NewConn(first.nc)
		if register(h, late, "u", "d", 1) {
			t.Fatal("an older generation was registered")
		}
		h.RouteTaken("d", second.conn.peer.Generation)
		h.RouteTaken("other", 99)
		if closedWith(second.conn) != 0 {
			t.Fatal("its own announcement closed it")
		}
		h.RouteTaken("d", second.conn.peer.Generation+1)
		synctest.Wait()
		if second.closed != wire.CloseReplaced.Code {
			t.Fatal("taken elsewhere, and not closed")
		}
	})
}

// A route that is taken elsewhere while it is being claimed here is noticed when the claim ends.
func TestRouteTakenWhileClaiming(t *testing.T) {
	h := newHub(t, testConfig(), newMemory())
	p := connect(t, h, "v", "other").start()
	h.Claiming("d")
	h.Claiming("d") // two handshakes of the device at once
	h.RouteTaken("d", 6)
	c := h.NewConn(p.nc)
	if h.Register(c, Peer{User: "u", Device: "d", Generation: 5}) {
		t.Fatal("the older one was registered")
	}
	if !h.Register(c, Peer{User: "u", Device: "d", Generation: 7}) {
		t.Fatal("the newer one was not registered")
	}
	h.Claiming("e")
	h.Unclaim("e")
	if len(h.registry.claims) != 0 {
		t.Fatalf("left behind: %v", h.registry.claims)
	}
}

// Whatever comes and goes, the lists by device and by user hold exactly the newest connections.
func TestRegistryAgainstAList(t *testing.T) {
	h := newHub(t, testConfig(), newMemory())
	sink := connect(t, h, "sink", "sink").start()
	rapid.Check(t, func(t *rapid.T) {
		current := map[string]*Conn{}
		var alive []*Conn
		for i := range rapid.IntRange(1, 40).Draw(t, "steps") {
			if rapid.IntRange(0, 2).Draw(t, "what") > 0 || len(alive) == 0 {
				device := fmt.Sprint("d", rapid.IntRange(0, 5).Draw(t, "device"))
				user := "u" + string(device[1]&1+'0')
				c := h.NewConn(nopConn{sink.nc})
				register(h, c, user, device, int64(i+1))
				current[device] = c
				alive = append(alive, c)
			} else {
				n := rapid.IntRange(0, len(alive)-1).Draw(t, "which")
				c := alive[n]
				alive = append(alive[:n], alive[n+1:]...)
				c.Gone(0)
				if current[c.peer.Device] == c {
					delete(current, c.peer.Device)
				}
			}
			for u := range 2 {
				user, want := fmt.Sprint("u", u), 0
				for d, c := range current {
					if c.peer.User == user {
						want++
						if h.device(d) != c {
							t.Fatalf("%s is not the newest", d)
						}
					}
				}
				if got := h.others(user, ""); got != want {
					t.Fatalf("%s has %d connections, want %d", user, got, want)
				}
				if got := h.others(user, "d0"); current["d0"] != nil && u == 0 && got != want-1 {
					t.Fatalf("without d0 %d, want %d", got, want-1)
				}
			}
		}
		for _, c := range alive {
			c.Gone(0)
		}
	})
}

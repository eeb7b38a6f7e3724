package hub

import (
	"fmt"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"imbench/server/internal/im"
)

func sweepConfig() Config {
	cfg := testConfig()
	cfg.Sweep = time.Second
	return cfg
}

// 06-lost-push-swept: what is not acknowledged is told again within grace and two periods, and then with a back-off.
func TestSweepTellsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		m.create("c", im.Push, "ana", "ben")
		h := newHub(t, sweepConfig(), m)
		ben, deaf := connect(t, h, "ben", "b1").start(), connect(t, h, "ben", "b2").start()
		h.Committed([]im.Event{m.msg("c", "ana", "a1")})
		ben.expect("ev c 3")
		deaf.expect("ev c 3")
		ben.conn.Acked("c", 3)
		advance(3500 * time.Millisecond)
		deaf.expect()
		advance(2 * time.Second)
		ben.expect()
		deaf.expect("hint c 3 sweep")
		advance(2 * time.Second)
		deaf.expect()
		advance(time.Second)
		deaf.expect("hint c 3 sweep")
		advance(7 * time.Second)
		deaf.expect()
		deaf.conn.Acked("c", 3)
		advance(time.Minute)
		deaf.expect()
		if n := h.metrics.sweepHints.Load(); n != 2 {
			t.Fatalf("%d sweep hints counted", n)
		}
	})
}

func TestSweepFindsWhatWasNeverTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		m.create("c", im.Push, "ana", "ben")
		m.create("told", im.Push, "ana", "ben")
		m.create("pull", im.Pull, "ana", "ben")
		m.create("open", im.Pull, "ana", "ben")
		h := newHub(t, sweepConfig(), m)
		ben := connect(t, h, "ben", "b1").start()
		ben.conn.Open("open")
		advance(4200 * time.Millisecond) // what it would have been told of is older than the grace
		m.msg("c", "ana", "a1")          // never announced
		h.Committed([]im.Event{m.msg("told", "ana", "a1")})
		ben.expect("ev told 3")
		m.mu.Lock()
		m.lags = []im.Lag{{Device: "b1", Conv: "c", Head: 3, Mode: im.Push}, {Device: "b1", Conv: "told", Head: 4, Mode: im.Push},
			{Device: "b1", Conv: "pull", Head: 3, Mode: im.Pull}, {Device: "b1", Conv: "open", Head: 3, Mode: im.Pull},
			{Device: "elsewhere", Conv: "c", Head: 3, Mode: im.Push}}
		m.mu.Unlock()
		advance(1100 * time.Millisecond)
		synctest.Wait()
		got := fmt.Sprint(ben.texts())
		if got != "[hint c 3 sweep hint open 3 sweep]" && got != "[hint open 3 sweep hint c 3 sweep]" {
			t.Fatal(got)
		}
		ben.mu.Lock()
		ben.frames = nil
		ben.mu.Unlock()
		ben.conn.Acked("c", 3)
		ben.conn.Acked("open", 3)
		ben.conn.Acked("told", 4)
		advance(5 * time.Second) // the rows still come, but all was acknowledged
		ben.expect()
	})
}

// The expensive question, who lags, is put only for what this gateway may not have told everyone.
func TestSweepAsksOnlyForWhatWasNotTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		h := newHub(t, sweepConfig(), m)
		ben := connect(t, h, "ben", "b1").start()
		advance(4200 * time.Millisecond)
		tell := func(conv string) {
			m.create(conv, im.Push, "ana", "ben")
			h.Committed([]im.Event{m.msg(conv, "ana", "a1")})
			ben.expect("ev " + conv + " 3")
			m.mu.Lock()
			m.lags = append(m.lags, im.Lag{Device: "b1", Conv: conv, Head: 3, Mode: im.Push})
			m.mu.Unlock()
		}
		for i := range maxTracks {
			tell(fmt.Sprintf("c%02d", i))
		}
		advance(1100 * time.Millisecond)
		m.mu.Lock()
		if len(m.asked) > 0 {
			t.Errorf("asked about %v conversations; all were told", m.asked)
		}
		m.mu.Unlock()
		tell("beyond") // the device's tracker is full
		advance(1000 * time.Millisecond)
		m.mu.Lock()
		defer m.mu.Unlock()
		if len(m.asked) != 1 || m.asked[0] != 1 {
			t.Errorf("asked about %v conversations, want once, about the one that was not noted", m.asked)
		}
	})
}

// A push conversation that is hinted for its size lags by choice as well.
func TestSweepLeavesLargeGroupsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		m.create("c", im.Push, "ana", "ben", "cid")
		cfg := sweepConfig()
		cfg.HintAbove = 2
		h := newHub(t, cfg, m)
		ben := connect(t, h, "ben", "b1").start()
		h.Committed([]im.Event{m.msg("c", "ana", "a1")})
		ben.expect("hint c 4")
		m.mu.Lock()
		m.lags = []im.Lag{{Device: "b1", Conv: "c", Head: 4, Mode: im.Push}}
		m.mu.Unlock()
		advance(20 * time.Second)
		ben.expect()
		ben.conn.Open("c")
		advance(1100 * time.Millisecond)
		ben.expect("hint c 4 sweep")
	})
}

// After a time in which the store could not be asked, the window reaches back over it.
func TestSweepWindowCoversWhatItMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		h := newHub(t, sweepConfig(), m)
		connect(t, h, "ben", "b1").start()
		advance(6500 * time.Millisecond)
		m.fail(errAway)
		advance(30 * time.Second)
		m.fail(nil)
		advance(2 * time.Second)
		m.mu.Lock()
		defer m.mu.Unlock()
		n := len(m.windows)
		if got := fmt.Sprint(m.windows[0].Round(time.Millisecond), m.windows[n-2], m.windows[n-1]); got != "2s 32s 2s" {
			t.Fatalf("windows %v", m.windows)
		}
	})
}

// population has 3 000 conversations of ben's that nobody was told of, written now.
func population(m *memory) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.written = time.Now()
	for i := range 3000 {
		m.lags = append(m.lags, im.Lag{Device: "b1", Conv: fmt.Sprint("c", i), Head: 3, Mode: im.Pull})
	}
}

// What was written before any device listened here is in the devices' convs: a population that is made before its
// devices come costs the sweep nothing.
func TestSweepPassesOverWhatWasBeforeItsDevices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		h := newHub(t, sweepConfig(), m)
		gone := connect(t, h, "ben", "b1").start()
		advance(500 * time.Millisecond)
		gone.conn.Gone(0)
		advance(time.Second)
		population(m)
		advance(1400 * time.Millisecond) // more than a period, by which the windows overlap
		connect(t, h, "ben", "b1").start()
		advance(20 * time.Second)
		m.mu.Lock()
		defer m.mu.Unlock()
		if len(m.asked) != 0 || len(m.windows) < 10 {
			t.Fatalf("asked about %v conversations, looked %d times", m.asked, len(m.windows))
		}
	})
}

// With a device that listened before, all are asked for, once, a bounded number each period; what waits is shown, and a
// message lost meanwhile is repaired in its turn.
func TestSweepAsksInBoundedParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		h := newHub(t, sweepConfig(), m)
		ben := connect(t, h, "ben", "b1").start()
		advance(500 * time.Millisecond)
		population(m)
		m.create("lost", im.Push, "ana", "ben")
		m.msg("lost", "ana", "a1")
		m.mu.Lock()
		m.lags = append(m.lags, im.Lag{Device: "b1", Conv: "lost", Head: 3, Mode: im.Push})
		m.mu.Unlock()
		for _, want := range []struct {
			waiting int64
			asked   string
		}{{1977, "[1024]"}, {953, "[1024 1024]"}, {0, "[1024 1024 953]"}, {0, "[1024 1024 953]"}} {
			if want.waiting == 1977 {
				advance(3600 * time.Millisecond)
				ben.expect()
			}
			advance(time.Second)
			synctest.Wait()
			m.mu.Lock()
			asked := fmt.Sprint(m.asked)
			m.mu.Unlock()
			if n := h.metrics.sweepWaiting.Load(); n != want.waiting || asked != want.asked {
				t.Fatalf("%d wait, asked about %s; want %+v", n, asked, want)
			}
		}
		ben.expect("hint lost 3 sweep")
	})
}

// While the store does not answer nothing is forgotten, and no more is looked for than there is room.
func TestSweepKeepsWhatItCouldNotAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		cfg := sweepConfig()
		cfg.Sweep = time.Hour // this test is the sweep
		h := newHub(t, cfg, m)
		ben := connect(t, h, "ben", "b1").start()
		advance(time.Minute)
		w := sweeper{hub: h, covered: time.Now().Add(-time.Minute), heads: map[string]int64{}}
		for i := range maxSweepWaiting + 7 {
			w.add(im.Head{Conv: fmt.Sprint("c", i), To: 3})
		}
		if len(w.waiting) != maxSweepWaiting || len(w.heads) != maxSweepWaiting || h.metrics.sweepDrops.Load() != 7 {
			t.Fatalf("%d wait, %d dropped", len(w.waiting), h.metrics.sweepDrops.Load())
		}
		m.fail(errAway)
		w.sweep(t.Context(), 1)
		m.fail(nil)
		if len(w.waiting) != maxSweepWaiting || len(m.windows) != 0 {
			t.Fatalf("%d wait after an error; looked %d times", len(w.waiting), len(m.windows))
		}
		covered := w.covered
		m.mu.Lock()
		m.lags = []im.Lag{{Device: "b1", Conv: fmt.Sprint("c", maxSweepWaiting-1), Head: 3, Mode: im.Push}}
		m.mu.Unlock()
		for range maxSweepWaiting / cfg.SweepConvs {
			if len(m.windows) == 0 && !w.covered.Equal(covered) {
				t.Fatal("covered what was not looked at")
			}
			w.sweep(t.Context(), 1)
		}
		ben.expect("hint c65535 3 sweep")
		if len(w.waiting) != 0 || len(w.heads) != 0 || len(m.windows) != 1 { // time stands still
			t.Fatalf("%d wait, looked %d times", len(w.waiting), len(m.windows))
		}
	})
}

// What a full tracker could not note is remembered up to a limit, and counted beyond it.
func TestUnnotedIsBounded(t *testing.T) {
	var u unnoted
	for i := range maxUnnoted {
		if !u.add(fmt.Sprint("c", i), 1) {
			t.Fatalf("no room for the conversation %d", i)
		}
	}
	if u.add("one more", 1) || !u.add("c0", 2) {
		t.Error("beyond the limit there is room, or for a known one there is none")
	}
	if !u.take("c1", 1) || !u.add("one more", 1) {
		t.Error("what was taken leaves no room")
	}
}

func TestSweepIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		cfg := sweepConfig()
		cfg.SweepHints = 5
		h := newHub(t, cfg, m)
		ben := connect(t, h, "ben", "b1").start()
		for i := range 12 {
			conv := fmt.Sprint("c", i)
			m.create(conv, im.Push, "ana", "ben")
			h.Committed([]im.Event{m.msg(conv, "ana", "a1")})
		}
		synctest.Wait()
		for _, want := range []int{12, 17, 22, 24, 24} {
			if n := len(ben.texts()); n != want {
				t.Fatalf("%d frames, want %d", n, want)
			}
			if want == 12 {
				advance(3500 * time.Millisecond)
			}
			advance(time.Second)
			synctest.Wait()
		}
	})
}

func TestHeartbeatFindsTheDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub(t, testConfig(), newMemory())
		alive, dead := connect(t, h, "ana", "a1").start(), connect(t, h, "ben", "b1").start()
		for range 20 {
			advance(10 * time.Second)
			alive.conn.Received(KControl, 0)
		}
		synctest.Wait()
		alive.mu.Lock()
		dead.mu.Lock()
		defer alive.mu.Unlock()
		defer dead.mu.Unlock()
		if alive.ended || !dead.ended || dead.pings < 1 || dead.pings > 3 {
			t.Fatalf("alive ended %v, dead ended %v after %d pings", alive.ended, dead.ended, dead.pings)
		}
	})
}

// A second after its token's end a connection is closed, whichever was registered first and however long the heartbeat.
func TestExpiredTokenClosesTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub(t, testConfig(), newMemory())
		var peers []*peer
		for i, ttl := range []time.Duration{30 * time.Second, 10 * time.Second, 0, 20 * time.Second} {
			a, b := net.Pipe()
			p := Peer{User: "ana", Device: fmt.Sprint("a", i)}
			if ttl > 0 {
				p.Expires = time.Now().Add(ttl)
			}
			peers = append(peers, attach(t, h, a, b, p).start())
		}
		closed := func() (list []int) {
			synctest.Wait()
			for _, p := range peers {
				p.mu.Lock()
				list = append(list, p.closed)
				p.mu.Unlock()
			}
			return list
		}
		began, before := time.Now(), []int{0, 0, 0, 0}
		until := func(d time.Duration) { advance(d - time.Since(began)) }
		for i, want := range [][]int{{0, 4001, 0, 0}, {0, 4001, 0, 4001}, {4001, 4001, 0, 4001}} {
			end := time.Duration(i+1) * 10 * time.Second
			until(end - time.Millisecond)
			if got := closed(); !slices.Equal(got, before) {
				t.Errorf("closed with %v before %v, want %v", got, end, before)
			}
			until(end + expiryCheck + time.Millisecond)
			if got := closed(); !slices.Equal(got, want) {
				t.Errorf("closed with %v after %v, want %v", got, end, want)
			}
			before = want
			for _, p := range peers {
				p.conn.Received(KControl, 0)
			}
		}
	})
}

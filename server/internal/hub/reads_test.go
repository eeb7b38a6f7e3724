package hub

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"imbench/server/internal/im"
)

func note(conv, user, device string, seq int64) []im.ReadNote {
	return []im.ReadNote{{Conv: conv, User: user, Device: device, Seq: seq}}
}

// readsConfig merges read positions for 200 ms.
func readsConfig() Config {
	cfg := testConfig()
	cfg.HintWindow = 200 * time.Millisecond
	return cfg
}

func TestReadGoesToTheUsersOtherDevicesAndThePeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		m.direct("d", "ana", "ben")
		h := newHub(t, readsConfig(), m)
		phone, laptop := connect(t, h, "ana", "a1").start(), connect(t, h, "ana", "a2").start()
		ben, cid := connect(t, h, "ben", "b1").start(), connect(t, h, "cid", "c1").start()
		deaf := connect(t, h, "ben", "b2").start()
		deaf.conn.mu.Lock()
		deaf.conn.since = 0
		deaf.conn.mu.Unlock()
		h.ReadMoved(note("d", "ana", "a1", 4))
		h.ReadMoved(note("d", "ana", "a1", 3)) // an older one, late
		h.ReadMoved(note("d", "ana", "a1", 5))
		advance(199 * time.Millisecond)
		laptop.expect()
		advance(2 * time.Millisecond)
		phone.expect()
		laptop.expect("read d ana 5")
		ben.expect("read d ana 5")
		cid.expect()
		deaf.expect()
		advance(time.Minute) // nothing that has not moved is told
		laptop.expect()
		if _, _, infos, _ := m.reads(); infos != 1 {
			t.Fatalf("%d reads of members", infos)
		}
		h.ReadMoved(append(note("d", "ben", "b1", 5), note("d", "ana", "a2", 6)...))
		advance(time.Second)
		phone.expect("read d ana 6", "read d ben 5")
		ben.expect("read d ana 6")
		if _, _, infos, _ := m.reads(); infos != 1 {
			t.Fatalf("%d reads of members", infos)
		}
	})
}

func TestReadsOfAGroupAreCountedForThoseWhoLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		m.create("g", im.Push, "ana", "ben", "cid", "dan", "eve")
		m.add("g", im.Event{Kind: im.KindLeave, User: "eve"})
		h := newHub(t, readsConfig(), m)
		ana, other := connect(t, h, "ana", "a1").start(), connect(t, h, "ana", "a2").start()
		ben, cid := connect(t, h, "ben", "b1").start(), connect(t, h, "cid", "c1").start()
		dan, eve := connect(t, h, "dan", "d1").start(), connect(t, h, "eve", "e1").start()
		for _, p := range []*peer{ana, other, ben, dan, eve} {
			p.conn.Open("g")
		}
		h.ReadMoved(note("g", "ana", "a1", 6))
		advance(time.Second)
		ana.expect()
		other.expect("read g ana 6")
		ben.expect("read g 1 users 6")
		cid.expect() // does not look
		eve.expect() // has left
		h.ReadMoved(append(note("g", "ana", "a1", 9), note("g", "ben", "b1", 8)...))
		h.ReadMoved(append(note("g", "cid", "c1", 7), note("g", "ben", "b1", 8)...))
		advance(time.Second)
		ana.expect("read g 2 users 8")
		other.expect("read g ana 9", "read g 2 users 8")
		ben.expect("read g 2 users 9")
		cid.expect()
		dan.expect("read g 1 users 6", "read g 3 users 9")
	})
}

// The members are those of now: someone who joined is told, also where the cache had passed over his join.
func TestReadsFollowTheMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		m.direct("d", "ana", "ben")
		h := newHub(t, testConfig(), m)
		for range 2 { // nobody is here: the cache has the members, and is behind
			h.Announced(head("d", m.msg("d", "ana", "a1").Seq, 4))
			synctest.Wait()
		}
		h.ReadMoved(note("d", "ana", "a1", 3))
		synctest.Wait()
		if _, _, infos, _ := m.reads(); infos != 1 {
			t.Fatalf("%d reads of members, though nobody is here", infos)
		}
		ben := connect(t, h, "ben", "b1").start()
		h.ReadMoved(note("d", "ana", "a1", 4))
		ben.expect("read d ana 4")
		h.MembersChanged("d")
		h.Announced(head("d", m.add("d", im.Event{Kind: im.KindLeave, User: "ben"}).Seq, 5))
		ben.expect("ev d 5")
		h.ReadMoved(note("d", "ana", "a1", 5))
		ben.expect()
		h.ReadMoved(note("gone", "ana", "a1", 5))
		h.Announced(head("d", m.msg("d", "ana", "a1").Seq, 6))
		ben.expect()
		// What the members were read for is not taken for told.
		m.create("e", im.Push, "ana", "ben")
		h.ReadMoved(note("e", "ana", "a1", 2))
		ben.expect()
		h.Announced(head("e", m.msg("e", "ana", "a1").Seq, 3))
		ben.expect("ev e 3")
	})
}

func TestReadsWhileTheStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		m.direct("d", "ana", "ben")
		h := newHub(t, testConfig(), m)
		laptop, ben := connect(t, h, "ana", "a2").start(), connect(t, h, "ben", "b1").start()
		m.fail(errAway)
		for seq := range int64(50) {
			h.ReadMoved(note("d", "ana", "a1", seq+1))
			advance(10 * time.Millisecond)
		}
		synctest.Wait()
		if n := len(laptop.texts()); n != 50 {
			t.Fatalf("the user's own device was told %d times", n)
		}
		ben.expect()
		if _, _, infos, _ := m.reads(); infos > 5 || h.metrics.readDrops.Load() != 50 {
			t.Fatalf("%d reads in half a second, %d dropped", infos, h.metrics.readDrops.Load())
		}
		m.fail(nil)
		advance(3 * time.Second)
		h.ReadMoved(note("d", "ana", "a1", 60))
		ben.expect("read d ana 60")
	})
}

// What waits is bounded, and so is what one turn of the worker takes; all the rest is told in the following turns.
func TestReadsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		cfg := readsConfig()
		cfg.Shards, cfg.QueueFrames = 1, 4*maxReads
		h := newHub(t, cfg, m)
		laptop := connect(t, h, "ana", "a2").start()
		for i := range maxReads + 100 {
			h.ReadMoved(note(fmt.Sprint("c", i), "ana", "a1", 5))
		}
		for i := range maxReads {
			h.ReadMoved(note(fmt.Sprint("c", i), "ana", "a1", 6))
		}
		if n := h.metrics.readDrops.Load(); n != 100 {
			t.Fatalf("%d dropped, want 100", n)
		}
		advance(time.Second)
		synctest.Wait()
		got := laptop.texts()
		if len(got) != maxReads {
			t.Fatalf("%d told", len(got))
		}
		for _, text := range got {
			if text[len(text)-1] != '6' {
				t.Fatal(text)
			}
		}
		if _, _, infos, _ := m.reads(); infos != maxReads/waitingConvs {
			t.Fatalf("%d reads of members", infos)
		}
	})
}

// A device that is slow has one frame waiting for each user and conversation, and does without when its queue is half full.
func TestReadsInASlowQueue(t *testing.T) {
	c := queueOf(t, 8, 1<<20)
	s := c.hub.shards[0]
	for seq := range int64(10) {
		s.tellRead("g", moved{"ana", "a1", seq + 1}, []*Conn{c})
		s.tellRead("g", moved{"ben", "b1", seq/2 + 1}, []*Conn{c})
	}
	if len(c.queue) != 2 || c.queue[0].seq != 10 || c.queue[1].seq != 5 {
		t.Fatalf("%d frames: %+v", len(c.queue), c.queue)
	}
	c.push(eventFrame("a", 1))
	for i := range 5 {
		s.tellRead(fmt.Sprint("c", i), moved{"ana", "a1", 1}, []*Conn{c})
	}
	if got := fmt.Sprint(queued(c)); got != "[read read hint a 1 read]" || c.hub.metrics.readDrops.Load() != 4 {
		t.Fatalf("%s, %d dropped", got, c.hub.metrics.readDrops.Load())
	}
	total := 0
	for _, f := range c.queue {
		total += len(f.data)
	}
	if c.pending != total || c.closing {
		t.Fatalf("%d bytes counted, %d queued", c.pending, total)
	}
}

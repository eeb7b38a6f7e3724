package hub

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"imbench/server/internal/im"
)

// expect lets everything settle and compares what the peer was sent since the last call.
func (p *peer) expect(want ...string) {
	p.t.Helper()
	synctest.Wait()
	got := p.texts()
	p.mu.Lock()
	p.frames = nil
	p.mu.Unlock()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		p.t.Fatalf("%s got %v, want %v", p.conn.peer.Device, got, want)
	}
}

func head(conv string, from, to int64) []im.Head { return []im.Head{{Conv: conv, From: from, To: to}} }

func TestCommittedGoesToTheMembersDevicesButTheSenders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		m.create("c", im.Push, "ana", "ben")
		h := newHub(t, testConfig(), m)
		phone, laptop := connect(t, h, "ana", "a1").start(), connect(t, h, "ana", "a2").start()
		ben, other := connect(t, h, "ben", "b1").start(), connect(t, h, "cid", "c1").start()
		h.Committed([]im.Event{m.msg("c", "ana", "a1")})
		phone.expect()
		laptop.expect("ev c 3")
		ben.expect("ev c 3")
		other.expect()
		if events, _, infos, _ := m.reads(); events != 0 || infos != 1 {
			t.Fatalf("%d reads of events, %d of members", events, infos)
		}
		h.Committed([]im.Event{m.msg("c", "ben", "b1"), m.msg("c", "ben", "b1")})
		phone.expect("ev c 4", "ev c 5")
		ben.expect()
		if events, _, infos, _ := m.reads(); events != 0 || infos != 1 {
			t.Fatalf("the cache was not used: %d reads of events, %d of members", events, infos)
		}
	})
}

func TestNotSubscribedGetsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		m.create("c", im.Push, "ana", "ben")
		h := newHub(t, testConfig(), m)
		p := connect(t, h, "ben", "b1").start()
		p.conn.mu.Lock()
		p.conn.since = 0
		p.conn.mu.Unlock()
		h.Committed([]im.Event{m.msg("c", "ana", "a1")})
		p.expect()
	})
}

// What another gateway committed is read in bulk, in order and once, whatever happens to the announcements.
func TestAnnouncedIsReadAndDeliveredOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		m.create("c", im.Push, "ana", "ben")
		m.create("d", im.Push, "ana", "ben")
		h := newHub(t, testConfig(), m)
		ben := connect(t, h, "ben", "b1").start()
		for range 3 {
			m.msg("c", "ana", "a1")
			m.msg("d", "ana", "a1")
		}
		h.Announced(append(head("c", 3, 3), head("d", 3, 5)...))
		synctest.Wait()
		if events, rows, infos, _ := m.reads(); events > 2 || rows != 4 || infos > 2 {
			t.Fatalf("%d reads of %d events, %d of members", events, rows, infos)
		}
		ben.mu.Lock()
		ben.frames = nil
		ben.mu.Unlock()
		h.Announced(head("c", 5, 5)) // the one of 4 comes later
		ben.expect("ev c 4", "ev c 5")
		h.Announced(head("c", 4, 4))
		h.Announced(head("c", 3, 5))
		ben.expect()
		// Local commits between those of others: what is missing is read.
		m.msg("c", "ana", "a1")
		h.Committed([]im.Event{m.msg("c", "ana", "a2")})
		ben.expect("ev c 6", "ev c 7")
	})
}

// 08-leave-closes-interval, 08-no-push-after-leave, 08-join-no-prior-history: late fan-out uses the members at the seq.
func TestMembersAtTheSeqDecide(t *testing.T) {
	for _, batched := range []bool{false, true} {
		t.Run(fmt.Sprint("batched=", batched), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMemory()
				m.create("c", im.Push, "ana", "ben")
				h := newHub(t, testConfig(), m)
				ben, cid := connect(t, h, "ben", "b1").start(), connect(t, h, "cid", "c1").start()
				script := []im.Event{
					{Kind: im.KindMsg, Sender: "ana"},    // 3
					{Kind: im.KindLeave, User: "ben"},    // 4
					{Kind: im.KindMsg, Sender: "ana"},    // 5
					{Kind: im.KindJoin, User: "cid"},     // 6
					{Kind: im.KindMsg, Sender: "ana"},    // 7
					{Kind: im.KindJoin, User: "ben"},     // 8
					{Kind: im.KindRecall, Sender: "ana"}, // 9
				}
				for _, ev := range script {
					ev = m.add("c", ev)
					if ev.Kind == im.KindJoin || ev.Kind == im.KindLeave {
						h.MembersChanged("c")
					}
					if !batched {
						h.Announced(head("c", ev.Seq, ev.Seq))
						synctest.Wait()
					}
				}
				if batched {
					h.Announced(head("c", 3, 9))
				}
				ben.expect("ev c 3", "ev c 4", "ev c 8", "ev c 9")
				cid.expect("ev c 6", "ev c 7", "ev c 8", "ev c 9")
			})
		})
	}
}

func TestLargeGapBecomesOneHint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		m.create("c", im.Push, "ana", "ben")
		cfg := testConfig()
		cfg.MaxGap = 10
		h := newHub(t, cfg, m)
		ben, cid := connect(t, h, "ben", "b1").start(), connect(t, h, "cid", "c1").start()
		for range 30 {
			m.msg("c", "ana", "a1")
		}
		m.add("c", im.Event{Kind: im.KindJoin, User: "cid"}) // 33
		h.Announced(head("c", 3, 33))
		ben.expect("hint c 33")
		cid.expect("hint c 33")
		if events, _, _, _ := m.reads(); events != 0 {
			t.Fatal("events were read for a hint")
		}
		h.Committed([]im.Event{m.msg("c", "ana", "a1")})
		ben.expect("ev c 34")
	})
}

// 08-hint-merge.
func TestPullHintsMergeWithinTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		m.create("g", im.Pull, "ana", "ben")
		cfg := testConfig()
		cfg.HintWindow = 200 * time.Millisecond
		h := newHub(t, cfg, m)
		ana, ben := connect(t, h, "ana", "a1").start(), connect(t, h, "ben", "b1").start()
		for range 20 {
			h.Committed([]im.Event{m.msg("g", "ana", "a1")})
			advance(9 * time.Millisecond)
		}
		ben.expect()
		advance(21 * time.Millisecond)
		ben.expect("hint g 22")
		ana.expect()
		h.Committed([]im.Event{m.msg("g", "ana", "a1")})
		advance(201 * time.Millisecond)
		ben.expect("hint g 23")
	})
}

// 08-open-only, and the size above which a push conversation is hinted.
func TestThresholds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		m.create("two", im.Push, "ana", "ben")
		m.create("three", im.Push, "ana", "ben", "cid")
		m.create("four", im.Push, "ana", "ben", "cid", "dan")
		cfg := testConfig()
		cfg.HintAbove, cfg.OpenOnlyAbove = 2, 3
		h := newHub(t, cfg, m)
		ben := connect(t, h, "ben", "b1").start()
		for _, c := range []string{"two", "three", "four"} {
			h.Committed([]im.Event{m.msg(c, "ana", "a1")})
			synctest.Wait()
		}
		ben.expect("ev two 3", "hint three 4")
		ben.conn.Open("four")
		h.Committed([]im.Event{m.msg("four", "ana", "a1")})
		ben.expect("hint four 6")
		ben.conn.Shut("four")
		h.Committed([]im.Event{m.msg("four", "ana", "a1")})
		ben.expect()
	})
}

// A conversation's own thresholds win over the gateway's, in both directions, and a change of them holds from the next
// event on.
func TestOwnThresholds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		for _, c := range []string{"as", "low", "never", "pull"} {
			m.create(c, im.Push, "ana", "ben", "cid")
		}
		m.convs["low"].hintAbove, m.convs["never"].hintAbove = 2, im.Never
		m.convs["pull"].mode, m.convs["pull"].openOnly = im.Pull, 2
		for _, c := range []struct {
			gateway, openOnly int
			want              []string
		}{
			{0, 0, []string{"ev as 4", "hint low 4", "ev never 4"}},
			{2, 2, []string{"ev never 5"}},
			{2, 3, []string{"hint as 6", "hint low 6", "ev never 6"}},
		} {
			cfg := testConfig()
			cfg.HintAbove, cfg.OpenOnlyAbove = c.gateway, c.openOnly
			h := newHub(t, cfg, m)
			ben := connect(t, h, "ben", "b1").start()
			for _, conv := range []string{"as", "low", "never", "pull"} {
				h.Committed([]im.Event{m.msg(conv, "ana", "a1")})
				synctest.Wait()
			}
			ben.expect(c.want...)
			if c.openOnly != 3 {
				continue
			}
			m.mu.Lock()
			m.convs["low"].hintAbove, m.convs["pull"].openOnly = im.Never, im.Never
			m.mu.Unlock()
			for _, conv := range []string{"low", "pull"} {
				h.MembersChanged(conv)
				h.Committed([]im.Event{m.msg(conv, "ana", "a1")})
				synctest.Wait()
			}
			ben.expect("ev low 7", "hint pull 7")
		}
	})
}

func TestOpenIsBounded(t *testing.T) {
	c := queueOf(t, 8, 1<<20)
	for i := range 3 * maxOpen {
		c.Open(fmt.Sprint("c", i))
	}
	if len(c.open) != maxOpen || !c.looksAt("c191") || c.looksAt("c127") {
		t.Fatalf("%d open: %v", len(c.open), c.open)
	}
}

func TestNobodyHereSparesTheReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		m.create("c", im.Push, "ana", "ben")
		h := newHub(t, testConfig(), m)
		for range 5 {
			ev := m.msg("c", "ana", "a1")
			h.Announced(head("c", ev.Seq, ev.Seq))
			synctest.Wait()
		}
		if events, _, infos, _ := m.reads(); events != 0 || infos != 1 {
			t.Fatalf("%d reads of events, %d of members", events, infos)
		}
		ben := connect(t, h, "ben", "b1").start()
		ev := m.msg("c", "ana", "a1")
		h.Announced(head("c", ev.Seq, ev.Seq))
		ben.expect("ev c 8")
		m.add("c", im.Event{Kind: im.KindLeave, User: "ben"})
		m.msg("c", "ana", "a1")
		h.Announced(head("c", 9, 10))
		ben.expect("ev c 9")
	})
}

// 08-fanout-db-down: announcements that arrive while the database is away are fanned out when it is back.
func TestStoreAwayAndBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		m.create("c", im.Push, "ana", "ben")
		m.create("d", im.Push, "ana", "ben")
		h := newHub(t, testConfig(), m)
		ben := connect(t, h, "ben", "b1").start()
		h.Committed([]im.Event{m.msg("c", "ana", "a1")})
		ben.expect("ev c 3")
		m.fail(errAway)
		h.Announced(head("c", m.msg("c", "ana", "a1").Seq, 4))
		advance(time.Minute)
		h.Announced(head("c", m.msg("c", "ana", "a1").Seq, 5))
		h.Committed([]im.Event{m.msg("d", "ana", "a1")})
		advance(time.Second)
		ben.expect()
		events, _, infos, _ := m.reads()
		if events+infos > 80 {
			t.Fatalf("no back-off: %d reads in a minute", events+infos)
		}
		m.fail(nil)
		advance(3 * time.Second)
		synctest.Wait()
		got := fmt.Sprint(ben.texts())
		if got != "[ev c 4 ev c 5 ev d 3]" && got != "[ev d 3 ev c 4 ev c 5]" && got != "[ev c 4 ev d 3 ev c 5]" {
			t.Fatalf("after the database came back: %s", got)
		}
	})
}

func TestMembersChangedReadsTheModeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		m.create("c", im.Push, "ana", "ben")
		h := newHub(t, testConfig(), m)
		ben := connect(t, h, "ben", "b1").start()
		h.Committed([]im.Event{m.msg("c", "ana", "a1")})
		ben.expect("ev c 3")
		m.mu.Lock()
		m.convs["c"].mode = im.Pull
		m.mu.Unlock()
		h.MembersChanged("c")
		h.Committed([]im.Event{m.msg("c", "ana", "a1")})
		ben.expect("hint c 4")
	})
}

func TestResyncFindsWhatWasNotAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		cfg := testConfig()
		cfg.MaxGap, cfg.QueueFrames = 5, 4096
		h := newHub(t, cfg, m)
		ben := connect(t, h, "ben", "b1").start()
		for i := range 1500 {
			conv := fmt.Sprint("c", i)
			m.create(conv, im.Push, "ana", "ben")
			h.Committed([]im.Event{m.msg(conv, "ana", "a1")})
		}
		synctest.Wait()
		ben.mu.Lock()
		ben.frames = nil
		ben.mu.Unlock()
		m.msg("c7", "ana", "a1")
		for range 6 {
			m.msg("c8", "ana", "a1")
		}
		m.fail(errAway)
		h.Resync()
		advance(time.Second)
		ben.expect()
		m.fail(nil)
		advance(10 * time.Second)
		synctest.Wait()
		got := fmt.Sprint(ben.texts())
		if got != "[ev c7 4 hint c8 9]" && got != "[hint c8 9 ev c7 4]" {
			t.Fatal(got)
		}
	})
}

// An event that is no longer there ends what can be pushed of its range; the next one is read with the members anew.
func TestMissingEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		m.create("c", im.Push, "ana", "ben")
		h := newHub(t, testConfig(), m)
		ben := connect(t, h, "ben", "b1").start()
		h.Committed([]im.Event{m.msg("c", "ana", "a1")})
		ben.expect("ev c 3")
		for range 3 {
			m.msg("c", "ana", "a1")
		}
		m.mu.Lock()
		m.convs["c"].events[4].Seq = -1 // 5 is gone
		m.mu.Unlock()
		h.Announced(head("c", 4, 6))
		ben.expect("ev c 4")
		h.Committed([]im.Event{m.msg("c", "ana", "a1")})
		ben.expect("ev c 7")
		if _, _, infos, _ := m.reads(); infos != 2 {
			t.Fatalf("%d reads of members", infos)
		}
	})
}

func TestUnknownConversationIsPassedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		m.create("c", im.Push, "ana", "ben")
		h := newHub(t, testConfig(), m)
		ben := connect(t, h, "ben", "b1").start()
		h.Announced(append(head("gone", 1, 1), head("c", 0, 2)...)) // and a range that is none
		h.MembersChanged("gone")
		h.Committed([]im.Event{m.msg("c", "ana", "a1")})
		ben.expect("ev c 3")
	})
}

func TestInboxIsBounded(t *testing.T) {
	m := newMemory()
	cfg := testConfig()
	cfg.Shards, cfg.InboxConvs, cfg.InboxEvents = 1, 3, 2
	h := newHub(t, cfg, m)
	s := newShard(h) // one without a worker
	for i := range int64(5) {
		s.committed([]im.Event{{Conv: fmt.Sprint("c", i), Seq: 3}, {Conv: "c0", Seq: 3 + i}})
	}
	if len(s.inbox) != 3 || h.metrics.inboxDrops.Load() != 2 {
		t.Fatalf("%d conversations wait, %d dropped", len(s.inbox), h.metrics.inboxDrops.Load())
	}
	if w := s.inbox["c0"]; w.from != 3 || w.to != 7 || s.events != 2 || h.metrics.rereads.Load() != 6 {
		t.Fatalf("%+v, %d events kept, %d to be read again", w, s.events, h.metrics.rereads.Load())
	}
	list, _ := s.take()
	s.requeue(list)
	if w := s.inbox["c0"]; w.from != 3 || w.to != 7 || len(w.events) != 2 || s.events != 2 {
		t.Fatalf("after a failed read: %+v", w)
	}
}

// While the store cannot be read, what goes back into the inbox has the limits of what comes into it.
func TestInboxIsBoundedAfterFailedReads(t *testing.T) {
	m := newMemory()
	cfg := testConfig()
	cfg.Shards, cfg.InboxConvs, cfg.InboxEvents = 1, 3, 2
	h := newHub(t, cfg, m)
	s := newShard(h) // one without a worker
	for i := range int64(3) {
		for l := range int64(maxLags) {
			s.lagging(im.Lag{Conv: "c", Device: fmt.Sprint("d", i, l)})
		}
		list, _ := s.take()
		s.committed([]im.Event{{Conv: "c", Seq: 3 + 2*i}, {Conv: "c", Seq: 4 + 2*i}})
		s.lagging(im.Lag{Conv: "c", Device: "d"})
		s.requeue(list)
	}
	w := s.inbox["c"]
	if w.from != 3 || w.to != 8 || len(w.events) != 2 || s.events != 2 || len(w.lags) != maxLags {
		t.Fatalf("%d-%d, %d events, %d counted, %d devices", w.from, w.to, len(w.events), s.events, len(w.lags))
	}
	if n := h.metrics.rereads.Load(); n != 4 {
		t.Fatalf("%d events to be read again", n)
	}
}

// A name that came with a request is part of its whole frame: what stays while work waits, or as long as a connection,
// has one of its own.
func TestNamesDoNotKeepARequest(t *testing.T) {
	frame := "a conversation in a long frame"
	conv := frame[2:14]
	m := newMemory()
	h := newHub(t, testConfig(), m)
	s := newShard(h) // one without a worker
	s.committed([]im.Event{{Conv: conv, Seq: 3}})
	for key, w := range s.inbox {
		if key != conv || unsafe.StringData(key) == unsafe.StringData(conv) || unsafe.StringData(w.conv) == unsafe.StringData(conv) {
			t.Error("the inbox has the request's")
		}
	}
	var c Conn
	c.Sent(conv, 3, 1)
	if c.own.conv != conv || unsafe.StringData(c.own.conv) == unsafe.StringData(conv) {
		t.Error("the connection has the request's")
	}
	if c.Sent(conv, 4, 1); c.own != (own{conv, 4, 1}) {
		t.Errorf("%+v", c.own)
	}
}

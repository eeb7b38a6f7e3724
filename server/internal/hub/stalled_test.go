package hub

import (
	"bufio"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"imbench/server/internal/im"
	"imbench/server/wire"
)

// thousand is a group whose members' devices are connected by sockets; the last one's takes nothing.
func thousand(t testing.TB, size int) (h *Hub, m *memory, good []*peer, stalled *peer) {
	m = newMemory()
	var users []string
	for i := range size {
		users = append(users, fmt.Sprint("u", i))
	}
	m.create("g", im.Push, users...)
	cfg := testConfig()
	cfg.HintAbove, cfg.WriteStall, cfg.Grace, cfg.Heartbeat = 0, time.Hour, time.Hour, time.Hour
	h = newHub(t, cfg, m)
	for i, u := range users[1:] {
		good = append(good, tcp(t, h, u, fmt.Sprint("d", i)))
	}
	last := len(good) - 1
	stalled = good[last]
	stalled.conn.fill(t)
	return h, m, good[:last], stalled
}

// G4 among a thousand: one that does not read costs the others nothing they are told, and the gateway a hint; later it is
// closed (4008), and nobody else is.
func TestStalledAmongAThousand(t *testing.T) {
	const members, messages = 1000, 80 // more than a queue holds
	h, m, good, stalled := thousand(t, members)
	for _, p := range good {
		p.start()
	}
	stalled.conn.mu.Lock()
	before := stalled.conn.pending
	stalled.conn.mu.Unlock()
	const head = members + messages
	has := func(seq int64) func(*peer) bool {
		return func(p *peer) bool {
			n := len(p.frames)
			return n > 0 && max(p.frames[n-1].Ev.Seq, p.frames[n-1].Head) >= seq
		}
	}
	for i := range int64(messages) {
		h.Committed([]im.Event{m.msg("g", "u0", "phone")})
		if i%16 == 15 { // all at once would be a gap, and a hint for everyone
			good[0].wait(has(members + i + 1))
		}
	}
	for _, p := range good {
		p.wait(has(head))
	}
	c := stalled.conn
	var waits []string
	for len(waits) == 0 || waits[len(waits)-1] != fmt.Sprint("hint g ", head) { // the last message may be on its way to it
		runtime.Gosched()
		c.mu.Lock()
		waits = waits[:0]
		for _, f := range c.queue {
			waits = append(waits, fmt.Sprint(kindNames[f.kind], " ", f.conv, " ", f.seq))
		}
		more, closing := c.pending-before, c.closing
		c.mu.Unlock()
		if closing || len(waits) > h.cfg.QueueFrames/2 || more > 64<<10 {
			t.Fatalf("the stalled one: closing %v, %d bytes more, %v wait", closing, more, waits)
		}
	}
	if len(waits) != 1 || h.metrics.collapses.Load() == 0 {
		t.Fatalf("%v wait, %d collapses", waits, h.metrics.collapses.Load())
	}
	_ = c.nc.SetWriteDeadline(time.Now()) // WriteStall is over
	if _, err := c.nc.Read(make([]byte, 1)); err == nil {
		t.Fatal("the stalled one sent something")
	}
	if code := closedWith(c); code != wire.CloseSlow.Code {
		t.Fatalf("the stalled one was closed with %d", code)
	}
	for _, p := range good {
		if p.conn.Closing() {
			t.Fatalf("%s was closed as well", p.conn.peer.Device)
		}
	}
}

// BenchmarkStalledReader compares, turn by turn on the same sockets, how late a message comes to 998 devices while one more
// reads as they do, and while one more does not read: p99 of the time from the commit to the device, and its ratio.
func BenchmarkStalledReader(b *testing.B) {
	h, m, good, _ := thousand(b, 1000)
	var users []string
	for i := range len(good) + 1 {
		users = append(users, fmt.Sprint("u", i))
	}
	reader := tcp(b, h, "reader", "reader")
	m.create("calm", im.Push, append(users, "reader")...)

	var began atomic.Int64
	var turn sync.WaitGroup
	late := make([]time.Duration, len(good)+1)
	for i, p := range append(slices.Clone(good), reader) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			br := bufio.NewReader(p.nc)
			for {
				if _, _, err := readFrame(br); err != nil {
					return
				}
				late[i] = time.Duration(h.now() - began.Load())
				turn.Done()
			}
		}()
		b.Cleanup(func() {
			_ = p.nc.Close()
			<-done
		})
	}
	all := map[string][]time.Duration{}
	order := []string{"calm", "g"}
	for b.Loop() {
		slices.Reverse(order) // neither is always the one that finds warm caches
		for _, conv := range order {
			turn.Add(len(good))
			if conv == "calm" {
				turn.Add(1)
			}
			ev := m.msg(conv, "u0", "phone")
			began.Store(h.now())
			h.Committed([]im.Event{ev})
			turn.Wait()
			all[conv] = append(all[conv], late[:len(good)]...)
		}
	}
	at := func(conv string, percent int) float64 {
		slices.Sort(all[conv])
		return float64(all[conv][len(all[conv])*percent/100].Microseconds()) / 1000
	}
	b.ReportMetric(at("calm", 99), "calm-p99-ms")
	b.ReportMetric(at("g", 99), "stalled-p99-ms")
	b.ReportMetric(at("g", 99)/at("calm", 99), "p99-stalled/calm")
	b.ReportMetric(at("g", 50)/at("calm", 50), "p50-stalled/calm")
}

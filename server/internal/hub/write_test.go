package hub

import (
	"bufio"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"imbench/server/internal/im"
	"imbench/server/wire"
)

// tcp joins a device over a real socket with a small send buffer.
func tcp(t testing.TB, h *Hub, user, device string) *peer {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	theirs, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	ours, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_ = ours.(*net.TCPConn).SetWriteBuffer(32 << 10) // without it the tests still hold, as long as 500 kB do not fit
	t.Cleanup(func() { _ = theirs.Close() })
	return attach(t, h, ours, theirs, Peer{User: user, Device: device})
}

func big(conv string, seq int64) *frame {
	return newEventFrame(&wire.Event{Conv: conv, Seq: seq, Kind: "msg", Body: strings.Repeat("x", 2000)}, 0)
}

// fill queues one frame that no socket takes whole, so that a goroutine waits for the peer to read.
func (c *Conn) fill(t testing.TB) {
	t.Helper()
	c.ReplyNow(&wire.Frame{T: wire.TPong, RID: strings.Repeat("x", 500_000)})
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.stalled {
		t.Fatal("the socket took everything")
	}
}

// What a full socket could not take follows whole and in order once the peer reads.
func TestFullSocketLosesNothing(t *testing.T) {
	h := newHub(t, testConfig(), newMemory())
	p := tcp(t, h, "u", "d")
	p.conn.fill(t)
	for seq := int64(1); seq <= 31; seq++ {
		p.conn.push(big("c", seq))
	}
	p.conn.push(big("d", 7)) // the queue is half full now
	p.conn.push(newReplyFrame(&wire.Frame{T: wire.TSubbed}))
	br := bufio.NewReader(p.nc)
	var got []string
	for len(got) < 4 {
		op, payload, err := readFrame(br)
		if err != nil || op != opText {
			t.Fatalf("op %d, %v after %v", op, err, got)
		}
		var f wire.Frame
		if err := wire.DecodeFrame(payload, &f); err != nil {
			t.Fatal(err)
		}
		got = append(got, text(&f))
	}
	if fmt.Sprint(got) != "[pong hint c 31 hint d 7 subbed]" {
		t.Fatalf("%v", got)
	}
	if h.metrics.collapses.Load() == 0 || h.metrics.flushers.Load() == 0 {
		t.Fatal("not counted")
	}
	// The socket is free again: the next frame needs no goroutine.
	n := h.metrics.flushers.Load()
	p.conn.mu.Lock()
	for p.conn.writing {
		p.conn.mu.Unlock()
		runtime.Gosched()
		p.conn.mu.Lock()
	}
	p.conn.mu.Unlock()
	p.conn.ReplyNow(&wire.Frame{T: wire.TSubbed})
	if _, payload, err := readFrame(br); err != nil || string(payload) != `{"t":"subbed"}` || h.metrics.flushers.Load() != n {
		t.Fatalf("%s, %v, %d goroutines instead of %d", payload, err, h.metrics.flushers.Load(), n)
	}
}

// G4: a receiver that does not read costs only itself.
func TestSlowReceiverCostsOnlyItself(t *testing.T) {
	m := newMemory()
	m.create("c", im.Push, "ana", "ben", "cid")
	cfg := testConfig()
	cfg.WriteStall = 50 * time.Millisecond
	h := newHub(t, cfg, m)
	slow, good := tcp(t, h, "ben", "b1"), tcp(t, h, "cid", "c1").start()
	slow.conn.fill(t)
	for range 50 {
		h.Committed([]im.Event{m.msg("c", "ana", "a1")})
	}
	good.wait(func(p *peer) bool { return len(p.frames) == 50 })
	// The slow one's socket is given up: its reader, had it one, would see the end.
	buf := make([]byte, 1)
	if _, err := slow.conn.nc.Read(buf); err == nil || !slow.conn.Closing() {
		t.Fatalf("the slow one was not closed: %v", err)
	}
	slow.conn.mu.Lock()
	defer slow.conn.mu.Unlock()
	if slow.conn.code != wire.CloseSlow.Code {
		t.Fatalf("code %d", slow.conn.code)
	}
}

// 08-big-group-burst: 500 members, 20 messages at once, a queue of 64: no 4008, and each device gets all.
func TestBigGroupBurst(t *testing.T) {
	const members, messages = 500, 20
	m := newMemory()
	var users []string
	for i := range members {
		users = append(users, fmt.Sprint("u", i))
	}
	m.create("g", im.Push, users...)
	cfg := testConfig()
	cfg.HintAbove = 0
	h := newHub(t, cfg, m)
	var peers []*peer
	for i, u := range users[1:] {
		peers = append(peers, tcp(t, h, u, fmt.Sprint("d", i)).start())
	}
	for range messages {
		h.Committed([]im.Event{m.msg("g", "u0", "phone")})
	}
	for _, p := range peers {
		p.wait(func(p *peer) bool {
			n := len(p.frames)
			if n == 0 {
				return false
			}
			last := &p.frames[n-1]
			return last.Ev.Seq == members+messages || last.Head == members+messages
		})
		for i, s := range p.texts() {
			if p.frames[i].T == wire.TEvent && s != fmt.Sprint("ev g ", members+1+i) {
				t.Fatalf("%v", p.texts())
			}
		}
		if p.conn.Closing() {
			t.Fatal("closed")
		}
	}
}

// A device that asks faster than it reads is not read from, until it has read.
func TestWaitRoom(t *testing.T) {
	cfg := testConfig()
	cfg.QueueBytes = 600_000
	h := newHub(t, cfg, newMemory())
	p := tcp(t, h, "u", "d")
	if !p.conn.WaitRoom(t.Context()) {
		t.Fatal("no room in an empty queue")
	}
	p.conn.fill(t)
	reply := &wire.Frame{T: wire.TSynced, Conv: strings.Repeat("x", 15_000)}
	p.conn.ReplyNow(reply)
	p.conn.ReplyNow(reply)
	var through atomic.Bool
	done := make(chan bool, 1)
	go func() {
		ok := p.conn.WaitRoom(t.Context())
		through.Store(true)
		done <- ok
	}()
	p.conn.mu.Lock()
	for p.conn.room == nil {
		p.conn.mu.Unlock()
		runtime.Gosched()
		p.conn.mu.Lock()
	}
	p.conn.mu.Unlock()
	if through.Load() {
		t.Fatal("did not wait")
	}
	p.start()
	if !<-done {
		t.Fatal("no room though the peer reads")
	}
	p.wait(func(p *peer) bool { return len(p.frames) > 0 && p.frames[len(p.frames)-1].T == wire.TSynced })
	p.conn.Close(wire.CloseDraining, "")
	if p.conn.WaitRoom(t.Context()) {
		t.Fatal("a closing connection has room")
	}
}

// The close frame follows what was queued, and its code and reason arrive.
func TestCloseSendsWhatIsQueued(t *testing.T) {
	h := newHub(t, testConfig(), newMemory())
	p := tcp(t, h, "u", "d")
	p.conn.push(newReplyFrame(&wire.Frame{T: wire.TPong}))
	p.conn.Close(wire.CloseNotAdmitted, "retry_after_ms=17")
	p.conn.Close(wire.CloseReplaced, "")
	br := bufio.NewReader(p.nc)
	if _, payload, _ := readFrame(br); string(payload) != `{"t":"pong"}` {
		t.Fatalf("first %s", payload)
	}
	op, payload, err := readFrame(br)
	if err != nil || op != opClose || string(payload) != "\x0f\xa9retry_after_ms=17" {
		t.Fatalf("then op %d, %q, %v", op, payload, err)
	}
	p.conn.Gone(1000)
	if _, _, err := readFrame(br); err == nil {
		t.Fatal("the socket is still open")
	}
	if h.Connections() != 0 || h.device("d") != nil || len(h.registry.users) != 0 {
		t.Fatal("still registered")
	}
}

func TestMetrics(t *testing.T) {
	m := newMemory()
	m.create("c", im.Push, "ana", "ben")
	h := newHub(t, testConfig(), m)
	p := tcp(t, h, "ben", "b1").start()
	h.Committed([]im.Event{m.msg("c", "ana", "a1")})
	p.wait(func(p *peer) bool { return len(p.frames) == 1 })
	p.conn.Received(KAck, 40)
	p.conn.Gone(77_777) // a code of the peer's own making
	got := gather(t, h)
	size := len(`{"t":"event","ev":{"conv":"c","seq":3,"kind":"msg","mid":"m","sender":"ana","body":"hello","at":-62135596800000}}`)
	for name, want := range map[string]float64{
		"im_frames_total dir=in type=ack": 1, "im_frames_total dir=out type=event": 1,
		"im_frame_bytes_total dir=in type=ack": 40, "im_frame_bytes_total dir=out type=event": float64(size),
		"im_closes_total code=4999": 1, "im_connections": 0, "im_fanout_seconds": 1, "im_fanout_member_reads_total": 1,
		"im_sweep_hints_total": 0, "im_queue_collapses_total": 0,
	} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s is %v (there: %v), want %v", name, v, ok, want)
		}
	}
}

// gather collects the hub's metrics through a registry that checks them; a histogram counts with its samples.
func gather(t testing.TB, h *Hub) map[string]float64 {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(h.Collectors()...)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetName() + "=" + l.GetValue()
			}
			all[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return all
}

func TestKinds(t *testing.T) {
	for k := KHello; k < KControl; k++ {
		if KindOf(kindNames[k]) != k || kindNames[k] == "" {
			t.Errorf("kind %d is %q", k, kindNames[k])
		}
	}
	if KindOf("control") != KOther || KindOf("") != KOther {
		t.Error("unknown types")
	}
}

package hub

import (
	"fmt"
	"io"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"imbench/server/internal/im"
	"imbench/server/internal/im/imwire"
)

// threadCPU is the processor time of the calling thread.
func threadCPU(tb testing.TB) time.Duration {
	const rusageThread = 1
	var u syscall.Rusage
	if err := syscall.Getrusage(rusageThread, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkFanout compares, turn by turn on the same sockets, the processor time of the sending thread for a frame of
// about 400 bytes to 500 connections: a plain write of the same bytes, the fan-out of one event, and of four events
// that leave together. README.md has the ratios and what is asked of them.
func BenchmarkFanout(b *testing.B) {
	const members = 500
	m := newMemory()
	var users []string
	for i := range members {
		users = append(users, fmt.Sprint("u", i))
	}
	m.create("g", im.Push, users...)
	cfg := testConfig()
	cfg.HintAbove, cfg.Grace = 0, time.Hour
	h := newHub(b, cfg, m)
	var peers []*peer
	for i, u := range users {
		p := tcp(b, h, u, fmt.Sprint("d", i))
		peers = append(peers, p)
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{p.nc}, make([]byte, 4096))
		}()
		b.Cleanup(func() {
			_ = p.nc.Close()
			<-done
		})
	}
	s := newShard(h) // its worker is this benchmark
	e := s.cache.add("g")
	infos, err := m.ConvInfos(b.Context(), []im.SeqRange{{Conv: "g", From: members}})
	if err != nil {
		b.Fatal(err)
	}
	e.load(&h.registry, infos[0], members)
	ev := im.Event{Conv: "g", Seq: members, Kind: im.KindMsg, MID: strings.Repeat("m", 36), Sender: "u0", CMID: strings.Repeat("k", 36),
		Body: strings.Repeat("x", 200), At: time.Now()}
	wireEvent := imwire.Event(&ev)
	plain := newEventFrame(&wireEvent, 0).data

	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var raw, one, four time.Duration
	turns := 0
	for b.Loop() {
		turns++
		t0 := threadCPU(b)
		for _, p := range peers {
			if _, err := p.conn.nc.Write(plain); err != nil {
				b.Fatal(err)
			}
		}
		t1 := threadCPU(b)
		ev.Seq++
		e.apply(&h.registry, &ev)
		s.deliverEvent(e, &ev, h.now())
		s.flush()
		t2 := threadCPU(b)
		for range 4 {
			ev.Seq++
			e.apply(&h.registry, &ev)
			s.deliverEvent(e, &ev, h.now())
		}
		s.flush()
		t3 := threadCPU(b)
		raw, one, four = raw+t1-t0, one+t2-t1, four+(t3-t2)/4
	}
	b.ReportMetric(float64(raw.Nanoseconds())/float64(turns*members), "raw-ns/frame")
	b.ReportMetric(float64(one)/float64(raw), "one/raw")
	b.ReportMetric(float64(four)/float64(raw), "four/raw")
	if n := h.metrics.flushers.Load(); n > 0 {
		b.Logf("%d of %d writes met a full socket", n, turns*members*2)
	}
}

package hub

import (
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"imbench/server/internal/im"
	"imbench/server/internal/im/imwire"
)

// threadCPU is the processor time of the calling thread. getrusage would say what it was at the last tick.
func threadCPU(tb testing.TB) time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(ts.Nano())
}

// BenchmarkFanout compares, turn by turn on the same sockets, the processor time of the sending thread for each receiver of
// a frame of about 400 bytes: a plain write of the same bytes (raw), the fan-out of one event, of four events that leave
// together, of a hint in the event's place, and of a message that shares its hint with 19 others of the same window.
// README.md has the ratios and what is asked of them.
func BenchmarkFanout(b *testing.B) {
	for _, members := range []int{30, 500, 1000} {
		b.Run(fmt.Sprint("receivers=", members), func(b *testing.B) { benchFanout(b, members) })
	}
}

// bench is a hub, and a shard whose worker is the benchmark, with one conversation in each mode; all members' devices are
// connected, and read what comes.
type bench struct {
	h     *Hub
	s     *shard
	peers []*peer
	push  *entry
	pull  *entry
	ev    im.Event
	got   atomic.Int64 // bytes that the devices have read
	plain int64        // and of them those that the hub did not write
}

// Write counts what a device has read.
func (x *bench) Write(b []byte) (int, error) {
	x.got.Add(int64(len(b)))
	return len(b), nil
}

// settle waits until the devices have read all that was written: each arm finds the same readers, who sleep.
func (x *bench) settle() {
	sent := x.plain
	for k := range x.h.metrics.out {
		out := &x.h.metrics.out[k]
		sent += out.bytes.Load() + 2*out.frames.Load()
	}
	sent += 2 * x.h.metrics.out[KEvent].frames.Load() // their headers are longer
	for x.got.Load() < sent {
		runtime.Gosched()
	}
}

func newBench(b *testing.B, members int) *bench {
	m := newMemory()
	var users []string
	for i := range members {
		users = append(users, fmt.Sprint("u", i))
	}
	cfg := testConfig()
	cfg.HintAbove, cfg.Grace = 0, time.Hour
	x := &bench{h: newHub(b, cfg, m)}
	for i, u := range users {
		p := tcp(b, x.h, u, fmt.Sprint("d", i))
		x.peers = append(x.peers, p)
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = io.CopyBuffer(struct{ io.Writer }{x}, struct{ io.Reader }{p.nc}, make([]byte, 4096))
		}()
		b.Cleanup(func() {
			_ = p.nc.Close()
			<-done
		})
	}
	x.s = newShard(x.h)
	for conv, mode := range map[string]im.Mode{"push": im.Push, "pull": im.Pull} {
		m.create(conv, mode, users...)
		infos, err := m.ConvInfos(b.Context(), []im.SeqRange{{Conv: conv, From: int64(members)}})
		if err != nil {
			b.Fatal(err)
		}
		e := x.s.cache.add(conv)
		e.load(&x.h.registry, infos[0], int64(members))
		if mode == im.Push {
			x.push = e
		} else {
			x.pull = e
		}
	}
	x.ev = im.Event{Kind: im.KindMsg, MID: strings.Repeat("m", 36), Sender: "u0", CMID: strings.Repeat("k", 36),
		Body: strings.Repeat("x", 200), At: time.Now()}
	return x
}

// deliver fans out the conversation's next n messages, and writes them.
func (x *bench) deliver(e *entry, n int) {
	for range n {
		ev := x.ev
		ev.Conv, ev.Seq = e.conv, e.hi+1
		e.apply(&x.h.registry, &ev)
		x.s.deliverEvent(e, &ev, x.h.now())
	}
	x.s.releaseHints()
	x.s.flush()
}

func benchFanout(b *testing.B, members int) {
	x := newBench(b, members)
	ev := x.ev
	ev.Conv, ev.Seq = "push", x.push.hi
	wireEvent := imwire.Event(&ev)
	plain := newEventFrame(&wireEvent, 0).data
	hint := newHintFrame("pull", x.pull.hi, "").data

	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const window = 20 // messages that share a hint
	var raw, one, four, hints, merged time.Duration
	turns := 0
	var at time.Duration
	lap := func(sum *time.Duration, share int) {
		*sum += (threadCPU(b) - at) / time.Duration(share)
		x.settle()
		at = threadCPU(b)
	}
	for b.Loop() {
		turns++
		x.settle()
		at = threadCPU(b)
		for _, p := range x.peers {
			if _, err := p.conn.nc.Write(plain); err != nil {
				b.Fatal(err)
			}
		}
		x.plain += int64(len(plain) * members)
		lap(&raw, 1)
		x.deliver(x.push, 1)
		lap(&one, 1)
		x.deliver(x.push, 4)
		lap(&four, 4)
		x.deliver(x.pull, 1)
		lap(&hints, 1)
		x.h.cfg.HintWindow = 1 // ns: over when the last of them has come; the hub's own workers have nothing to do
		x.deliver(x.pull, window)
		x.h.cfg.HintWindow = 0
		lap(&merged, window)
	}
	b.ReportMetric(float64(raw.Nanoseconds())/float64(turns*members), "raw-ns/frame")
	for name, d := range map[string]time.Duration{"one/raw": one, "four/raw": four, "hint/raw": hints, "hint-of-20/raw": merged} {
		b.ReportMetric(float64(d)/float64(raw), name)
	}
	b.ReportMetric(float64(len(hint))/float64(len(plain)), "hint-B/event-B")
	b.ReportMetric(float64(len(hint))/float64(len(plain))/window, "hint-of-20-B/event-B")
	if n := x.h.metrics.flushers.Load(); n > 0 {
		b.Logf("%d of %d writes met a full socket", n, turns*members*4)
	}
}

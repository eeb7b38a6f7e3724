package hub

import (
	"fmt"
	"net"
	"testing"
	"time"
)

// sink takes everything.
type sink struct{ net.Conn }

func (sink) Close() error                     { return nil }
func (sink) Write(b []byte) (int, error)      { return len(b), nil }
func (sink) SetReadDeadline(time.Time) error  { return nil }
func (sink) SetWriteDeadline(time.Time) error { return nil }

// BenchmarkSweepMemory measures one turn of the sweep's level in memory, by devices and by the conversations of which each
// was told lately: with all of it acknowledged, and with four devices in five who never acknowledge, so that each turn
// sends all the hints that it may (4 096). What is told does not wait for the sockets.
func BenchmarkSweepMemory(b *testing.B) {
	for _, devices := range []int{1000, 5000} {
		for _, convs := range []int{15, 50} {
			for _, lazy := range []bool{false, true} {
				name := fmt.Sprintf("devices=%d/conversations=%d/acknowledged", devices, convs)
				if lazy {
					name = fmt.Sprintf("devices=%d/conversations=%d/lazy", devices, convs)
				}
				b.Run(name, func(b *testing.B) { benchSweep(b, devices, convs, lazy) })
			}
		}
	}
}

func benchSweep(b *testing.B, devices, convs int, lazy bool) {
	cfg := testConfig()
	cfg.Grace = 1 // each is due again at every turn; what was acknowledged is forgotten, so that it is told anew
	h := newHub(b, cfg, newMemory())
	var conns []*Conn
	for i := range devices {
		id := fmt.Sprint("d", i)
		c := h.NewConn(sink{})
		h.Claiming(id)
		if !h.Register(c, Peer{User: id, Device: id, Generation: c.ID}) {
			b.Fatal("not registered")
		}
		c.Subscribe()
		conns = append(conns, c)
	}
	names := make([]string, convs)
	for i := range names {
		names[i] = fmt.Sprintf("baseline-1-g%05d", i)
	}
	seq := int64(0)
	tell := func(ack bool) {
		seq++
		for i, c := range conns {
			for _, conv := range names {
				c.mu.Lock()
				c.told.add(conv, seq, 1, h.now(), false)
				c.mu.Unlock()
				if ack && (!lazy || i%5 == 0) {
					c.Acked(conv, seq)
				}
			}
		}
	}
	tell(true)
	var list []*Conn
	before := h.metrics.sweepHints.Load()
	b.ResetTimer()
	for range b.N {
		b.StopTimer()
		if !lazy {
			tell(true)
		}
		b.StartTimer()
		list, _ = h.sweepMemory(list)
	}
	b.StopTimer()
	per := float64(b.Elapsed().Nanoseconds()) / float64(b.N)
	b.ReportMetric(per/1e6, "ms/sweep")
	b.ReportMetric(per/float64(devices*convs), "ns/conversation")
	b.ReportMetric(float64(h.metrics.sweepHints.Load()-before)/float64(b.N), "hints/sweep")
}

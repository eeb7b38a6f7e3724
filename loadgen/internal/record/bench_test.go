package record

import (
	"testing"

	"imbench/loadgen/internal/sample"
	"imbench/reports/rundir"
)

// BenchmarkDeliver is a latency that is recorded: CPU time of one of several devices that report at once, beside that of the
// histogram alone. The aim is under 50 ns and no allocation.
func BenchmarkDeliver(b *testing.B) {
	r := New(Config{})
	r.SetWindow(from, to)
	h := rundir.NewHistogram()
	b.ReportAllocs()
	begun := ownCPU()
	b.RunParallel(func(pb *testing.PB) {
		d := sample.Delivery{Intended: in, At: in + ms}
		for pb.Next() {
			d.Device++
			r.Deliver(d)
		}
	})
	ours := ownCPU() - begun
	b.StopTimer()
	begun = ownCPU()
	for range b.N {
		_ = h.RecordValue(int64(ms)) // in range
	}
	bare := ownCPU() - begun
	b.ReportMetric(float64(ours)/float64(b.N), "cpu-ns/op")
	b.ReportMetric(float64(bare)/float64(b.N), "bare-cpu-ns/op")
}

func BenchmarkFrame(b *testing.B) {
	r := New(Config{})
	r.SetWindow(from, to)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r.Frame(sample.Frame{Dir: sample.Down, Type: sample.FEvent, Bytes: 400, Msg: in})
		}
	})
}

// BenchmarkSend is a send that was done: two histograms, and the counters behind their one lock.
func BenchmarkSend(b *testing.B) {
	r := New(Config{})
	r.SetWindow(from, to)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		s := sample.Send{Intended: in, Start: in, Written: in, Done: in + ms}
		for pb.Next() {
			s.Device++
			r.Send(s)
		}
	})
}

// TestRecordingDoesNotAllocate: whatever a device reports while all is well.
func TestRecordingDoesNotAllocate(t *testing.T) {
	r := New(Config{})
	r.SetWindow(from, to)
	for name, report := range map[string]func(){
		"frame":    func() { r.Frame(sample.Frame{Dir: sample.Down, Type: sample.FEvent, Bytes: 400, Msg: in}) },
		"delivery": func() { r.Deliver(sample.Delivery{Intended: in, At: in + ms}) },
		"send":     func() { r.Send(sample.Send{Intended: in, Start: in, Written: in, Done: in + ms}) },
		"ack":      func() { r.Op(sample.Op{Kind: sample.OpAck, Start: in, Done: in + ms, Msg: in}) },
	} {
		if n := testing.AllocsPerRun(1000, report); n != 0 {
			t.Errorf("recording a %s allocates %v times", name, n)
		}
	}
}

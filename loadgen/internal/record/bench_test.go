package record

import (
	"testing"

	"imbench/loadgen/internal/sample"
)

func BenchmarkDeliver(b *testing.B) {
	r := New(Config{})
	r.SetWindow(from, to)
	b.RunParallel(func(pb *testing.PB) {
		d := sample.Delivery{Intended: in, At: in + ms}
		for pb.Next() {
			d.Device++
			r.Deliver(d)
		}
	})
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

package selftest

import (
	"sync"
	"sync/atomic"

	"imbench/loadgen/internal/sample"
)

// watcher keeps what the devices report of the events with which the gateway did wrong. It is a sample.Sink.
type watcher struct {
	injected *injector
	applied  atomic.Int64

	mu   sync.Mutex
	seen map[event]*sighting
}

// Frame, Send, Op and Reconnect implement sample.Sink; the watcher does not look at them.
func (w *watcher) Frame(sample.Frame)   {}
func (w *watcher) Send(sample.Send)     {}
func (w *watcher) Op(sample.Op)         {}
func (w *watcher) Reconnect(int32, int) {}

// Deliver implements sample.Sink.
func (w *watcher) Deliver(d sample.Delivery) {
	if d.Path == sample.Fetched {
		return
	}
	n := w.applied.Load()
	if !d.WireRepeat {
		n = w.applied.Add(1)
	}
	this := event{d.Device, d.Conv, d.Seq}
	before := event{d.Device, d.Conv, d.Seq - 1}
	if w.injected.has(this) {
		w.mu.Lock()
		s := w.at(this)
		if d.WireRepeat {
			s.repeated = true
		} else {
			s.repaired, s.took, s.applied = d.Path == sample.Repaired, d.At.Sub(d.Intended), n
		}
		w.mu.Unlock()
	}
	if !d.WireRepeat && w.injected.has(before) {
		w.mu.Lock()
		w.at(before).next = n
		w.mu.Unlock()
	}
}

// at gives the sighting of an event; mu must be held.
func (w *watcher) at(e event) *sighting {
	s := w.seen[e]
	if s == nil {
		s = &sighting{}
		w.seen[e] = s
	}
	return s
}

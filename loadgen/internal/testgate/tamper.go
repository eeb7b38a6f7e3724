package testgate

import (
	"time"

	"imbench/server/wire"
)

// Tamper breaks promises on purpose. Its functions are called with the gate's lock held, one at a time: they may call the
// methods of Hands, and no others of the gate. A nil function changes nothing.
type Tamper struct {
	// Push says what is sent to a device in the place of an event that it is due, in this order.
	Push func(h Hands, device string, e wire.Event) []wire.Event
	// Commit says what becomes of a new message that will get this seq.
	Commit func(device, conv string, seq int64) Commit
	// Acked says what the reply to an ack tells, given what was confirmed before and what is now.
	Acked func(device, conv string, before, now int64) int64
	// Hide leaves an event out of what a device gets by sync.
	Hide func(device, conv string, seq int64) bool
}

// Commit is what becomes of a message.
type Commit int

// A message is committed once; answered and forgotten, so that its seq stays empty; or committed twice, at two seqs.
const (
	Once Commit = iota
	Forget
	Twice
)

// Hands reach past the rules of the gate, from within a function of Tamper.
type Hands struct{ gate *Gate }

// Send sends an event to a device, whoever it is, if it is connected.
func (h Hands) Send(device string, e wire.Event) (sent bool) {
	s := h.gate.sessions[device]
	if s == nil {
		return false
	}
	s.send(&wire.Frame{T: wire.TEvent, Ev: e})
	return true
}

// Later calls f with the gate's lock held when d has passed.
func (h Hands) Later(d time.Duration, f func()) {
	time.AfterFunc(d, func() {
		h.gate.mu.Lock()
		defer h.gate.mu.Unlock()
		f()
	})
}

// SetAcked sets a device's cursor, back too.
func (g *Gate) SetAcked(conv, device string, seq int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.convs[conv].acked[device] = seq
}

// push sends a device an event that it is due; g.mu must be held.
func (g *Gate) push(s *Session, e *wire.Event) {
	if g.Tamper.Push == nil {
		s.send(&wire.Frame{T: wire.TEvent, Ev: *e})
		return
	}
	for _, e := range g.Tamper.Push(Hands{g}, s.device, *e) {
		s.send(&wire.Frame{T: wire.TEvent, Ev: e})
	}
}

// page is what a device gets of a log by sync, the events after a seq up to another; g.mu must be held.
func (g *Gate) page(device, conv string, after, to int64) (events []wire.Event) {
	for _, e := range g.convs[conv].events[min(after, to):to] {
		if e.Kind != "" && (g.Tamper.Hide == nil || !g.Tamper.Hide(device, conv, e.Seq)) {
			events = append(events, e)
		}
	}
	return events
}

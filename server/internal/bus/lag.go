package bus

import (
	"sync"
	"time"
)

// maxTimed is for how long a payload that has not come back is waited for before another one is timed.
const maxTimed = 30 * time.Second

// lag times payloads on their way through the database, one at a time: a NOTIFY comes back to the process that sent it
// too, which says more than the clock of another machine. The zero value is ready; it is safe for concurrent use.
type lag struct {
	mu      sync.Mutex
	payload string // that is timed; "" = none is
	began   time.Time
	measure time.Duration
}

// sending is called before a payload is sent.
func (l *lag) sending(payload string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.payload == "" || now.Sub(l.began) > maxTimed {
		l.payload, l.began = payload, now
	}
}

// arrived notes a payload that came back.
func (l *lag) arrived(payload string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if payload == l.payload {
		l.measure, l.payload = now.Sub(l.began), ""
	}
}

// forget is called when payloads may have been lost on the way.
func (l *lag) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.payload = ""
}

// last is the last measurement, or for how long the payload under way has been, if that is longer.
func (l *lag) last(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.payload != "" {
		return max(l.measure, now.Sub(l.began))
	}
	return l.measure
}

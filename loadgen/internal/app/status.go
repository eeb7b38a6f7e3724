package app

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"

	"imbench/loadgen/internal/driver"
	"imbench/loadgen/internal/record"
)

// status shows how the run is going: a line that is drawn over itself on a terminal, else a line of JSON a second.
// Its methods may be called from any goroutine.
type status struct {
	w        io.Writer
	terminal bool
	width    int
	devices  int
	rate     float64 // offered by the scenario, messages/s

	mu    sync.Mutex
	phase driver.Phase
	since time.Time
	total time.Duration // of the phase; 0 = open
}

func newStatus(w io.Writer, devices int, rate float64) *status {
	s := &status{w: w, devices: devices, rate: rate, width: 80}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		s.terminal = true
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 20 {
			s.width = width
		}
	}
	return s
}

func (s *status) enter(p driver.Phase, total time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.phase, s.since, s.total = p, time.Now(), total
}

// run draws until ctx ends, and leaves the cursor on a fresh line.
func (s *status) run(ctx context.Context, live *driver.Counters, rec *record.Recorder) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			if s.terminal {
				fmt.Fprint(s.w, "\r\x1b[K")
			}
			return
		case <-tick.C:
			s.draw(live.Snapshot(), rec.Snapshot())
		}
	}
}

func (s *status) draw(d driver.Snapshot, r record.Snapshot) {
	s.mu.Lock()
	phase, elapsed, total := s.phase, time.Since(s.since), s.total
	s.mu.Unlock()
	if phase == "" {
		return
	}
	if !s.terminal {
		line, err := json.Marshal(map[string]any{"phase": phase, "elapsed_s": round(elapsed.Seconds()), "of_s": round(total.Seconds()),
			"connected": d.Connected, "offered_rate": s.rate, "done_rate": round(r.DoneRate), "offered": d.Offered, "done": d.Done, "in_flight": d.InFlight,
			"failed": d.Failed, "send_p99_ms": ms(r.SendP99), "deliver_p99_ms": ms(r.DeliverP99), "late_p99_ms": ms(r.LateP99), "reconnects": d.Reconnects})
		if err == nil {
			fmt.Fprintf(s.w, "%s\n", line)
		}
		return
	}
	var text string
	switch phase {
	case driver.Connect:
		text = fmt.Sprintf("connect  %d of %d devices", d.Connected, s.devices)
	case driver.Settle, driver.Close, driver.Finished:
		text = fmt.Sprintf("%-8s %ds  %d in flight", phase, int(elapsed.Seconds()), d.InFlight)
	default:
		text = fmt.Sprintf("%-8s %d/%ds  %.0f of %.0f msg/s  p99 send %.1f deliver %.1f ms  failed %d", phase, int(elapsed.Seconds()), int(total.Seconds()),
			r.DoneRate, s.rate, ms(r.SendP99), ms(r.DeliverP99), d.Failed)
	}
	if len(text) >= s.width {
		text = text[:s.width-1]
	}
	fmt.Fprintf(s.w, "\r\x1b[K%s", text)
}

func ms(d time.Duration) float64 { return round(float64(d) / float64(time.Millisecond)) }

func round(v float64) float64 { return float64(int64(v*100+0.5)) / 100 }

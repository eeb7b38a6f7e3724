package app

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/term"

	"imbench/loadgen/internal/driver"
	"imbench/loadgen/internal/record"
	"imbench/loadgen/internal/view"
)

// How often a run is shown: the figures are of whole seconds, the clock of the phase is not.
const (
	redraw    = 500 * time.Millisecond
	lineEvery = time.Second
	dumbEvery = 5 * time.Second
)

// status shows how the run is going: lines that are drawn over themselves on a terminal (plain ones if it is a dumb one),
// else a line of JSON a second. Its methods may be called from any goroutine.
type status struct {
	w        io.Writer
	terminal *view.Terminal // nil = none that can draw
	dumb     bool           // a terminal that knows no control sequences
	devices  int
	rate     float64 // offered by the scenario, messages/s
	live     interface{ Snapshot() driver.Snapshot }
	rec      *record.Recorder

	mu    sync.Mutex
	phase driver.Phase
	since time.Time
	total time.Duration // of the phase; 0 = open
}

func newStatus(w io.Writer, env []string, devices int, rate float64) *status {
	s := &status{w: w, devices: devices, rate: rate}
	f, ok := terminal(w)
	if !ok {
		return s
	}
	if t := envValue(env, "TERM"); t == "dumb" || t == "" {
		s.dumb = true
		return s
	}
	size := func() (int, int) {
		width, height, err := term.GetSize(int(f.Fd()))
		if err != nil || width <= 0 || height <= 0 {
			return 80, 24
		}
		return width, height
	}
	s.terminal = view.NewTerminal(w, size, envValue(env, "NO_COLOR") == "")
	return s
}

func (s *status) enter(p driver.Phase, total time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.phase, s.since, s.total = p, time.Now(), total
}

// run shows the run until ctx ends, and leaves the screen as it was.
func (s *status) run(ctx context.Context) {
	every := lineEvery
	switch {
	case s.terminal != nil:
		every = redraw
		defer s.terminal.Clear()
	case s.dumb:
		every = dumbEvery
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if state := s.state(); state.Phase != "" {
				s.draw(state)
			}
		}
	}
}

func (s *status) draw(state view.State) {
	switch {
	case s.terminal != nil:
		s.terminal.Draw(state)
	case s.dumb:
		fmt.Fprintln(s.w, view.Line(state))
	default:
		if line, err := json.Marshal(state); err == nil {
			fmt.Fprintf(s.w, "%s\n", line)
		}
	}
}

// state is the run as it stands; without a phase it has not begun.
func (s *status) state() view.State {
	s.mu.Lock()
	phase, elapsed, total := s.phase, time.Since(s.since), s.total
	s.mu.Unlock()
	d, r := s.live.Snapshot(), s.rec.Snapshot()
	state := view.State{Phase: string(phase), ElapsedS: round(elapsed.Seconds()), OfS: round(total.Seconds()), Devices: s.devices, Connected: d.Connected,
		Ready: d.Ready, OfferedRate: s.rate, DoneRate: round(r.DoneRate), Offered: d.Offered, Started: d.Started, Done: d.Done, InFlight: d.InFlight,
		Failed: d.Failed, FailedBy: r.FailedBy, Reconnects: d.Reconnects, Dropped: r.Dropped, SendP50: ms(r.SendP50), SendP99: ms(r.SendP99),
		DeliverP50: ms(r.DeliverP50), DeliverP99: ms(r.DeliverP99), LateP99: ms(r.LateP99), Processes: []view.Process{}}
	if state.FailedBy == nil {
		state.FailedBy = map[string]int64{}
	}
	for _, p := range r.Processes {
		state.Processes = append(state.Processes, view.Process{Role: p.Role, Cores: round(p.Cores), RSSBytes: p.RSSBytes})
	}
	return state
}

func ms(d time.Duration) float64 { return round(float64(d) / float64(time.Millisecond)) }

func round(v float64) float64 { return float64(int64(v*100+0.5)) / 100 }

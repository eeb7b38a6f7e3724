package record

import (
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"imbench/loadgen/internal/clock"
	"imbench/loadgen/internal/sample"
	"imbench/reports/rundir"
)

// Part is what a recorder has counted since it was last asked: histograms and growth of counters, so that parts of several
// recorders add up to what one would have counted. It is made for encoding/gob; one takes some 10 kB a second of load, and
// 300 kB at most.
type Part struct {
	Worker  string
	At      time.Time
	Seconds float64

	Histograms map[string][]byte // by tag, HdrHistogram V2 compressed; empty ones are left out
	Late       []byte            // of all sends, not only those of the window
	Asides     map[string]Aside

	Sends, Window                     Sends
	LateSends                         int64 // of the window
	Frames, Bytes                     Traffic
	WindowFrames, WindowBytes         Traffic
	Applied, WindowApplied, WindowOwn int64
	Repeats, Dropped                  int64
	OpsFailed, Reconnects             map[string]int64

	InWindow  bool // the moment of asking
	Generator rundir.GeneratorSecond
	Processes []rundir.ProcessLine
}

// Aside counts values of a metric that no histogram shows.
type Aside struct{ Negative, OverRange, Censored int64 }

// Sends is what became of sends.
type Sends struct {
	Offered, Started, Done, Censored, Held int64
	Failed                                 map[string]int64 // by code
}

// Traffic counts by direction and type of frame.
type Traffic [2][sample.NumFrameTypes]int64

// Cut takes what was counted since the last Cut. It is for a recorder without a run directory, in place of Run and Tick;
// with final, later samples are dropped.
func (r *Recorder) Cut(now time.Time, final bool) (Part, error) {
	if final {
		r.closed.Store(true)
	}
	p := Part{At: now, Seconds: now.Sub(r.now.last).Seconds(), Histograms: map[string][]byte{}, Asides: map[string]Aside{}, InWindow: r.inWindow(clock.Now())}
	asides := r.now.side
	err := r.takeHistograms(func(m metric, h *hdrhistogram.Histogram) (err error) {
		p.Histograms[tags[m]], err = h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
		return err
	})
	if err != nil {
		return p, fmt.Errorf("a histogram could not be encoded: %w", err)
	}
	for m, now := range r.now.side {
		a := Aside{now.negative - asides[m].negative, now.overRange - asides[m].overRange, now.censored - asides[m].censored}
		if a != (Aside{}) {
			p.Asides[tags[m]] = a
		}
	}
	cur, late := r.read()
	if late.TotalCount() > 0 {
		if p.Late, err = late.Encode(hdrhistogram.V2CompressedEncodingCookieBase); err != nil {
			return p, fmt.Errorf("a histogram could not be encoded: %w", err)
		}
	}
	cur.growth(&p, r.now.before)
	p.Generator = r.self.look(now, p.InWindow, rundir.GeneratorSecond{})
	r.backlog.look(&p.Generator, p.InWindow)
	p.Processes = r.procs.look(now, p.InWindow)
	r.now.last, r.now.before = now, cur
	return p, nil
}

// growth fills in what was counted since b.
func (c *cumulative) growth(p *Part, b cumulative) {
	p.Sends, p.Window = c.sends.since(b.sends), c.window.sends.since(b.window.sends)
	p.LateSends = c.window.late - b.window.late
	p.OpsFailed, p.Reconnects = since(c.opsFailed, b.opsFailed), since(c.reconnects, b.reconnects)
	for d := range c.frames {
		for t := range c.frames[d] {
			p.Frames[d][t], p.Bytes[d][t] = c.frames[d][t]-b.frames[d][t], c.bytes[d][t]-b.bytes[d][t]
			p.WindowFrames[d][t] = c.window.frames[d][t] - b.window.frames[d][t]
			p.WindowBytes[d][t] = c.window.bytes[d][t] - b.window.bytes[d][t]
		}
	}
	p.Applied, p.Repeats, p.Dropped = c.applied-b.applied, c.repeats-b.repeats, c.dropped-b.dropped
	p.WindowApplied, p.WindowOwn = c.window.applied-b.window.applied, c.window.own-b.window.own
}

func (t tally) since(b tally) Sends {
	return Sends{t.offered - b.offered, t.started - b.started, t.done - b.done, t.censored - b.censored, t.held - b.held, since(t.failed, b.failed)}
}

func (t *tally) absorb(s Sends) {
	t.offered, t.started, t.done, t.censored = t.offered+s.Offered, t.started+s.Started, t.done+s.Done, t.censored+s.Censored
	t.held += s.Held
	absorb(t.failed, s.Failed)
}

func absorb(m, more map[string]int64) {
	for k, n := range more {
		if _, known := m[k]; !known && len(m) >= maxCodes {
			k = "other"
		}
		m[k] += n
	}
}

// Absorb adds a part as if its samples had been seen here. The error is for a part that no recorder of this version made;
// nothing of it is added then. It is safe for concurrent use with everything but Finish.
func (r *Recorder) Absorb(p Part) error {
	var h [numMetrics]*hdrhistogram.Histogram
	for m, tag := range tags {
		var err error
		if h[m], err = decode(p.Histograms[tag]); err != nil {
			return fmt.Errorf("histogram %s of %s: %w", tag, p.Worker, err)
		}
	}
	late, err := decode(p.Late)
	if err != nil {
		return fmt.Errorf("histogram of %s: %w", p.Worker, err)
	}
	s := &r.shards[0]
	s.mu.Lock()
	for m, tag := range tags {
		if h[m] != nil {
			r.dropped.Add(s.h[m].Merge(h[m]))
		}
		a := p.Asides[tag]
		s.side[m].add(aside{a.Negative, a.OverRange, a.Censored})
	}
	s.mu.Unlock()
	r.sends.absorb(p, late)
	for d := range p.Frames {
		for t := range p.Frames[d] {
			r.all[d][t].frames.Add(p.Frames[d][t])
			r.all[d][t].bytes.Add(p.Bytes[d][t])
			r.win[d][t].frames.Add(p.WindowFrames[d][t])
			r.win[d][t].bytes.Add(p.WindowBytes[d][t])
		}
	}
	r.applied.Add(p.Applied)
	r.repeats.Add(p.Repeats)
	r.dropped.Add(p.Dropped)
	r.appliedInWin.Add(p.WindowApplied)
	r.ownInWin.Add(p.WindowOwn)
	r.peers.add(p)
	return nil
}

// decode reads a histogram, nil for none. What does not have our shape is refused.
func decode(b []byte) (*hdrhistogram.Histogram, error) {
	if len(b) == 0 {
		return nil, nil
	}
	h, err := hdrhistogram.Decode(b)
	if err != nil {
		return nil, err
	}
	if h.HighestTrackableValue() != rundir.HighestNS || h.LowestTrackableValue() != rundir.LowestNS {
		return nil, fmt.Errorf("its range is %d to %d ns, want %d to %d", h.LowestTrackableValue(), h.HighestTrackableValue(), rundir.LowestNS, rundir.HighestNS)
	}
	return h, nil
}

func (c *sendCounts) absorb(p Part, late *hdrhistogram.Histogram) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all.absorb(p.Sends)
	c.win.absorb(p.Window)
	c.lateSends += p.LateSends
	if late != nil {
		c.late.Merge(late)
	}
	absorb(c.opsFailed, p.OpsFailed)
	absorb(c.reconnects, p.Reconnects)
}

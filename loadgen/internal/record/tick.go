package record

import (
	"maps"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"imbench/loadgen/internal/clock"
	"imbench/loadgen/internal/sample"
	"imbench/reports/rundir"
)

// tick is the state from one second to the next. mu guards what Snapshot reads; the rest belongs to the owner of Tick.
type tick struct {
	last     time.Time
	spare    [numMetrics]*hdrhistogram.Histogram
	interval *hdrhistogram.Histogram
	total    [numMetrics]*hdrhistogram.Histogram
	side     [numMetrics]aside
	before   cumulative

	mu   sync.Mutex
	snap Snapshot
	done []doneAt // the last seconds, for a rate
	cpu  map[int]cpuAt
}

// doneAt is the cumulative number of finished sends at a moment.
type doneAt struct {
	at   time.Time
	done int64
}

// cumulative is every counter since the start, so that a second is a difference.
type cumulative struct {
	sends      tally
	reconnects map[string]int64
	opsFailed  map[string]int64
	frames     [2][sample.NumFrameTypes]int64
	bytes      [2][sample.NumFrameTypes]int64
	applied    int64
	repeats    int64
	dropped    int64
	window     windowCounts
}

// windowCounts is what was counted for the measured window.
type windowCounts struct {
	sends         tally
	late          int64 // sends
	frames, bytes [2][sample.NumFrameTypes]int64
	applied, own  int64
}

func (t *tick) init(now time.Time) {
	t.last, t.spare, t.total, t.interval = now, newSet(), newSet(), rundir.NewHistogram()
}

// Tick closes an interval: it writes what happened since the last one and looks at the processes. Run calls it each
// second; it returns the run directory's error.
func (r *Recorder) Tick(now time.Time) error {
	err := r.takeHistograms(func(m metric, h *hdrhistogram.Histogram) error {
		return r.cfg.Out.Latency(tags[m], r.now.last, now, h)
	})
	if err != nil {
		return err
	}
	cur, late := r.read()
	self := r.self.look(now, r.inWindow(clock.Now()), r.peers.take())
	r.backlog.look(&self, r.inWindow(clock.Now()))
	line := rundir.CounterLine{At: now, Seconds: now.Sub(r.now.last).Seconds(),
		LateP99MS: rundir.MetricOf(late).P99, LateMaxMS: rundir.MetricOf(late).Max, Generator: self}
	r.now.before.fill(&line, cur)
	r.now.last, r.now.before = now, cur
	r.snapshot(now, cur, late)
	if err := r.cfg.Out.Counters(line); err != nil {
		return err
	}
	lines := append(r.procs.look(now, r.inWindow(clock.Now())), r.peers.takeLines()...)
	r.now.noteProcesses(now, lines)
	for _, p := range lines {
		if err := r.cfg.Out.Process(p); err != nil {
			return err
		}
	}
	return nil
}

// takeHistograms takes what the shards recorded, adds it to the total, and hands on an interval a metric that has any.
func (r *Recorder) takeHistograms(each func(m metric, h *hdrhistogram.Histogram) error) error {
	for m := range numMetrics {
		r.now.interval.Reset()
		for i := range r.shards {
			s := &r.shards[i]
			s.mu.Lock()
			full := s.h[m]
			s.h[m], r.now.spare[m] = r.now.spare[m], full
			side := s.side[m]
			s.side[m] = aside{}
			s.mu.Unlock()
			r.now.side[m].add(side)
			if full.TotalCount() > 0 {
				r.now.interval.Merge(full)
				full.Reset()
			}
		}
		if r.now.interval.TotalCount() == 0 {
			continue
		}
		r.now.total[m].Merge(r.now.interval)
		r.now.note(m)
		if err := each(m, r.now.interval); err != nil {
			return err
		}
	}
	return nil
}

// read takes all counters, and the second's lateness, which it empties.
func (r *Recorder) read() (c cumulative, late *hdrhistogram.Histogram) {
	r.sends.mu.Lock()
	c.sends = r.sends.all.clone()
	c.reconnects = maps.Clone(r.sends.reconnects)
	c.opsFailed = maps.Clone(r.sends.opsFailed)
	c.window.sends, c.window.late = r.sends.win.clone(), r.sends.lateSends
	late = r.sends.late.Clone()
	r.sends.late.Reset()
	r.sends.mu.Unlock()
	if r.cfg.Live != nil {
		c.sends.offered, c.sends.started = r.cfg.Live()
	}
	for d := range r.all {
		for t := range r.all[d] {
			c.frames[d][t], c.bytes[d][t] = r.all[d][t].frames.Load(), r.all[d][t].bytes.Load()
			c.window.frames[d][t], c.window.bytes[d][t] = r.win[d][t].frames.Load(), r.win[d][t].bytes.Load()
		}
	}
	c.applied, c.repeats, c.dropped = r.applied.Load(), r.repeats.Load(), r.dropped.Load()
	c.window.applied, c.window.own = r.appliedInWin.Load(), r.ownInWin.Load()
	return c, late
}

// fill writes the growth from b to cur into the line.
func (b *cumulative) fill(l *rundir.CounterLine, cur cumulative) {
	l.Offered, l.Started = cur.sends.offered-b.sends.offered, cur.sends.started-b.sends.started
	l.Done, l.Censored = cur.sends.done-b.sends.done, cur.sends.censored-b.sends.censored
	l.Held = cur.sends.held - b.sends.held
	l.Failed = since(cur.sends.failed, b.sends.failed)
	l.OpsFailed = since(cur.opsFailed, b.opsFailed)
	l.Reconnects = since(cur.reconnects, b.reconnects)
	l.Applied, l.WireRepeats, l.Dropped = cur.applied-b.applied, cur.repeats-b.repeats, cur.dropped-b.dropped
	l.Frames = rundir.ByDirection{Up: growth(cur.frames[sample.Up], b.frames[sample.Up]),
		Down: growth(cur.frames[sample.Down], b.frames[sample.Down])}
	l.Bytes = rundir.ByDirection{Up: growth(cur.bytes[sample.Up], b.bytes[sample.Up]),
		Down: growth(cur.bytes[sample.Down], b.bytes[sample.Down])}
}

func growth(now, before [sample.NumFrameTypes]int64) map[string]int64 {
	d := map[string]int64{}
	for t := range now {
		if n := now[t] - before[t]; n != 0 {
			d[sample.FrameType(t).String()] = n
		}
	}
	return d
}

func (r *Recorder) snapshot(now time.Time, c cumulative, late *hdrhistogram.Histogram) {
	t := &r.now
	t.mu.Lock()
	defer t.mu.Unlock()
	t.done = append(t.done, doneAt{now, c.sends.done})
	if len(t.done) > 6 {
		t.done = t.done[1:]
	}
	s := &t.snap
	s.Offered, s.Started, s.Done, s.Failed = c.sends.offered, c.sends.started, c.sends.done, sum(c.sends.failed)
	s.FailedBy = c.sends.failed // a clone
	if first := t.done[0]; now.After(first.at) {
		s.DoneRate = float64(c.sends.done-first.done) / now.Sub(first.at).Seconds()
	}
	s.Applied, s.Reconnects, s.Dropped = c.applied, sum(c.reconnects), c.dropped
	s.LateP99 = time.Duration(late.ValueAtPercentile(99))
}

// Snapshot is the state at the last tick.
func (r *Recorder) Snapshot() Snapshot {
	r.now.mu.Lock()
	defer r.now.mu.Unlock()
	return r.now.snap
}

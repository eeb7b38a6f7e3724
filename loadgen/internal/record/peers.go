package record

import (
	"sync"

	"imbench/reports/rundir"
)

// peers are the processes whose parts are absorbed: their look at themselves. Its methods may be called from any goroutine.
type peers struct {
	mu    sync.Mutex
	now   rundir.GeneratorSecond // since the last take, of all
	lines []rundir.ProcessLine   // likewise
	list  []*peer                // in the order of their first part
}

// peer is one of them in the window.
type peer struct {
	worker       string
	pid          int
	cpu, seconds float64 // core seconds in so many seconds
	rss          int64
}

func (p *peers) add(part Part) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now = together(p.now, part.Generator)
	p.lines = append(p.lines, part.Processes...)
	var x *peer
	for _, known := range p.list {
		if known.worker == part.Worker {
			x = known
		}
	}
	if x == nil {
		x = &peer{worker: part.Worker}
		p.list = append(p.list, x)
	}
	for _, l := range part.Processes {
		x.pid = l.PID
		if part.InWindow {
			x.rss = max(x.rss, l.RSSBytes)
		}
	}
	if part.InWindow {
		x.cpu += part.Generator.CPUCores * part.Seconds
		x.seconds += part.Seconds
	}
}

// together is what several processes used in the same second: sums, and the longest pause. A quota may be one for all.
func together(a, b rundir.GeneratorSecond) rundir.GeneratorSecond {
	return rundir.GeneratorSecond{CPUCores: a.CPUCores + b.CPUCores, GCPauseMaxMS: max(a.GCPauseMaxMS, b.GCPauseMaxMS),
		GCCycles: a.GCCycles + b.GCCycles, Goroutines: a.Goroutines + b.Goroutines, HeapBytes: a.HeapBytes + b.HeapBytes,
		ThrottledMS: max(a.ThrottledMS, b.ThrottledMS), Unread: unreadOf(a.Unread, b.Unread)}
}

// take gives what came since the last call.
func (p *peers) take() rundir.GeneratorSecond {
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.now
	p.now = rundir.GeneratorSecond{}
	return g
}

// takeLines gives the process lines that came since the last call.
func (p *peers) takeLines() []rundir.ProcessLine {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.lines
	p.lines = nil
	return l
}

// use is each process in the window.
func (p *peers) use() (list []rundir.ProcessUse) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, x := range p.list {
		list = append(list, rundir.ProcessUse{Role: x.worker, PID: x.pid, CPUCores: x.cores(), RSSMaxBytes: x.rss})
	}
	return list
}

func (x *peer) cores() float64 {
	if x.seconds <= 0 {
		return 0
	}
	return x.cpu / x.seconds
}

// cores is what all used together in the window.
func (p *peers) cores() (sum float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, x := range p.list {
		sum += x.cores()
	}
	return sum
}

package record

import (
	"sync"
	"time"

	"imbench/reports/rundir"
)

// procs watches processes. look belongs to the owner of Tick; watch and use may be called by others.
type procs struct {
	proc string // "/proc"
	mu   sync.Mutex
	list []*watched
}

// watched is one process (tree) under watch.
type watched struct {
	Process
	start uint64
	last  usage
	gone  bool
	span  span
	rss   int64 // largest in the window
}

func (p *procs) init(list []Process) {
	p.proc = "/proc"
	for _, x := range list {
		p.list = append(p.list, &watched{Process: x})
	}
}

// Watch adds a process that was started after the recorder was made.
func (r *Recorder) Watch(p Process) {
	r.procs.mu.Lock()
	defer r.procs.mu.Unlock()
	r.procs.list = append(r.procs.list, &watched{Process: p})
}

// look reads each process. One that ended is told once, with its last figures.
func (p *procs) look(now time.Time, inWindow bool) (lines []rundir.ProcessLine) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.list {
		if w.gone {
			continue
		}
		u, err := readUsage(p.proc, w.PID, w.Tree)
		if err != nil || w.start != 0 && u.start != w.start {
			w.gone = true
		} else {
			// A child that ends between two readings may be missed once; CPU time never goes back.
			u.cpu = max(u.cpu, w.last.cpu)
			w.start, w.last = u.start, u
			if inWindow {
				w.span.add(now, u.cpu)
				w.rss = max(w.rss, u.rss)
			}
		}
		lines = append(lines, rundir.ProcessLine{At: now, Role: w.Role, PID: w.PID, CPUSec: w.last.cpu.Seconds(),
			RSSBytes: w.last.rss, Processes: w.last.processes, Gone: w.gone})
	}
	return lines
}

// use is each process in the window.
func (p *procs) use() (list []rundir.ProcessUse) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.list {
		list = append(list, rundir.ProcessUse{Role: w.Role, PID: w.PID, CPUCores: w.span.cores(), RSSMaxBytes: w.rss})
	}
	return list
}

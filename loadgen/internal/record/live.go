package record

import (
	"time"

	"imbench/reports/rundir"
)

// ProcessRate is a watched process in the last second.
type ProcessRate struct {
	Role     string
	Cores    float64
	RSSBytes int64
}

// note keeps what a status shows of the interval that was just added to metric m.
func (t *tick) note(m metric) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch m {
	case mIntended:
		t.snap.SendP50, t.snap.SendP99 = quantile(t, 50), quantile(t, 99)
	case mDeliver:
		t.snap.DeliverP50, t.snap.DeliverP99 = quantile(t, 50), quantile(t, 99)
	}
	// A map of its own each time: the one that Snapshot gave away does not change.
	all := make(map[string]rundir.Metric, numMetrics)
	for tag, x := range t.snap.Latencies {
		all[tag] = x
	}
	all[tags[m]] = rundir.MetricOf(t.total[m])
	t.snap.Latencies = all
}

func quantile(t *tick, q float64) time.Duration {
	return time.Duration(t.interval.ValueAtPercentile(q))
}

// noteProcesses keeps what the processes used between two lines of theirs.
func (t *tick) noteProcesses(now time.Time, lines []rundir.ProcessLine) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cpu == nil {
		t.cpu = map[int]cpuAt{}
	}
	t.snap.Processes = nil
	seen := make(map[int]cpuAt, len(lines))
	for _, l := range lines {
		if l.Gone {
			continue
		}
		p := ProcessRate{Role: l.Role, RSSBytes: l.RSSBytes}
		if before, ok := t.cpu[l.PID]; ok && now.After(before.at) {
			p.Cores = max(l.CPUSec-before.cpu, 0) / now.Sub(before.at).Seconds()
		}
		seen[l.PID] = cpuAt{now, l.CPUSec}
		t.snap.Processes = append(t.snap.Processes, p)
	}
	t.cpu = seen
}

// cpuAt is CPU time, in seconds, at a moment.
type cpuAt struct {
	at  time.Time
	cpu float64
}

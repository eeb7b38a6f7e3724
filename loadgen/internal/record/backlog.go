package record

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"imbench/loadgen/internal/sample"
	"imbench/reports/rundir"
)

// maxLooked bounds how many sockets are looked into each second: some 300 µs.
const maxLooked = 512

// backlog watches what else may keep the generator from its work: bytes that it has not read yet, and a CPU quota. look
// belongs to the owner of Tick; use may be called by another.
type backlog struct {
	unread func(most int) (sockets int, bytes, largest int64)
	quota  quota

	mu        sync.Mutex
	throttled time.Duration // since boot, at the last look
	looks     int64
	perSocket float64 // sum over the looks in the window
	largest   int64
	from, to  time.Time // first and last look in the window
	inWindow  float64   // ms held up between these
}

func (b *backlog) init(unread func(int) (int, int64, int64)) {
	b.unread = unread
	b.quota = findQuota("/proc/self/cgroup", "/sys/fs/cgroup")
	b.throttled = b.quota.throttled()
}

// unreadOf is both looks as one; nil is none.
func unreadOf(a, b *rundir.Unread) *rundir.Unread {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return &rundir.Unread{Sockets: a.Sockets + b.Sockets, Bytes: a.Bytes + b.Bytes, MaxBytes: max(a.MaxBytes, b.MaxBytes)}
}

// look adds this process's second to what others have said of theirs.
func (b *backlog) look(g *rundir.GeneratorSecond, inWindow bool) {
	now, throttled := time.Now(), b.quota.throttled()
	b.mu.Lock()
	defer b.mu.Unlock()
	g.ThrottledMS = max(g.ThrottledMS, float64(throttled-b.throttled)/float64(time.Millisecond))
	b.throttled = throttled
	if b.unread != nil {
		if sockets, bytes, largest := b.unread(maxLooked); sockets > 0 {
			g.Unread = unreadOf(g.Unread, &rundir.Unread{Sockets: sockets, Bytes: bytes, MaxBytes: largest})
		}
	}
	if !inWindow {
		return
	}
	if b.from.IsZero() {
		b.from = now
	} else {
		b.inWindow += g.ThrottledMS
	}
	b.to = now
	if u := g.Unread; u != nil {
		b.looks++
		b.perSocket += float64(u.Bytes) / float64(u.Sockets)
		b.largest = max(b.largest, u.MaxBytes)
	}
}

// use fills in the window. perSocket is how many bytes a second a socket received: by Little's law the bytes that lie there
// on average, divided by it, are how long each of them does.
func (b *backlog) use(g *rundir.Generator, perSocket float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	g.CPULimit = b.quota.cores
	g.UnreadMaxBytes = b.largest
	if length := b.to.Sub(b.from); length > 0 {
		g.ThrottledShare = min(1, b.inWindow/1000/length.Seconds())
	}
	if b.looks > 0 && perSocket > 0 {
		ms := b.perSocket / float64(b.looks) / perSocket * 1000
		g.UnreadMeanMS = &ms
	}
}

// downRate is how many bytes a second a socket received of the window's messages; 0 = not known.
func (r *Recorder) downRate() float64 {
	seconds := time.Duration(r.to.Load() - r.from.Load()).Seconds()
	if seconds <= 0 || r.cfg.Sockets == 0 {
		return 0
	}
	var bytes int64
	for t := range r.win[sample.Down] {
		if sample.FrameType(t) != sample.FEventDiscarded { // counted as an event, too
			bytes += r.win[sample.Down][t].bytes.Load()
		}
	}
	return float64(bytes) / seconds / float64(r.cfg.Sockets)
}

// quota is the CPU limit of the control group that this process is in.
type quota struct {
	cores float64 // the group's quota, or the processors
	stat  string  // file that says how long the group was throttled; "" = none
	key   string
	unit  time.Duration
}

// findQuota looks for a limit of control groups, version 2 or 1. The tightest of a group and its parents would count; only
// the own group and the root of what is mounted are looked at, which is what containers show.
func findQuota(self, mount string) quota {
	q := quota{cores: float64(runtime.NumCPU())}
	b, _ := os.ReadFile(self) // without it there is no limit to be found
	for line := range strings.Lines(string(b)) {
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(part) != 3 {
			continue
		}
		var dirs []string
		v2 := part[1] == ""
		switch {
		case v2:
			dirs = []string{filepath.Join(mount, part[2]), mount, filepath.Join(mount, "unified", part[2])}
		case strings.Contains(","+part[1]+",", ",cpu,"):
			dirs = []string{filepath.Join(mount, part[1], part[2]), filepath.Join(mount, part[1]), filepath.Join(mount, "cpu", part[2])}
		}
		for _, dir := range dirs {
			if cores, ok := readLimit(dir, v2); ok && cores < q.cores {
				q.cores, q.stat = cores, filepath.Join(dir, "cpu.stat")
				q.key, q.unit = "throttled_time", time.Nanosecond
				if v2 {
					q.key, q.unit = "throttled_usec", time.Microsecond
				}
			}
		}
	}
	return q
}

// readLimit reads a group's quota in cores; not ok if it has none.
func readLimit(dir string, v2 bool) (cores float64, ok bool) {
	var most, period string
	if v2 {
		b, err := os.ReadFile(filepath.Join(dir, "cpu.max"))
		f := strings.Fields(string(b))
		if err != nil || len(f) != 2 {
			return 0, false
		}
		most, period = f[0], f[1]
	} else {
		a, err1 := os.ReadFile(filepath.Join(dir, "cpu.cfs_quota_us"))
		b, err2 := os.ReadFile(filepath.Join(dir, "cpu.cfs_period_us"))
		if err1 != nil || err2 != nil {
			return 0, false
		}
		most, period = strings.TrimSpace(string(a)), strings.TrimSpace(string(b))
	}
	m, err1 := strconv.ParseFloat(most, 64) // "max", or -1: none
	p, err2 := strconv.ParseFloat(period, 64)
	if err1 != nil || err2 != nil || m <= 0 || p <= 0 {
		return 0, false
	}
	return m / p, true
}

// throttled is how long the group was kept off the processors so far; 0 without a limit.
func (q quota) throttled() time.Duration {
	if q.stat == "" {
		return 0
	}
	b, _ := os.ReadFile(q.stat)
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == q.key {
			n, _ := strconv.ParseInt(f[1], 10, 64)
			return time.Duration(n) * q.unit
		}
	}
	return 0
}

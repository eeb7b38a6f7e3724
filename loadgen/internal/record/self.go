package record

import (
	"math"
	"runtime/metrics"
	"sync"
	"syscall"
	"time"

	"imbench/reports/rundir"
)

// Names of the runtime's own figures.
const (
	gcPauses   = "/sched/pauses/total/gc:seconds"
	gcCycles   = "/gc/cycles/total:gc-cycles"
	goroutines = "/sched/goroutines:goroutines"
	heapBytes  = "/memory/classes/heap/objects:bytes"
)

// self watches the generator's own process. look belongs to the owner of Tick; use may be called by another.
type self struct {
	samples []metrics.Sample
	last    time.Time
	lastCPU time.Duration
	pauses  []uint64
	cycles  uint64

	mu    sync.Mutex
	span  span
	worst rundir.Generator
}

// span is CPU time between the first and the last look inside the window.
type span struct {
	from, to       time.Time
	cpuFrom, cpuTo time.Duration
}

func (s *span) add(now time.Time, cpu time.Duration) {
	if s.from.IsZero() {
		s.from, s.cpuFrom = now, cpu
	}
	s.to, s.cpuTo = now, cpu
}

// cores is the mean number of cores used; 0 without two looks.
func (s *span) cores() float64 {
	d := s.to.Sub(s.from)
	if d <= 0 {
		return 0
	}
	return float64(s.cpuTo-s.cpuFrom) / float64(d)
}

func (s *self) init() {
	for _, name := range []string{gcPauses, gcCycles, goroutines, heapBytes} {
		s.samples = append(s.samples, metrics.Sample{Name: name})
	}
	s.last, s.lastCPU = time.Now(), ownCPU()
	metrics.Read(s.samples)
	s.pauseMax()
	s.cycles = s.samples[1].Value.Uint64()
}

// ownCPU is the CPU time of this process, user and system.
func ownCPU() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// look reads the second since the last look, and adds what others of the same run used meanwhile.
func (s *self) look(now time.Time, inWindow bool, others rundir.GeneratorSecond) rundir.GeneratorSecond {
	cpu := ownCPU()
	metrics.Read(s.samples)
	g := rundir.GeneratorSecond{GCPauseMaxMS: s.pauseMax() * 1000, Goroutines: int64(s.samples[2].Value.Uint64()),
		HeapBytes: int64(s.samples[3].Value.Uint64())}
	if d := now.Sub(s.last); d > 0 {
		g.CPUCores = float64(cpu-s.lastCPU) / float64(d)
	}
	n := s.samples[1].Value.Uint64()
	g.GCCycles = int64(n - s.cycles)
	s.last, s.lastCPU, s.cycles = now, cpu, n
	g = together(g, others)
	if inWindow {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.span.add(now, cpu)
		s.worst.GCPauseMaxMS = max(s.worst.GCPauseMaxMS, g.GCPauseMaxMS)
		s.worst.HeapMaxBytes = max(s.worst.HeapMaxBytes, g.HeapBytes)
		s.worst.Goroutines = max(s.worst.Goroutines, g.Goroutines)
	}
	return g
}

// use is the process in the window.
func (s *self) use() rundir.Generator {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.worst
	g.CPUCores = s.span.cores()
	return g
}

// pauseMax gives the upper edge of the longest pause since the last call, in seconds; the runtime tells pauses as
// histogram buckets only.
func (s *self) pauseMax() float64 {
	h := s.samples[0].Value.Float64Histogram()
	longest := 0.0
	for i, n := range h.Counts {
		if i < len(s.pauses) && n == s.pauses[i] || n == 0 {
			continue
		}
		longest = h.Buckets[i+1]
		if math.IsInf(longest, 1) {
			longest = h.Buckets[i]
		}
	}
	s.pauses = append(s.pauses[:0], h.Counts...)
	return longest
}

package rundir

import (
	"bytes"
	"fmt"
	"io"
	"sort"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// The shape of every histogram in latency.hlog: nanoseconds from 1 µs to 10 minutes, 3 significant digits. One takes
// about 180 kB in memory.
const (
	LowestNS  = int64(time.Microsecond)
	HighestNS = int64(10 * time.Minute)
	digits    = 3
)

// NewHistogram gives an empty histogram of the shape that latency.hlog holds.
func NewHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(LowestNS, HighestNS, digits) }

// MetricOf reads the figures of a Metric from a histogram in nanoseconds. Negative, OverRange and Censored are left zero.
func MetricOf(h *hdrhistogram.Histogram) Metric {
	if h == nil || h.TotalCount() == 0 {
		return Metric{}
	}
	v := h.ValueAtPercentiles([]float64{50, 95, 99, 99.9})
	return Metric{Count: h.TotalCount(), P50: ms(v[50]), P95: ms(v[95]), P99: ms(v[99]), P999: ms(v[99.9]),
		Max: ms(h.Max()), Mean: h.Mean() / float64(time.Millisecond)}
}

func ms(ns int64) float64 { return float64(ns) / float64(time.Millisecond) }

func histogramHeader(w io.Writer, started time.Time) error {
	lw := hdrhistogram.NewHistogramLogWriter(w)
	if err := lw.OutputComment("[imbench latencies in nanoseconds, a tag a metric]"); err != nil {
		return err
	}
	if err := lw.OutputLogFormatVersion(); err != nil {
		return err
	}
	if err := lw.OutputStartTime(started.UnixMilli()); err != nil {
		return err
	}
	return lw.OutputLegend()
}

func histogramLine(w io.Writer, tag string, start, end time.Time, h *hdrhistogram.Histogram) error {
	h.SetTag(tag)
	h.SetStartTimeMs(start.UnixMilli())
	// Times without a monotonic reading may go back, and the public readers know no negative length.
	h.SetEndTimeMs(max(start.UnixMilli(), end.UnixMilli()))
	return hdrhistogram.NewHistogramLogWriter(w).OutputIntervalHistogram(h)
}

// Series is one metric over the run.
type Series struct {
	Tag       string
	Total     *hdrhistogram.Histogram // nanoseconds
	Intervals []Interval              // in order of time
}

// Interval is one line of latency.hlog in figures.
type Interval struct {
	Start, End time.Time
	Metric
}

// readHistograms reads a log whose last line may be torn (torn=true), and merges it per tag.
func readHistograms(b []byte, each func(tag string, start, end time.Time, h *hdrhistogram.Histogram)) (torn bool, err error) {
	if i := bytes.LastIndexByte(b, '\n'); i+1 < len(b) {
		b, torn = b[:i+1], true
	}
	for n := 1; len(b) > 0; n++ {
		line, rest, _ := bytes.Cut(b, []byte{'\n'})
		b = rest
		if len(line) == 0 || line[0] == '#' || line[0] == '"' {
			continue
		}
		// Line by line, so that an error names its line; a reader of its own for each takes the time stamps as absolute.
		r := hdrhistogram.NewHistogramLogReader(bytes.NewReader(append(line[:len(line):len(line)], '\n')))
		h, err := r.NextIntervalHistogram()
		if err == nil && h == nil {
			err = fmt.Errorf("no histogram")
		}
		if err != nil {
			return torn, fmt.Errorf("%s line %d: %w", LatencyFile, n, err)
		}
		each(h.Tag(), time.UnixMilli(h.StartTimeMs()).UTC(), time.UnixMilli(h.EndTimeMs()).UTC(), h)
	}
	return torn, nil
}

func collect(b []byte) (map[string]*Series, error) {
	all := map[string]*Series{}
	_, err := readHistograms(b, func(tag string, start, end time.Time, h *hdrhistogram.Histogram) {
		s := all[tag]
		if s == nil {
			s = &Series{Tag: tag, Total: NewHistogram()}
			all[tag] = s
		}
		s.Total.Merge(h)
		s.Intervals = append(s.Intervals, Interval{Start: start, End: end, Metric: MetricOf(h)})
	})
	for _, s := range all {
		sort.SliceStable(s.Intervals, func(i, j int) bool { return s.Intervals[i].Start.Before(s.Intervals[j].Start) })
	}
	return all, err
}

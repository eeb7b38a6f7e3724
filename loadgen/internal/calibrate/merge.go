package calibrate

import (
	"fmt"

	"github.com/HdrHistogram/hdrhistogram-go"

	"imbench/reports/rundir"
)

// Result is what a calibration found.
type Result struct {
	rundir.Calibration
	// Floor are the latencies of the floor's sends, HdrHistogram V2 compressed, so that those of several processes can be put
	// together; nil if there were none.
	Floor []byte
}

// Part is the result of one of several processes that calibrated at the same time.
type Part struct {
	Name string
	Result
}

// Merge puts the parts of a run with rate sends a second together: what can be counted adds up, and percentiles are those of
// all latencies. The error is for a histogram that cannot be read.
func Merge(parts []Part, rate float64) (*Result, error) {
	all := &Result{}
	floor := rundir.NewHistogram()
	for _, p := range parts {
		c, x := &all.Calibration, p.Calibration
		c.Devices, c.Fanout = c.Devices+x.Devices, x.Fanout
		c.SendsPerS, c.MixSendsPerS, c.FramesPerS = c.SendsPerS+x.SendsPerS, c.MixSendsPerS+x.MixSendsPerS, c.FramesPerS+x.FramesPerS
		c.CPUCores, c.ServerCores = c.CPUCores+x.CPUCores, c.ServerCores+x.ServerCores
		c.FloorRate, c.FloorSends = c.FloorRate+x.FloorRate, c.FloorSends+x.FloorSends
		c.TookS = max(c.TookS, x.TookS)
		c.Workers = append(c.Workers, rundir.WorkerCalibration{Name: p.Name, SendsPerS: x.SendsPerS, MixSendsPerS: x.MixSendsPerS, FramesPerS: x.FramesPerS,
			CPUCores: x.CPUCores, ServerCores: x.ServerCores, OfferedShare: x.OfferedShare, FloorP50MS: x.FloorP50MS, FloorP99MS: x.FloorP99MS})
		if len(p.Floor) == 0 {
			continue
		}
		h, err := hdrhistogram.Decode(p.Floor)
		if err != nil {
			return nil, fmt.Errorf("the latency floor of %s: %w", p.Name, err)
		}
		floor.Merge(h)
	}
	if all.MixSendsPerS > 0 {
		all.OfferedShare = rate / all.MixSendsPerS
	}
	return all, all.setFloor(floor)
}

// setFloor fills in the percentiles, if there is anything.
func (r *Result) setFloor(h *hdrhistogram.Histogram) (err error) {
	if r.FloorSends = h.TotalCount(); r.FloorSends == 0 {
		return nil
	}
	m := rundir.MetricOf(h)
	r.FloorP50MS, r.FloorP99MS = m.P50, m.P99
	r.Floor, err = h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	return err
}

package figure

import (
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"

	"imbench/reports/rundir"
)

// Spectrum shows every percentile of each latency: at x = 1/(1−q), so that each nine takes the same room. Source:
// latency.hlog; a line ends at q = 1 − 1/n, the largest of n samples, because beyond it there is nothing to see.
func Spectrum(series map[string]*rundir.Series) *Drawing {
	p := newPanel("", "percentile, spaced as 1/(1 − q)", "latency, ms")
	d := &Drawing{Name: "latency-spectrum", height: 300, panels: []*plot.Plot{p},
		Alt: "Percentile spectrum: latency in milliseconds over 1/(1−q), a line a metric."}
	p.Add(gridlines{})
	var x, y span
	for i, tag := range Shown() {
		s := series[tag]
		if s == nil || s.Total.TotalCount() == 0 {
			continue
		}
		l := line{spectrum(s), lineStyle(i), 0}
		for _, pt := range l.pts {
			x.add(pt.X)
			y.add(pt.Y)
		}
		p.Add(l)
		d.legend = append(d.legend, entry{tag, l})
	}
	if !y.some {
		empty(p)
		return d
	}
	p.X.Min, p.X.Max, p.X.Scale, p.X.Tick.Marker = 1, max(10, x.hi), plot.LogScale{}, percentTicks{}
	setLog(&p.Y, y.lo, y.hi)
	return d
}

func spectrum(s *rundir.Series) (pts plotter.XYs) {
	n := float64(s.Total.TotalCount())
	for e := 0.0; ; e += 1.0 / perDecade {
		x := min(math.Pow(10, e), n)
		ms := float64(s.Total.ValueAtPercentile(100*(1-1/x))) / 1e6
		pts = append(pts, plotter.XY{X: x, Y: max(ms, float64(rundir.LowestNS)/1e6)})
		if x >= n {
			return pts
		}
	}
}

// percentTicks name 1/(1−q) by its percentile.
type percentTicks struct{}

// Ticks implements plot.Ticker.
func (percentTicks) Ticks(_, hi float64) []plot.Tick {
	list := []plot.Tick{{Value: 1, Label: "min"}, {Value: 2, Label: "50 %"}, {Value: 4, Label: "75 %"}}
	for x, name := 10.0, "90 %"; x <= hi*(1+1e-9); x *= 10 {
		list = append(list, plot.Tick{Value: x, Label: name})
		switch name {
		case "90 %":
			name = "99 %"
		case "99 %":
			name = "99.9 %"
		default:
			name = name[:len(name)-2] + "9 %"
		}
	}
	return list
}

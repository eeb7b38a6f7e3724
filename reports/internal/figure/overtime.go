package figure

import (
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"imbench/reports/rundir"
)

// OverTime shows median and 99th percentile of each latency, second by second. Source: the intervals of latency.hlog,
// which hold the operations that ended in them and whose message was intended in the measured window; so there is
// nothing in the warm-up, and what comes after the window are its late ones.
func OverTime(series map[string]*rundir.Series, tl Timeline) *Drawing {
	d := &Drawing{Name: "latency-over-time", height: 620, Alt: "p50 and p99 of each latency over time."}
	x := span{}
	x.add(-2) // a bit of the warm-up, so that one sees where it ends
	x.add(max(0, tl.Window.To-tl.Window.From) + 2)
	for i, tag := range Shown() {
		p := newPanel(tag, "", "ms")
		d.panels = append(d.panels, p)
		var y span
		var p50, p99 plotter.XYs
		if s := series[tag]; s != nil {
			for _, iv := range s.Intervals {
				at := tl.at(iv.End)
				if iv.Count == 0 || !usable(at) {
					continue
				}
				for _, q := range []struct {
					pts *plotter.XYs
					ms  float64
				}{{&p50, iv.P50}, {&p99, iv.P99}} {
					if usableLog(q.ms) {
						*q.pts = append(*q.pts, plotter.XY{X: at, Y: q.ms})
						y.add(q.ms)
					}
				}
				x.add(at)
			}
		}
		if !y.some {
			empty(p)
			continue
		}
		setLog(&p.Y, y.lo, y.roomy())
		low, high := lineStyle(i), lineStyle(i)
		low.Dashes = []vg.Length{4, 2}
		p.Add(phases{tl}, gridlines{}, phaseNames{tl}, line{p99, high, secondsApart}, line{p50, low, secondsApart})
	}
	solid, dashed := lineStyle(6), lineStyle(6)
	dashed.Dashes = []vg.Length{4, 2}
	d.legend = []entry{{"p99", line{style: solid}}, {"p50", line{style: dashed}}, {"not measured", swatch{band}}}
	d.legend = append(d.legend, tl.faultLegend()...)
	tl.share(d.panels, x)
	return d
}

// secondsApart is the gap from which two readings a second are no longer neighbours.
const secondsApart = 3.5

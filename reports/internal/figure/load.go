package figure

import (
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg/draw"

	"imbench/reports/rundir"
)

// Load shows what was asked and what was done in each second, warm-up included: sends offered and done, frames to devices
// by type, and how late the generator started its sends (its 99th percentile; limit, in ms, is where a run becomes
// invalid, 0 = none). Source: counters.ndjson, divided by the real length of each interval.
func Load(lines []rundir.CounterLine, limit float64, tl Timeline) *Drawing {
	d := &Drawing{Name: "load-over-time", height: 470, Alt: "Sends offered and done, frames to devices by type, and the generator's lateness over time."}
	sends := newPanel("sends", "", "1/s")
	frames := newPanel("frames to devices, by type", "", "1/s")
	late := newPanel("lateness of the generator, p99 of each second", "", "ms")
	d.panels = []*plot.Plot{sends, frames, late}

	group := func(p *plot.Plot, ok func(float64) bool, named []figures) (y span) {
		p.Add(phases{tl}, gridlines{}, phaseNames{tl})
		for _, f := range named {
			l := line{f.points(lines, tl, ok), f.style, secondsApart}
			if len(l.pts) == 0 {
				continue
			}
			for _, pt := range l.pts {
				y.add(pt.Y)
			}
			p.Add(l)
			if len(named) > 1 {
				d.legend = append(d.legend, entry{f.name, l})
			}
		}
		return y
	}
	var x span
	for _, l := range lines {
		if at := tl.at(l.At); usable(at) {
			x.add(at)
		}
	}
	if y := group(sends, usable, []figures{
		{"offered", draw.LineStyle{Color: sky, Width: 3.5}, func(l rundir.CounterLine) float64 { return float64(l.Offered) / l.Seconds }},
		{"done", draw.LineStyle{Color: black, Width: 1}, func(l rundir.CounterLine) float64 { return float64(l.Done) / l.Seconds }},
	}); y.some {
		setLinear(&sends.Y, 0, y.hi*1.2)
	} else {
		empty(sends)
	}
	var types []figures
	for i, name := range []string{"event", "acked", "sent", "synced", "hint"} {
		types = append(types, figures{name, lineStyle(i), func(l rundir.CounterLine) float64 { return float64(l.Frames.Down[name]) / l.Seconds }})
	}
	if y := group(frames, usableLog, types); y.some {
		setLog(&frames.Y, y.lo, y.roomy())
	} else {
		empty(frames)
	}
	y := group(late, usableLog, []figures{{"lateness", lineStyle(7), func(l rundir.CounterLine) float64 { return l.LateP99MS }}})
	if usableLog(limit) && y.some {
		y.add(limit)
		late.Add(level{limit, "limit " + Number(limit) + " ms"})
	}
	if y.some {
		setLog(&late.Y, y.lo, y.roomy())
	} else {
		empty(late)
	}
	if x.some {
		tl.share(d.panels, x)
		d.legend = append(d.legend, tl.faultLegend()...)
	}
	return d
}

// figures is a named reading of a line.
type figures struct {
	name  string
	style draw.LineStyle
	value func(rundir.CounterLine) float64
}

// points are the readings that can be drawn.
func (f figures) points(lines []rundir.CounterLine, tl Timeline, ok func(float64) bool) (pts plotter.XYs) {
	for _, l := range lines {
		at, v := tl.at(l.At), f.value(l)
		if l.Seconds > 0 && usable(at) && ok(v) {
			pts = append(pts, plotter.XY{X: at, Y: v})
		}
	}
	return pts
}

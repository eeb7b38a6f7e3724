package figure

import (
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"imbench/reports/rundir"
)

// Timeline is what figures over time need to know of a run. Their axis counts from the beginning of the measured window.
type Timeline struct {
	Started time.Time
	Phases  []rundir.Phase
	Window  rundir.Window // in seconds since Started
	Faults  []Fault
}

const timeLabel = "seconds since the measured window began"

// at places a time of day on the axis.
func (t Timeline) at(when time.Time) float64 { return when.Sub(t.Started).Seconds() - t.Window.From }

// share marks the phases in all panels and gives them one axis of time, which the last one names.
func (t Timeline) share(panels []*plot.Plot, x span) {
	for i, p := range panels {
		setLinear(&p.X, x.lo, x.hi)
		if i == len(panels)-1 {
			p.X.Label.Text = timeLabel
		}
	}
}

// phases shades what is not measured, and faults; phaseNames names each phase where there is room, and numbers the faults.
type (
	phases     struct{ Timeline }
	phaseNames struct{ Timeline }
)

// Plot implements plot.Plotter.
func (ph phases) Plot(c draw.Canvas, p *plot.Plot) {
	ph.each(c, p, func(name string, x0, x1 vg.Length) {
		if name != measure {
			fill(c, band, x0, c.Min.Y, x1, c.Max.Y)
		}
	})
	ph.drawFaults(c, p)
}

// Plot implements plot.Plotter.
func (ph phaseNames) Plot(c draw.Canvas, p *plot.Plot) {
	style := textStyle(7.5, grey, text.XCenter, text.YTop)
	ph.each(c, p, func(name string, x0, x1 vg.Length) {
		behind := band
		if name == measure {
			behind = white
		}
		x, w := (x0+x1)/2, style.Width(label(name))
		if w < x1-x0-2 {
			fill(c, behind, x-w/2, c.Max.Y-9, x+w/2, c.Max.Y-1) // no grid line through the name
			c.FillText(style, vg.Point{X: x, Y: c.Max.Y - 1}, label(name))
		}
	})
	ph.numberFaults(c, p)
}

// measure is the phase that the run's figures are about.
const measure = "measure"

// each calls f for what the axis shows of each phase.
func (t Timeline) each(c draw.Canvas, p *plot.Plot, f func(name string, x0, x1 vg.Length)) {
	for _, phase := range t.Phases {
		from, to := phase.From-t.Window.From, phase.To-t.Window.From
		if phase.To == 0 {
			to = p.X.Max
		}
		from, to = max(from, p.X.Min), min(to, p.X.Max)
		if usable(from) && usable(to) && from < to {
			f(phase.Name, c.X(p.X.Norm(from)), c.X(p.X.Norm(to)))
		}
	}
}

// line is a polyline through points that the panel's axes can show. It stops where seconds are missing (gap, in x).
type line struct {
	pts   plotter.XYs
	style draw.LineStyle
	gap   float64
}

// Plot implements plot.Plotter. A point between two gaps is drawn as a dot.
func (l line) Plot(c draw.Canvas, p *plot.Plot) {
	pts := thin(l.pts)
	for len(pts) > 0 {
		n := 1
		for n < len(pts) && (l.gap == 0 || pts[n].X-pts[n-1].X <= l.gap) {
			n++
		}
		part := make([]vg.Point, n)
		for i := range part {
			part[i] = vg.Point{X: c.X(p.X.Norm(pts[i].X)), Y: c.Y(p.Y.Norm(pts[i].Y))}
		}
		if n == 1 {
			c.DrawGlyph(draw.GlyphStyle{Color: l.style.Color, Radius: 1.5, Shape: draw.CircleGlyph{}}, part[0])
		} else {
			c.StrokeLines(l.style, c.ClipLinesXY(part)...)
		}
		pts = pts[n:]
	}
}

// Thumbnail implements plot.Thumbnailer.
func (l line) Thumbnail(c *draw.Canvas) {
	y := (c.Min.Y + c.Max.Y) / 2
	c.StrokeLine2(l.style, c.Min.X, y, c.Max.X, y)
}

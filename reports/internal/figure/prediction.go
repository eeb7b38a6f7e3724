package figure

import (
	"fmt"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"imbench/reports/rundir"
)

// widest error, in per cent, that the axis makes room for; larger ones are written at its end.
const widest = 30

// PredictionErrors shows, for each predicted figure, how far the measured one is off: 100 · (measured ÷ predicted − 1),
// with the model's 95 % interval as 100 · ([low, high] ÷ predicted − 1), and 100 · (measured ÷ planned − 1). Source:
// predictions of summary.json.
func PredictionErrors(list []rundir.Prediction) *Drawing {
	p := newPanel("", "signed error, %", "")
	d := &Drawing{Name: "prediction-errors", height: 70, panels: []*plot.Plot{p},
		Alt: "Signed error of each predicted figure, with the model's 95 % interval."}
	var rows []rundir.Prediction
	for _, r := range list {
		if !r.NotPredicted && r.Error != nil && r.Predicted != 0 && !math.IsNaN(*r.Error) {
			rows = append(rows, r)
		}
	}
	if len(rows) == 0 {
		d.height = 150
		empty(p)
		return d
	}
	d.height += vg.Length(17 * len(rows))
	limit := 2.0
	for _, r := range rows {
		for _, e := range []*float64{r.Error, r.PlanError, part(r.Low, r.Predicted), part(r.High, r.Predicted)} {
			if e != nil && usable(*e) {
				limit = max(limit, min(widest, 115*math.Abs(*e)))
			}
		}
	}
	setLinear(&p.X, -limit, limit)
	p.Y.Min, p.Y.Max = -0.7, float64(len(rows))-0.3
	var names plot.ConstantTicks
	interval := lineStyle(5)
	interval.Width = 7
	p.Add(gridlines{vertical: true}, zero{})
	for i, r := range rows {
		y := float64(len(rows) - 1 - i)
		names = append(names, plot.Tick{Value: y, Label: label(r.Name)})
		if lo, hi := part(r.Low, r.Predicted), part(r.High, r.Predicted); lo != nil && hi != nil {
			p.Add(reach{100 * *lo, 100 * *hi, y, interval})
		}
		if r.PlanError != nil {
			p.Add(errorDot(100**r.PlanError, y, limit, planned, false))
		}
		p.Add(errorDot(100**r.Error, y, limit, predicted, true))
	}
	p.Y.Tick.Marker = names
	d.legend = []entry{{"measured against predicted", dot{style: predicted}}, {"measured against the plan", dot{style: planned}},
		{"95 % interval of the prediction", reach{style: interval}}}
	return d
}

var (
	predicted = draw.GlyphStyle{Color: vermillion, Radius: 3, Shape: draw.CircleGlyph{}}
	planned   = draw.GlyphStyle{Color: black, Radius: 4.5, Shape: draw.PlusGlyph{}}
)

func part(v, of float64) *float64 {
	if of == 0 || !usable(v/of) {
		return nil
	}
	e := v/of - 1
	return &e
}

// errorDot stays within the axis; one that does not fit says its value, if said.
func errorDot(v, y, limit float64, style draw.GlyphStyle, said bool) dot {
	d := dot{x: v, y: y, style: style}
	switch {
	case v > limit:
		d.x, d.side = limit, left
	case v < -limit:
		d.x, d.side = -limit, right
	}
	if d.side != noText && said {
		d.text = fmt.Sprintf("%s %% (off the axis)", signed(v))
	}
	return d
}

func signed(v float64) string {
	if v > 0 {
		return "+" + Number(v)
	}
	return Number(v)
}

// zero is the line of no error.
type zero struct{}

// Plot implements plot.Plotter.
func (zero) Plot(c draw.Canvas, p *plot.Plot) {
	x := c.X(p.X.Norm(0))
	c.StrokeLine2(draw.LineStyle{Color: black, Width: 0.8}, x, c.Min.Y, x, c.Max.Y)
}

// reach is a thick horizontal line from one x to another, cut off at the axis' ends.
type reach struct {
	from, to, y float64
	style       draw.LineStyle
}

// Plot implements plot.Plotter.
func (r reach) Plot(c draw.Canvas, p *plot.Plot) {
	from, to := max(r.from, p.X.Min), min(r.to, p.X.Max)
	if from < to {
		y := c.Y(p.Y.Norm(r.y))
		c.StrokeLine2(r.style, c.X(p.X.Norm(from)), y, c.X(p.X.Norm(to)), y)
	}
}

// Thumbnail implements plot.Thumbnailer.
func (r reach) Thumbnail(c *draw.Canvas) {
	y := c.Center().Y
	c.StrokeLine2(r.style, c.Min.X, y, c.Max.X, y)
}

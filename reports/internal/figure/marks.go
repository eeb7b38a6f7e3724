package figure

import (
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// gridlines are thin horizontal lines at the labelled ticks.
type gridlines struct{ vertical bool }

// Plot implements plot.Plotter.
func (g gridlines) Plot(c draw.Canvas, p *plot.Plot) {
	style := draw.LineStyle{Color: pale, Width: 0.5}
	axis := p.Y
	if g.vertical {
		axis = p.X
	}
	for _, t := range axis.Tick.Marker.Ticks(axis.Min, axis.Max) {
		switch {
		case t.IsMinor():
		case g.vertical:
			x := c.X(p.X.Norm(t.Value))
			c.StrokeLine2(style, x, c.Min.Y, x, c.Max.Y)
		default:
			y := c.Y(p.Y.Norm(t.Value))
			c.StrokeLine2(style, c.Min.X, y, c.Max.X, y)
		}
	}
}

// level is a dashed horizontal line with its name at its right end.
type level struct {
	y    float64
	name string
}

// Plot implements plot.Plotter.
func (l level) Plot(c draw.Canvas, p *plot.Plot) {
	y := c.Y(p.Y.Norm(l.y))
	c.StrokeLine2(draw.LineStyle{Color: black, Width: 0.8, Dashes: []vg.Length{5, 3}}, c.Min.X, y, c.Max.X, y)
	dy, align := vg.Length(2), text.YBottom
	if y > c.Max.Y-12 {
		dy, align = -2, text.YTop
	}
	c.FillText(textStyle(8, black, text.XRight, align), vg.Point{X: c.Max.X - 2, Y: y + dy}, l.name)
}

// swatch is a legend's sample of a filled area.
type swatch struct{ color color.Color }

// Thumbnail implements plot.Thumbnailer.
func (s swatch) Thumbnail(c *draw.Canvas) {
	fill(*c, s.color, c.Min.X, c.Min.Y, c.Max.X, c.Max.Y)
}

// dot is a point of data with a text beside it; it is its own legend sample.
type dot struct {
	x, y  float64
	style draw.GlyphStyle
	text  string
	side  side
}

// side is where a dot's text stands.
type side int

const (
	noText side = iota
	left
	right
	aboveLeft
)

// Plot implements plot.Plotter.
func (d dot) Plot(c draw.Canvas, p *plot.Plot) {
	at := vg.Point{X: c.X(p.X.Norm(d.x)), Y: c.Y(p.Y.Norm(d.y))}
	off := d.style.Radius + 3
	switch d.side {
	case right:
		over(c, d.text, text.XLeft, at.X+off, at.Y)
	case left:
		over(c, d.text, text.XRight, at.X-off, at.Y)
	case aboveLeft:
		over(c, d.text, text.XRight, at.X-2, at.Y+off+4)
	}
	c.DrawGlyphNoClip(d.style, at)
}

// over writes a text, centred on y, over whatever is there.
func over(c draw.Canvas, s string, align text.XAlignment, x, y vg.Length) {
	style := textStyle(8, black, align, text.YCenter)
	w := style.Width(s)
	from := x + vg.Length(align)*w // XLeft = 0, XRight = -1
	fill(c, white, from, y-4.5, from+w, y+4.5)
	c.FillText(style, vg.Point{X: x, Y: y + 1}, s)
}

// Thumbnail implements plot.Thumbnailer.
func (d dot) Thumbnail(c *draw.Canvas) { c.DrawGlyphNoClip(d.style, c.Center()) }

// beside writes a text right of a point in the data's coordinates.
type beside struct {
	x, y float64
	text string
}

// Plot implements plot.Plotter.
func (b beside) Plot(c draw.Canvas, p *plot.Plot) {
	over(c, b.text, text.XLeft, c.X(p.X.Norm(b.x))+4, c.Y(p.Y.Norm(b.y)))
}

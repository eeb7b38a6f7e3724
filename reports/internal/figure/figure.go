// Package figure draws the report's figures with gonum/plot, one file a figure. A function takes numbers and gives a
// Drawing; files and HTML are the business of others. Inputs without data make a drawing that says "no data", and values
// that no axis can show (not finite, or not above 0 on a logarithmic one) are left out, so that drawing does not fail for
// what a run directory may hold.
//
// The package holds no state. A Drawing belongs to one goroutine.
package figure

import (
	"bytes"
	"fmt"
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
)

// DPI is the resolution of PNG; gonum's own 96 looks coarse on today's screens and on paper.
const DPI = 200

// width of every figure, in points: 816 CSS pixels, about a page of paper between its margins.
const width = 612

// Drawing is one figure: panels one above the other, with equal data areas and a legend over them.
type Drawing struct {
	Name   string // stem of a file name
	Alt    string // what a reader who cannot see it should know
	height vg.Length
	legend []entry
	panels []*plot.Plot
}

// Names lists the names that drawings have.
func Names() []string {
	return []string{"latency-histograms", "latency-spectrum", "latency-over-time", "load-over-time", "prediction-errors", "processes-over-time",
		"utilization", "push-hint-bytes"}
}

// Size in CSS pixels, of which 96 make an inch.
func (d *Drawing) Size() (w, h int) { return width * 96 / 72, int(d.height * 96 / 72) }

// PNG renders at DPI. A panic of the plotting library becomes an error: no input may take a report down.
func (d *Drawing) PNG() (b []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			b, err = nil, fmt.Errorf("figure %s: %v", d.Name, r)
		}
	}()
	c := vgimg.NewWith(vgimg.UseWH(width, d.height), vgimg.UseDPI(DPI))
	d.draw(draw.New(c))
	var out bytes.Buffer
	if _, err := (vgimg.PngCanvas{Canvas: c}).WriteTo(&out); err != nil {
		return nil, fmt.Errorf("figure %s: %w", d.Name, err)
	}
	return out.Bytes(), nil
}

func (d *Drawing) draw(c draw.Canvas) {
	c.SetColor(white)
	c.Fill(c.Path())
	c = draw.Crop(c, 4, -10, 4, -4)
	c = draw.Crop(c, 0, 0, 0, -drawLegend(c, d.legend))
	rows := make([][]*plot.Plot, len(d.panels))
	for i, p := range d.panels {
		rows[i] = []*plot.Plot{p}
	}
	tiles := draw.Tiles{Rows: len(rows), Cols: 1, PadY: 8}
	for i, row := range plot.Align(rows, tiles, c) {
		d.panels[i].Draw(row[0])
	}
}

// Okabe and Ito's palette, which people with any kind of colour vision can tell apart.
var (
	blue       = color.RGBA{0x00, 0x72, 0xB2, 0xFF}
	orange     = color.RGBA{0xE6, 0x9F, 0x00, 0xFF}
	green      = color.RGBA{0x00, 0x9E, 0x73, 0xFF}
	vermillion = color.RGBA{0xD5, 0x5E, 0x00, 0xFF}
	purple     = color.RGBA{0xCC, 0x79, 0xA7, 0xFF}
	sky        = color.RGBA{0x56, 0xB4, 0xE9, 0xFF}
	black      = color.RGBA{0x22, 0x22, 0x22, 0xFF}
	grey       = color.RGBA{0x70, 0x70, 0x70, 0xFF}
	pale       = color.RGBA{0xE2, 0xE2, 0xE2, 0xFF}
	white      = color.RGBA{0xFF, 0xFF, 0xFF, 0xFF}
	band       = color.RGBA{0xF1, 0xF1, 0xEC, 0xFF}
)

var palette = []color.RGBA{blue, orange, green, vermillion, purple, sky, black, grey}

// dashes tell lines apart when the palette begins again, and on paper without colours.
var dashes = [][]vg.Length{nil, {6, 2}, {2, 2}}

// lineStyle is the i-th of 24 distinct styles.
func lineStyle(i int) draw.LineStyle {
	return draw.LineStyle{Color: palette[i%len(palette)], Width: 1.4, Dashes: dashes[i/len(palette)%len(dashes)]}
}

// fill paints a rectangle.
func fill(c draw.Canvas, clr color.Color, x0, y0, x1, y1 vg.Length) {
	c.FillPolygon(clr, []vg.Point{{X: x0, Y: y0}, {X: x1, Y: y0}, {X: x1, Y: y1}, {X: x0, Y: y1}})
}

func sans(size vg.Length) font.Font {
	return font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}
}

func textStyle(size vg.Length, c color.Color, x text.XAlignment, y text.YAlignment) text.Style {
	return text.Style{Color: c, Font: sans(size), XAlign: x, YAlign: y, Handler: plot.DefaultTextHandler}
}

// newPanel is an empty plot in the house style. x may be empty: the panel below says it.
func newPanel(title, x, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text = title
	p.Title.TextStyle.Font = sans(9.5)
	p.Title.Padding = 3
	for _, a := range []struct {
		axis *plot.Axis
		text string
	}{{&p.X, x}, {&p.Y, y}} {
		a.axis.Label.Text = a.text
		a.axis.Label.TextStyle.Font = sans(9)
		a.axis.Label.Padding = 2
		a.axis.Tick.Label.Font = sans(8.5)
		a.axis.Tick.Length = 4
		a.axis.Padding = 0
		a.axis.Tick.Marker = linearTicks{}
	}
	return p
}

// empty writes "no data" into a panel whose axes have nothing to show.
func empty(p *plot.Plot) {
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, 1, 0, 1
	p.X.Scale, p.Y.Scale = plot.LinearScale{}, plot.LinearScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.ConstantTicks{}, plot.ConstantTicks{}
	p.Add(caption{0.5, 0.5, "no data", textStyle(10, grey, text.XCenter, text.YCenter)})
}

// caption is a text at a place given as fractions of the data area.
type caption struct {
	x, y  float64
	text  string
	style text.Style
}

// Plot implements plot.Plotter.
func (t caption) Plot(c draw.Canvas, _ *plot.Plot) {
	c.FillText(t.style, vg.Point{X: c.X(t.x), Y: c.Y(t.y)}, t.text)
}

// entry is one line of a legend.
type entry struct {
	name  string
	thumb plot.Thumbnailer
}

// drawLegend writes the entries in rows at the top of c, and says how much height they took. It stands outside of the
// panels, where it covers no data.
func drawLegend(c draw.Canvas, list []entry) vg.Length {
	if len(list) == 0 {
		return 0
	}
	const thumb, gap, row = 18, 14, 14
	style := textStyle(9, black, text.XLeft, text.YCenter)
	x, y := c.Min.X+gap, c.Max.Y-row/2
	for _, e := range list {
		w := thumb + 4 + style.Width(e.name)
		if x > c.Min.X+gap && x+w > c.Max.X {
			x, y = c.Min.X+gap, y-row
		}
		if e.thumb != nil {
			box := draw.Canvas{Canvas: c.Canvas, Rectangle: vg.Rectangle{Min: vg.Point{X: x, Y: y - 4}, Max: vg.Point{X: x + thumb, Y: y + 4}}}
			e.thumb.Thumbnail(&box)
		}
		c.FillText(style, vg.Point{X: x + thumb + 4, Y: y + 1}, e.name)
		x += w + gap
	}
	return c.Max.Y - y + row/2 + 2
}

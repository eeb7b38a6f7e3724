package main

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"math"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	vgdraw "gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"

	"imbench/server/dashboard"
)

// What Grafana's grid becomes, at 72 points an inch.
const (
	column   = 15 * vg.Millimeter / 2 // of 24
	rowUnit  = 5.2 * vg.Millimeter
	maxNames = 7 // in a legend
	dpi      = 120
)

// drawPicture puts each panel's lines where the dashboard has it.
func drawPicture(panels []dashboard.Panel, lines [][]line, from, to time.Time) ([]byte, error) {
	bottom := 0
	for _, p := range panels {
		bottom = max(bottom, p.GridPos.Y+p.GridPos.H)
	}
	width, height := 24*column, vg.Length(bottom)*rowUnit
	canvas := vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(dpi), vgimg.UseBackgroundColor(color.White))
	dc := vgdraw.New(canvas)
	for i, p := range panels {
		g := p.GridPos
		x, y := vg.Length(g.X)*column, height-vg.Length(g.Y+g.H)*rowUnit
		box := vgdraw.Canvas{Canvas: dc.Canvas, Rectangle: vg.Rectangle{Min: vg.Point{X: x + 4, Y: y + 3},
			Max: vg.Point{X: x + vg.Length(g.W)*column - 4, Y: y + vg.Length(g.H)*rowUnit - 3}}}
		if p.Type == "row" {
			box.FillText(text.Style{Color: color.Black, Font: font.From(plot.DefaultFont, 11), Handler: plot.DefaultTextHandler}, box.Min, p.Title)
			continue
		}
		if err := drawPanel(box, p, lines[i], to.Sub(from)); err != nil {
			return nil, fmt.Errorf("panel %s: %w", p.Title, err)
		}
	}
	var out bytes.Buffer
	img := image.NewPaletted(canvas.Image().Bounds(), palette())
	draw.Draw(img, img.Bounds(), canvas.Image(), image.Point{}, draw.Src)
	err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, img)
	return out.Bytes(), err
}

func drawPanel(box vgdraw.Canvas, p dashboard.Panel, lines []line, length time.Duration) error {
	pl := plot.New()
	pl.Title.Text = p.Title
	pl.Title.TextStyle.Font.Size = 8
	for _, a := range []*plot.Axis{&pl.X, &pl.Y} {
		a.Tick.Label.Font.Size = 6
		a.LineStyle.Width, a.Tick.LineStyle.Width = 0.3, 0.3
	}
	pl.X.Min, pl.X.Max = 0, length.Seconds()
	pl.X.Tick.Marker = ticks(func(v float64) string { return (time.Duration(v) * time.Second).String() })
	pl.Legend.TextStyle.Font.Size, pl.Legend.ThumbnailWidth, pl.Legend.Top, pl.Legend.Left = 5.5, 8, true, true
	top := 0.0
	for i, l := range lines {
		if i == 0 {
			pl.Y.Min = min(0, l.points[0].Y)
		}
		drawn, err := plotter.NewLine(l.points)
		if err != nil {
			return err
		}
		drawn.Width, drawn.Color = 0.8, plotutil.SoftColors[i%len(plotutil.SoftColors)]
		pl.Add(drawn)
		if i < maxNames {
			pl.Legend.Add(l.name, drawn)
		}
		for _, xy := range l.points {
			top = max(top, xy.Y)
		}
	}
	switch {
	case len(lines) == 0:
		pl.Title.Text += ": no data"
		pl.Y.Min, pl.Y.Max = 0, 1
	case top <= 0:
		pl.Y.Max = 1
	default:
		pl.Y.Max = top * 1.3 // room for the legend
	}
	pl.Y.Tick.Marker = ticks(func(v float64) string { return shown(v, p.FieldConfig.Defaults.Unit) })
	pl.Draw(box)
	return nil
}

// ticks are gonum's, with other labels.
type ticks func(float64) string

// Ticks implements plot.Ticker.
func (f ticks) Ticks(lo, hi float64) []plot.Tick {
	list := plot.DefaultTicks{}.Ticks(lo, hi)
	for i := range list {
		if list[i].Label != "" {
			list[i].Label = f(list[i].Value)
		}
	}
	return list
}

// shown is a value with its unit, as Grafana's unit of that name does it.
func shown(v float64, unit string) string {
	switch unit {
	case "percentunit":
		return fmt.Sprintf("%.3g %%", v*100)
	case "s":
		if math.Abs(v) < 1 && v != 0 {
			return fmt.Sprintf("%.3g ms", v*1000)
		}
		return fmt.Sprintf("%.3g s", v)
	}
	suffix := map[string]string{"ops": "/s", "Bps": "B/s", "bytes": "B"}[unit]
	for _, scale := range []struct {
		from float64
		name string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if math.Abs(v) >= scale.from {
			return fmt.Sprintf("%.3g %s%s", v/scale.from, scale.name, suffix)
		}
	}
	return fmt.Sprintf("%.3g %s", v, suffix)
}

// palette is white, greys, and tints of the lines' colours: enough for smooth edges, and a small file.
func palette() color.Palette {
	p := color.Palette{}
	for _, c := range append([]color.Color{color.Black}, plotutil.SoftColors...) {
		r, g, b, _ := c.RGBA()
		for i := range 16 {
			mix := func(v uint32) uint8 { return uint8((v>>8)*uint32(15-i)/15 + 255*uint32(i)/15) }
			p = append(p, color.RGBA{mix(r), mix(g), mix(b), 255})
		}
	}
	return p
}

package figure

import (
	"fmt"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"imbench/model/capacity"
)

// SyncsPerEvent are the s for which PushHint draws a line: as in the documents' experiment with all reading (145 syncs
// for 600 events), fully merged (a sync for 20 events), and a sync for each event.
func SyncsPerEvent() []float64 { return []float64{145.0 / 600, 1.0 / 20, 1} }

// RatioPoint is one observed ratio of hint to push bytes.
type RatioPoint struct {
	Name     string
	Reading  float64 // ρ
	Ratio    float64
	Measured bool // by a run, not by the documents
}

// PushHint shows the bytes of hinted delivery relative to push over the share of devices that read: model/capacity's
// ratio(ρ) = [hint + ρ·(b + s·h)] ÷ push for three s, with the break-even ρ* = (push − hint) ÷ (b + s·h) where a line
// crosses 1, and what was observed.
func PushHint(bytes capacity.PushHintBytes, points []RatioPoint) *Drawing {
	p := newPanel("", "reading share ρ of the hinted devices", "bytes, hint ÷ push")
	d := &Drawing{Name: "push-hint-bytes", height: 320, panels: []*plot.Plot{p},
		Alt: "Bytes of hinted delivery relative to push over the reading share."}
	setLinear(&p.X, 0, 1)
	top := 1.5
	for _, pt := range points {
		if usable(pt.Ratio) {
			top = max(top, 1.1*pt.Ratio)
		}
	}
	setLinear(&p.Y, 0, top)
	p.Add(gridlines{}, level{1, ""})
	for i, s := range SyncsPerEvent() {
		l := line{plotter.XYs{{X: 0, Y: bytes.Ratio(0, s)}, {X: 1, Y: bytes.Ratio(1, s)}}, lineStyle(i), 0}
		if !usable(l.pts[0].Y) || !usable(l.pts[1].Y) {
			continue
		}
		star := bytes.BreakEven(s)
		p.Add(l)
		name := fmt.Sprintf("s = %s, ρ* = %s", Number(s), Number(star))
		if star <= 1 {
			p.Add(dot{x: star, y: 1, style: draw.GlyphStyle{Color: l.style.Color, Radius: 4, Shape: draw.RingGlyph{}}})
		}
		d.legend = append(d.legend, entry{name, l})
		d.Alt += " " + name + "."
	}
	styles := map[bool]draw.GlyphStyle{
		false: {Color: black, Radius: 3.5, Shape: draw.BoxGlyph{}},
		true:  {Color: vermillion, Radius: 4, Shape: draw.PyramidGlyph{}},
	}
	names := map[bool]string{false: "the documents' measurements (08)", true: "this run"}
	seen := map[bool]bool{}
	for _, pt := range points {
		if !usable(pt.Ratio) || pt.Reading < 0 || pt.Reading > 1 {
			continue
		}
		side := aboveLeft
		switch {
		case pt.Measured && pt.Reading > 0.85:
			side = left
		case pt.Measured:
			side = right
		}
		mark := dot{pt.Reading, pt.Ratio, styles[pt.Measured], label(pt.Name) + " " + Number(pt.Ratio), side}
		p.Add(mark)
		if !seen[pt.Measured] {
			seen[pt.Measured] = true
			d.legend = append(d.legend, entry{names[pt.Measured], mark})
		}
	}
	even := dot{style: draw.GlyphStyle{Color: grey, Radius: 4, Shape: draw.RingGlyph{}}}
	d.legend = append(d.legend, entry{"break-even ρ*", even}, entry{"as many bytes as push", line{style: draw.LineStyle{Color: black, Width: 0.8, Dashes: []vg.Length{5, 3}}}})
	return d
}

package figure

import (
	"fmt"
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Fault is something that was done on purpose, in seconds since the measured window began.
type Fault struct {
	Name     string
	From, To float64 // done, with what it ended running again; To = From: in a moment, or it did not end
	Healed   float64 // 0 = not in this run
}

var (
	harmed  = color.RGBA{0xF6, 0xD5, 0xC0, 0xFF} // while it lasts
	healing = color.RGBA{0xFB, 0xEC, 0xE2, 0xFF} // until it has healed
)

// mostFaults are named in a legend; further ones are marked and in the table.
const mostFaults = 12

// eachFault calls f with what the axis shows of each fault: its beginning, end, and healing.
func (t Timeline) eachFault(c draw.Canvas, p *plot.Plot, f func(i int, from, to, healed vg.Length)) {
	for i, x := range t.Faults {
		if !usable(x.From) || x.From < p.X.Min || x.From > p.X.Max {
			continue
		}
		at := func(v float64) vg.Length {
			if !usable(v) {
				v = x.From
			}
			return c.X(p.X.Norm(min(max(v, x.From), p.X.Max)))
		}
		f(i, at(x.From), at(x.To), at(max(x.To, x.Healed)))
	}
}

// drawFaults shades the time of each fault and marks its beginning.
func (t Timeline) drawFaults(c draw.Canvas, p *plot.Plot) {
	t.eachFault(c, p, func(_ int, from, to, healed vg.Length) { fill(c, healing, from, c.Min.Y, healed, c.Max.Y) })
	t.eachFault(c, p, func(_ int, from, to, _ vg.Length) { fill(c, harmed, from, c.Min.Y, to, c.Max.Y) })
	t.eachFault(c, p, func(_ int, from, _, _ vg.Length) {
		c.StrokeLine2(draw.LineStyle{Color: vermillion, Width: 0.8}, from, c.Min.Y, from, c.Max.Y)
	})
}

// numberFaults writes each fault's number at its beginning, below the names of the phases; numbers that would run into each
// other stand in rows.
func (t Timeline) numberFaults(c draw.Canvas, p *plot.Plot) {
	const top, row, rows = 11, 9, 3
	style := textStyle(7.5, vermillion, text.XLeft, text.YTop)
	var ends [rows]vg.Length
	t.eachFault(c, p, func(i int, from, _, _ vg.Length) {
		number := fmt.Sprint(i + 1)
		w := style.Width(number)
		x := min(from+2, c.Max.X-w)
		n := 0
		for n < rows-1 && ends[n] > x {
			n++
		}
		ends[n] = x + w + 2
		y := c.Max.Y - top - vg.Length(n)*row
		fill(c, white, x-0.5, y-8, x+w+0.5, y)
		c.FillText(style, vg.Point{X: x, Y: y}, number)
	})
}

// faultLegend names the faults by their numbers.
func (t Timeline) faultLegend() (list []entry) {
	for i, f := range t.Faults {
		if i == mostFaults {
			return append(list, entry{fmt.Sprintf("and %d more", len(t.Faults)-i), swatch{harmed}})
		}
		list = append(list, entry{fmt.Sprintf("%d: %s", i+1, labelOf(f.Name, 60)), swatch{harmed}})
	}
	if len(list) > 0 {
		list = append(list, entry{"until healed", swatch{healing}})
	}
	return list
}

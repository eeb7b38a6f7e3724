package figure

import (
	"fmt"
	"image/color"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"imbench/model/capacity"
)

// Utilization shows how much of each resource's budget a load takes. Source: model/capacity, Predict:
// 100 · demand ÷ budget; the colour says where the budget comes from.
func Utilization(t capacity.Table) *Drawing {
	p := newPanel("", "used, % of the budget", "")
	d := &Drawing{Name: "utilization", height: 60, panels: []*plot.Plot{p}, Alt: "Utilisation of each resource."}
	var rows []capacity.Resource
	for _, r := range t.Resources {
		if usable(100 * r.Utilization) {
			rows = append(rows, r)
		}
	}
	if len(rows) == 0 {
		d.height = 150
		empty(p)
		return d
	}
	d.height += vg.Length(26 * len(rows))
	most := 100.0
	for _, r := range rows {
		most = max(most, 100*r.Utilization)
	}
	setLinear(&p.X, 0, most*1.5)
	p.Y.Min, p.Y.Max = -0.6, float64(len(rows))-0.4
	var names plot.ConstantTicks
	p.Add(gridlines{vertical: true}, fullLine{})
	seen := map[capacity.Standing]bool{}
	for i, r := range rows {
		y := float64(len(rows) - 1 - i)
		name := strings.ReplaceAll(r.Name, "_", " ")
		names = append(names, plot.Tick{Value: y, Label: name})
		style := draw.LineStyle{Color: standingColor(r.Standing), Width: 13}
		said := fmt.Sprintf("%s %% of %s", Number(100*r.Utilization), Quantity(r.Budget, r.Unit))
		p.Add(reach{0, 100 * r.Utilization, y, style}, beside{100 * r.Utilization, y, said})
		d.Alt += fmt.Sprintf(" %s: %s.", name, said)
		if !seen[r.Standing] {
			seen[r.Standing] = true
			d.legend = append(d.legend, entry{"budget " + string(r.Standing), swatch{style.Color}})
		}
	}
	p.Y.Tick.Marker = names
	d.legend = append(d.legend, entry{"100 %", line{style: fullStyle}})
	return d
}

func standingColor(s capacity.Standing) color.Color {
	switch s {
	case capacity.Given:
		return blue
	case capacity.Measured:
		return green
	case capacity.Bounded:
		return orange
	}
	return sky
}

var fullStyle = draw.LineStyle{Color: vermillion, Width: 1.2, Dashes: []vg.Length{5, 3}}

// fullLine is where a budget is used up.
type fullLine struct{}

// Plot implements plot.Plotter.
func (fullLine) Plot(c draw.Canvas, p *plot.Plot) {
	x := c.X(p.X.Norm(100))
	c.StrokeLine2(fullStyle, x, c.Min.Y, x, c.Max.Y)
}

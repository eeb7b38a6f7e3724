package figure

import (
	"fmt"
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/HdrHistogram/hdrhistogram-go"
	"imbench/reports/rundir"
)

// Shown lists the latencies that the figures show, a panel or line each.
func Shown() []string {
	return []string{rundir.SendIntended, rundir.SendService, rundir.Deliver, rundir.DeliverRepaired, rundir.Sync}
}

// perDecade is the number of logarithmic buckets between a value and its tenfold: each is 12 % wide.
const perDecade = 20

// Histograms shows the distribution of each latency in logarithmic buckets, all on one axis of milliseconds, with median
// and 99th percentile. Source: latency.hlog, all intervals of a tag merged; the height of bucket i is
// 100 · samples in [10^(i/20), 10^((i+1)/20)) ms ÷ all samples.
func Histograms(series map[string]*rundir.Series) *Drawing {
	d := &Drawing{Name: "latency-histograms", Alt: "Histograms of latencies in logarithmic buckets.", height: 540}
	var x span
	buckets := map[string]map[int]float64{}
	for _, tag := range Shown() {
		s := series[tag]
		if s == nil || s.Total.TotalCount() == 0 {
			continue
		}
		buckets[tag] = logBuckets(s.Total)
		for i := range buckets[tag] {
			x.add(math.Pow(10, float64(i)/perDecade))
			x.add(math.Pow(10, float64(i+1)/perDecade))
		}
	}
	for i, tag := range Shown() {
		p := newPanel(tag, "", "% of samples")
		if i == len(Shown())-1 {
			p.X.Label.Text = "latency, ms"
		}
		d.panels = append(d.panels, p)
		if buckets[tag] == nil {
			empty(p)
			continue
		}
		m := rundir.MetricOf(series[tag].Total)
		p.Title.Text = fmt.Sprintf("%s: %s samples, p50 %s ms, p99 %s ms", tag, Number(float64(m.Count)), Number(m.P50), Number(m.P99))
		d.Alt += " " + p.Title.Text + "."
		bars := logBars{buckets[tag], lineStyle(i).Color}
		setLog(&p.X, x.lo, x.hi)
		setLinear(&p.Y, 0, bars.highest()*1.25) // the names of the marks stand above
		p.Add(bars, mark{m.P50, "p50", left}, mark{m.P99, "p99", right})
	}
	return d
}

// logBuckets gives the share of the samples in each bucket, in per cent.
func logBuckets(h *hdrhistogram.Histogram) map[int]float64 {
	out := map[int]float64{}
	for _, b := range h.Distribution() {
		if b.Count > 0 {
			ms := max(float64(b.From+b.To)/2, float64(rundir.LowestNS)) / 1e6
			out[int(math.Floor(math.Log10(ms)*perDecade))] += 100 * float64(b.Count) / float64(h.TotalCount())
		}
	}
	return out
}

type logBars struct {
	share map[int]float64
	color color.Color
}

func (b logBars) highest() (most float64) {
	for _, v := range b.share {
		most = max(most, v)
	}
	return most
}

// Plot implements plot.Plotter.
func (b logBars) Plot(c draw.Canvas, p *plot.Plot) {
	for i, v := range b.share {
		x0, x1 := c.X(p.X.Norm(math.Pow(10, float64(i)/perDecade))), c.X(p.X.Norm(math.Pow(10, float64(i+1)/perDecade)))
		fill(c, b.color, x0, c.Y(p.Y.Norm(0)), x1, c.Y(p.Y.Norm(v)))
	}
}

// mark is a dashed vertical line with its name at its top.
type mark struct {
	x    float64
	name string
	side side
}

// Plot implements plot.Plotter.
func (m mark) Plot(c draw.Canvas, p *plot.Plot) {
	if !usableLog(m.x) || m.x < p.X.Min || m.x > p.X.Max {
		return
	}
	x := c.X(p.X.Norm(m.x))
	c.StrokeLine2(draw.LineStyle{Color: black, Width: 0.7, Dashes: []vg.Length{3, 2}}, x, c.Min.Y, x, c.Max.Y)
	dx, align := vg.Length(2), text.XLeft
	if m.side == left && x > c.Min.X+20 || x > c.Max.X-20 {
		dx, align = -2, text.XRight
	}
	c.FillText(textStyle(8, black, align, text.YTop), vg.Point{X: x + dx, Y: c.Max.Y}, m.name)
}

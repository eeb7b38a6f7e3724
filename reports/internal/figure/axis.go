package figure

import (
	"math"
	"strconv"
	"strings"
	"unicode"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
)

// largest is where values are cut off: beyond it an axis could not be divided into ticks.
const largest = 1e15

// usable says that a linear axis can show v.
func usable(v float64) bool { return !math.IsNaN(v) && math.Abs(v) <= largest }

// usableLog says that a logarithmic axis can show v.
func usableLog(v float64) bool { return v >= 1/largest && v <= largest }

// Number writes four significant digits, more where they stand before the point, with the thousands set apart by
// no-break spaces.
func Number(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "?"
	}
	if v == 0 {
		return "0"
	}
	places := min(15, max(0, 3-int(math.Floor(math.Log10(math.Abs(v))))))
	return grouped(strconv.FormatFloat(v, 'f', places, 64))
}

// grouped sets the thousands of a decimal number apart and leaves out zeros at its end.
func grouped(text string) string {
	whole, fraction, _ := strings.Cut(text, ".")
	for i := len(whole) - 3; i > 0 && whole[i-1] != '-'; i -= 3 {
		whole = whole[:i] + "\u00a0" + whole[i:]
	}
	if fraction = strings.TrimRight(fraction, "0"); fraction != "" {
		return whole + "." + fraction
	}
	return whole
}

// Quantity writes a number with its unit; large numbers of bytes get a decimal prefix.
func Quantity(v float64, unit string) string {
	prefix := ""
	if unit == "B" || unit == "B/s" {
		for _, p := range []string{"k", "M", "G", "T", "P"} {
			if math.Abs(v) < 1000 {
				break
			}
			v, prefix = v/1000, p
		}
	}
	return Number(v) + "\u00a0" + prefix + unit
}

// label makes a name from a file fit for a legend: one line, visible characters, of a length that fits.
func label(name string) string { return labelOf(name, 28) }

// labelOf is label for names of at most so many letters.
func labelOf(name string, most int) string {
	list := []rune(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, name))
	if len(list) > most {
		list = append(list[:most-1], '…')
	}
	return string(list)
}

// setLinear makes an axis from lo to hi.
func setLinear(a *plot.Axis, lo, hi float64) {
	if hi <= lo {
		hi = lo + 1
	}
	a.Min, a.Max, a.Scale, a.Tick.Marker = lo, hi, plot.LinearScale{}, linearTicks{}
}

// setLog makes a logarithmic axis that holds lo to hi, both above 0, with ends at 1, 2 or 5 times a power of ten.
func setLog(a *plot.Axis, lo, hi float64) {
	lo, hi = lo*(1+1e-9), hi*(1-1e-9) // an end that is round already stays
	a.Min, a.Max = below(lo), 1/below(1/hi)
	if a.Max <= a.Min {
		a.Max = 10 * a.Min
	}
	a.Scale, a.Tick.Marker = plot.LogScale{}, logTicks{}
}

// below is the largest of …, 0.1, 0.2, 0.5, 1, 2, 5, 10, … that is at most v.
func below(v float64) float64 {
	decade := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{5, 2} {
		if v >= m*decade {
			return m * decade
		}
	}
	return decade
}

// linearTicks are at multiples of 1, 2 or 5 times a power of ten, about five of them.
type linearTicks struct{}

// Ticks implements plot.Ticker.
func (linearTicks) Ticks(lo, hi float64) (list []plot.Tick) {
	step := below((hi - lo) / 4)
	if !(step > 0) || math.IsInf(step, 0) {
		return nil
	}
	for i := math.Ceil(lo/step - 1e-9); i*step <= hi+step*1e-9; i++ {
		v := i * step
		list = append(list, plot.Tick{Value: v, Label: tickLabel(v, step)})
	}
	return list
}

// tickLabel has as many places as the step asks for.
func tickLabel(v, step float64) string {
	if math.Abs(v) < step/2 {
		return "0"
	}
	return grouped(strconv.FormatFloat(v, 'f', max(0, -int(math.Floor(math.Log10(step)+1e-9))), 64))
}

// logTicks has a label at each power of ten, whatever else: gonum's own may end up with none. With few decades it labels
// 2 and 5 too; with many it leaves out powers.
type logTicks struct{}

// Ticks implements plot.Ticker.
func (logTicks) Ticks(lo, hi float64) (list []plot.Tick) {
	if !(lo > 0) || math.IsInf(hi, 0) {
		return nil
	}
	first, last := int(math.Floor(math.Log10(lo)+1e-9)), int(math.Ceil(math.Log10(hi)-1e-9))
	decades := math.Log10(hi / lo)
	every := 1 + int(decades)/9
	for e := first; e <= last; e++ {
		for m := 1; m <= 9; m++ {
			v := float64(m) * math.Pow(10, float64(e))
			if v < lo*(1-1e-9) || v > hi*(1+1e-9) {
				continue
			}
			t := plot.Tick{Value: v}
			if m == 1 && (e-first)%every == 0 || decades < 2.5 && (m == 2 || m == 5) {
				t.Label = Number(v)
			}
			list = append(list, t)
		}
	}
	return list
}

// span is the range of the values that were offered to it.
type span struct {
	lo, hi float64
	some   bool
}

func (s *span) add(v float64) {
	if !s.some {
		s.lo, s.hi, s.some = v, v, true
		return
	}
	s.lo, s.hi = min(s.lo, v), max(s.hi, v)
}

// roomy is the upper end of a logarithmic axis that leaves room above the values for the names of the phases.
func (s span) roomy() float64 { return s.hi * max(1.3, math.Pow(s.hi/s.lo, 0.15)) }

// mostPoints of a line: gonum loses segments of longer ones in PNG, and no eye sees more.
const mostPoints = 2000

// thin keeps the lowest and the highest of each stretch of a long line, so that no peak disappears.
func thin(pts plotter.XYs) plotter.XYs {
	if len(pts) <= mostPoints {
		return pts
	}
	var out plotter.XYs
	parts := mostPoints / 2
	for i := range parts {
		part := pts[i*len(pts)/parts : (i+1)*len(pts)/parts]
		lo, hi := 0, 0
		for j, p := range part {
			if p.Y < part[lo].Y {
				lo = j
			}
			if p.Y > part[hi].Y {
				hi = j
			}
		}
		out = append(out, part[min(lo, hi)])
		if lo != hi {
			out = append(out, part[max(lo, hi)])
		}
	}
	return out
}

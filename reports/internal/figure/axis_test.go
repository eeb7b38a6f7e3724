package figure

import (
	"math"
	"strconv"
	"strings"
	"testing"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"pgregory.net/rapid"

	"imbench/reports/rundir"
)

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 1: "1", 0.1: "0.1", 9066.575: "9 067", 1e12: "1 000 000 000 000", 288814.6: "288 815", 0.00512345: "0.005123",
		-1250.4: "-1 250", 999.96: "1 000", 12.345: "12.35", math.Inf(1): "?"} {
		if got := strings.ReplaceAll(Number(v), "\u00a0", " "); got != want {
			t.Errorf("Number(%g) = %q, want %q", v, got, want)
		}
	}
	if got := Number(math.NaN()); got != "?" {
		t.Errorf("NaN is %q", got)
	}
}

func TestQuantity(t *testing.T) {
	for _, c := range []struct {
		v    float64
		unit string
		want string
	}{{5600, "rows/s", "5 600 rows/s"}, {125e6, "B/s", "125 MB/s"}, {1e12, "B", "1 TB"}, {999, "B", "999 B"}, {4.5e11, "B", "450 GB"}} {
		if got := strings.ReplaceAll(Quantity(c.v, c.unit), "\u00a0", " "); got != c.want {
			t.Errorf("Quantity(%g, %s) = %q, want %q", c.v, c.unit, got, c.want)
		}
	}
}

func TestNumberKeepsFourDigits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.Float64Range(-1e12, 1e12).Draw(t, "v")
		got, err := strconv.ParseFloat(strings.ReplaceAll(Number(v), "\u00a0", ""), 64)
		if err != nil || math.Abs(got-v) > max(0.0005*math.Abs(v), 1e-15) {
			t.Fatalf("Number(%g) = %q", v, Number(v))
		}
	})
}

func TestLogAxis(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lo := math.Pow(10, rapid.Float64Range(-15, 15).Draw(t, "lo"))
		hi := min(lo*math.Pow(10, rapid.Float64Range(0, 25).Draw(t, "decades")), largest)
		var a plot.Axis
		setLog(&a, lo, max(lo, hi))
		if a.Min > lo*(1+1e-8) || a.Max < hi*(1-1e-8) || a.Min <= 0 || a.Max <= a.Min {
			t.Fatalf("axis %g to %g for %g to %g", a.Min, a.Max, lo, hi)
		}
		labels := labelled(t, a)
		if len(labels) < 2 || len(labels) > 12 {
			t.Fatalf("axis %g to %g has %d labels: %v", a.Min, a.Max, len(labels), labels)
		}
	})
}

func TestLinearAxis(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lo := rapid.Float64Range(-1e6, 1e6).Draw(t, "lo")
		var a plot.Axis
		setLinear(&a, lo, lo+math.Pow(10, rapid.Float64Range(-1, 9).Draw(t, "range")))
		if labels := labelled(t, a); len(labels) < 3 || len(labels) > 12 {
			t.Fatalf("axis %g to %g has labels %v", a.Min, a.Max, labels)
		}
	})
}

// labelled gives the labels of ticks inside of the axis, each of which must be the only one of its text.
func labelled(t *rapid.T, a plot.Axis) (list []string) {
	seen := map[string]bool{}
	for _, tick := range a.Tick.Marker.Ticks(a.Min, a.Max) {
		slack := 1e-9 * max(math.Abs(a.Min), math.Abs(a.Max))
		if tick.Value < a.Min-slack || tick.Value > a.Max+slack {
			t.Fatalf("tick %g outside of %g to %g", tick.Value, a.Min, a.Max)
		}
		if tick.Label == "" {
			continue
		}
		if seen[tick.Label] {
			t.Fatalf("label %q twice", tick.Label)
		}
		seen[tick.Label] = true
		list = append(list, tick.Label)
	}
	return list
}

func TestThinKeepsThePeaks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pts := make(plotter.XYs, rapid.IntRange(0, 9000).Draw(t, "n"))
		for i := range pts {
			pts[i] = plotter.XY{X: float64(i), Y: math.Sin(float64(i))}
		}
		if len(pts) > 0 {
			pts[rapid.IntRange(0, len(pts)-1).Draw(t, "peak")].Y = 100
		}
		var most float64
		got := thin(pts)
		for i, p := range got {
			most = max(most, p.Y)
			if i > 0 && p.X <= got[i-1].X {
				t.Fatalf("point %d is out of order", i)
			}
		}
		if len(got) > mostPoints || len(pts) > 0 && most != 100 {
			t.Fatalf("%d of %d points, peak %g", len(got), len(pts), most)
		}
	})
}

func TestDistributionsHoldAllSamples(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ms := rapid.SliceOfN(rapid.Float64Range(1, 5e5), 1, 50).Draw(t, "ms")
		s := seriesOf(rundir.Sync, 1, ms...)
		var sum float64
		for i, share := range logBuckets(s.Total) {
			sum += share
			if lo, hi := math.Pow(10, float64(i)/perDecade), math.Pow(10, float64(i+1)/perDecade); share > 0 && !someBetween(ms, lo*0.999, hi*1.001) {
				t.Fatalf("%g %% between %g and %g, where nothing is", share, lo, hi)
			}
		}
		if math.Abs(sum-100) > 1e-6 {
			t.Fatalf("the buckets hold %g %%", sum)
		}
		pts := spectrum(s)
		for i := 1; i < len(pts); i++ {
			if pts[i].X <= pts[i-1].X || pts[i].Y < pts[i-1].Y {
				t.Fatalf("the spectrum falls at %v", pts[i])
			}
		}
		if last := pts[len(pts)-1]; last.X != float64(s.Total.TotalCount()) {
			t.Fatalf("the spectrum ends at %g of %d samples", last.X, s.Total.TotalCount())
		}
	})
}

func someBetween(list []float64, lo, hi float64) bool {
	for _, v := range list {
		if v >= lo && v <= hi {
			return true
		}
	}
	return false
}

func TestTimeAxisCountsFromTheWindow(t *testing.T) {
	tl := ordinary().tl
	if got := tl.at(began.Add(35e9)); got != 5 {
		t.Errorf("35 s after the start are %g s after the window's beginning at 30 s", got)
	}
}

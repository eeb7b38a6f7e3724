package stats

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-3*max(math.Abs(a), math.Abs(b), 1e-9) }

// Values of a table of Student's t: 4 degrees of freedom, 2.776 for 95 %.
func TestMeanAgainstATable(t *testing.T) {
	x := []float64{-2, -1, 0, 1, 2} // deviation √2.5
	e, ok := Mean(x)
	half := 2.776 * math.Sqrt(2.5/5)
	if !ok || e.Geometric || e.Mean != 0 || !near(e.High, half) || !near(e.Low, -half) {
		t.Errorf("%+v, want ±%v", e, half)
	}
	e, ok = Mean([]float64{1, math.E, math.E * math.E}) // logs 0, 1, 2: deviation 1, 2 degrees of freedom: 4.303
	if !ok || !e.Geometric || !near(e.Mean, math.E) || !near(e.High, math.Exp(1+4.303/math.Sqrt(3))) {
		t.Errorf("geometric %+v", e)
	}
}

func TestWhatCannotBeEstimated(t *testing.T) {
	for _, x := range [][]float64{nil, {1}, {1, math.NaN()}, {1, math.Inf(1)}} {
		if e, ok := Mean(x); ok {
			t.Errorf("the mean of %v is %+v", x, e)
		}
		if d, ok := Pair(x, x); ok {
			t.Errorf("the difference of %v is %+v", x, d)
		}
	}
}

func TestPair(t *testing.T) {
	for _, c := range []struct {
		name      string
		a, b      []float64
		relative  bool
		mean, p   float64
		different bool
	}{
		{"twice as much each time", []float64{1, 5, 9}, []float64{2, 10, 18}, true, 1, 0, true},
		{"the same", []float64{1, 5, 9}, []float64{1, 5, 9}, true, 0, 1, false},
		{"nothing at all", []float64{0, 0}, []float64{0, 0}, false, 0, 1, false},
		{"one up, one down", []float64{10, 10}, []float64{20, 5}, true, 0, 1, false},
		{"a zero makes it an amount", []float64{0, 2, 1, 3}, []float64{4, 6, 5, 7}, false, 4, 0, true},
	} {
		d, ok := Pair(c.a, c.b)
		if !ok || d.Relative != c.relative || math.Abs(d.Mean-c.mean) > 1e-9 || math.Abs(d.P-c.p) > 1e-3 {
			t.Errorf("%s: %+v", c.name, d)
		}
		if different := d.Low > 0 || d.High < 0; different != c.different {
			t.Errorf("%s: interval [%v, %v]", c.name, d.Low, d.High)
		}
	}
}

// Two rounded differences that happen to be the same are not certain beyond the rounding.
func TestRoundingIsNoCertainty(t *testing.T) {
	d, ok := Pair([]float64{100, 100}, []float64{100.05, 100.05})
	if !ok || d.P < 0.05 || d.Low > 0 {
		t.Errorf("%+v: half a thousandth more, twice, is taken for a difference", d)
	}
}

// The interval covers the truth as often as it says, and of two equal variants Holm calls hardly ever any figure different.
func TestHowOftenItIsWrong(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	const trials, figures, pairs = 2000, 12, 5
	missed, alarms := 0, 0
	for range trials {
		var p []float64
		for range figures {
			a, b := make([]float64, pairs), make([]float64, pairs)
			for i := range a {
				workload := math.Exp(rng.NormFloat64()) // of the pair: it must not matter
				a[i], b[i] = workload*math.Exp(0.3*rng.NormFloat64()), workload*math.Exp(0.3*rng.NormFloat64())
			}
			d, _ := Pair(a, b)
			p = append(p, d.P)
			if d.Low > 0 || d.High < 0 {
				missed++
			}
		}
		for _, real := range Holm(p) {
			if real {
				alarms++
				break
			}
		}
	}
	if share := float64(missed) / (trials * figures); share < 0.04 || share > 0.06 {
		t.Errorf("the intervals miss the truth in %.3f, want 0.05", share)
	}
	if share := float64(alarms) / trials; share > 0.065 {
		t.Errorf("two equal variants differ in some figure in %.3f of all comparisons, want at most 0.05", share)
	}
}

func TestHolm(t *testing.T) {
	got := Holm([]float64{0.01, 0.04, 0.03, 0.005})
	for i, want := range []bool{true, false, false, true} {
		if got[i] != want {
			t.Errorf("%v", got)
		}
	}
	if len(Holm(nil)) != 0 || Holm([]float64{math.NaN()})[0] {
		t.Error("nothing, or no number, is real")
	}
}

// Exchanging the variants turns the difference round; the interval holds the mean.
func TestPairProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 8).Draw(t, "n")
		values := rapid.SliceOfN(rapid.Float64Range(1e-3, 1e6), n, n)
		a, b := values.Draw(t, "a"), values.Draw(t, "b")
		d, ok := Pair(a, b)
		r, _ := Pair(b, a)
		if !ok || !(d.Low <= d.Mean && d.Mean <= d.High) || d.P < 0 || d.P > 1 {
			t.Fatalf("%+v", d)
		}
		if math.Abs((1+d.Mean)*(1+r.Mean)-1) > 1e-9 || math.Abs(d.P-r.P) > 1e-9 {
			t.Fatalf("%+v against %+v", d, r)
		}
		m, _ := Mean(a)
		if !(m.Low <= m.Mean && m.Mean <= m.High) {
			t.Fatalf("%+v", m)
		}
	})
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		x    []float64
		want float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1, 5}, 5}, {[]float64{4, 1, 2, 9}, 3}} {
		if got := Median(c.x); got != c.want {
			t.Errorf("median of %v is %v", c.x, got)
		}
	}
}

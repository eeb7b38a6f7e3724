// Package stats says how far figures of repeated runs can be trusted: an interval for a figure that was measured several
// times, the difference of two variants that ran in pairs, and which of many such differences are more than chance.
//
// Figures of load tests (latencies, CPU, bytes) are positive and scatter by factors, not by amounts. So where all values
// are above zero the logarithms are used: a mean is then the geometric one, and a difference is a ratio. Intervals and p
// values are Student's (Student 1908; for the pairs, his t of the differences).
//
// All functions are pure and safe for concurrent use.
package stats

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Confidence is that of every interval.
const Confidence = 0.95

// resolution is how well a single figure is known at best: histograms keep three significant digits. A scatter below it is
// rounding, so that two values that happen to be rounded alike do not count as certainty.
const resolution = 0.001

// Estimate is a mean with its interval. Geometric says that it is the geometric mean (all values were above zero).
type Estimate struct {
	Mean, Low, High float64
	Geometric       bool
}

// Mean estimates the mean of independent observations; ok is false for fewer than two, or for one that is no number.
func Mean(x []float64) (e Estimate, ok bool) {
	if len(x) < 2 || !finite(x) {
		return e, false
	}
	if positive(x) {
		m, half, _ := student(logs(x), resolution)
		return Estimate{math.Exp(m), math.Exp(m - half), math.Exp(m + half), true}, true
	}
	m, half, _ := student(x, resolution*largest(x))
	return Estimate{m, m - half, m + half, false}, true
}

// Difference is b against a over pairs: with Relative a ratio less one (0.1 is a tenth more), else an amount. P is the
// probability of a difference as large as this, were there none.
type Difference struct {
	Pairs           int
	Relative        bool
	Mean, Low, High float64
	P               float64
}

// Pair compares a[i] with b[i]; ok is false for fewer than two pairs, or values that are no numbers. It panics if the
// lengths differ.
func Pair(a, b []float64) (d Difference, ok bool) {
	if len(a) != len(b) {
		panic("stats: pairs of unequal lengths")
	}
	if len(a) < 2 || !finite(a) || !finite(b) {
		return d, false
	}
	d.Pairs, d.Relative = len(a), positive(a) && positive(b)
	x := make([]float64, len(a))
	if d.Relative {
		for i := range x {
			x[i] = math.Log(b[i] / a[i])
		}
		m, half, p := student(x, resolution)
		d.Mean, d.Low, d.High, d.P = math.Expm1(m), math.Expm1(m-half), math.Expm1(m+half), p
		return d, true
	}
	for i := range x {
		x[i] = b[i] - a[i]
	}
	m, half, p := student(x, resolution*max(largest(a), largest(b)))
	d.Mean, d.Low, d.High, d.P = m, m-half, m+half, p
	return d, true
}

// Each is b[i] against a[i], pair by pair, in the terms of Pair. It panics if the lengths differ.
func Each(a, b []float64) (d []float64, relative bool) {
	if len(a) != len(b) {
		panic("stats: pairs of unequal lengths")
	}
	relative = positive(a) && positive(b)
	d = make([]float64, len(a))
	for i := range d {
		if d[i] = b[i] - a[i]; relative {
			d[i] = b[i]/a[i] - 1
		}
	}
	return d, relative
}

// student gives the mean, half of its interval, and the two-sided p value of a mean of zero. The deviation is taken as at
// least that of rounding to steps of grain (grain ÷ √12).
func student(x []float64, grain float64) (mean, half, p float64) {
	n := float64(len(x))
	mean, sd := stat.MeanStdDev(x, nil)
	sd = max(sd, grain/math.Sqrt(12))
	if sd == 0 { // all are zero
		return mean, 0, 1
	}
	t := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: n - 1}
	se := sd / math.Sqrt(n)
	return mean, se * t.Quantile(0.5+Confidence/2), 2 * t.CDF(-math.Abs(mean)/se)
}

// Holm says which of several p values are more than chance when all are looked at together: the probability that any of
// them is wrongly taken for more is at most 1 − Confidence (Holm 1979).
func Holm(p []float64) []bool {
	order := make([]int, len(p))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		switch {
		case p[i] < p[j]:
			return -1
		case p[i] > p[j]:
			return 1
		}
		return 0
	})
	real := make([]bool, len(p))
	for rank, i := range order {
		if !(p[i] <= (1-Confidence)/float64(len(p)-rank)) {
			break
		}
		real[i] = true
	}
	return real
}

// Median is the middle value, or the mean of the two middle ones; 0 of nothing.
func Median(x []float64) float64 {
	s := slices.Sorted(slices.Values(x))
	switch n := len(s); {
	case n == 0:
		return 0
	case n%2 == 1:
		return s[n/2]
	default:
		return (s[n/2-1] + s[n/2]) / 2
	}
}

func finite(x []float64) bool {
	return !slices.ContainsFunc(x, func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) })
}

func positive(x []float64) bool {
	return !slices.ContainsFunc(x, func(v float64) bool { return v <= 0 })
}

func largest(x []float64) (m float64) {
	for _, v := range x {
		m = max(m, math.Abs(v))
	}
	return m
}

func logs(x []float64) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = math.Log(v)
	}
	return y
}

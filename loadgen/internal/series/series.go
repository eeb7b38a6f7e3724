package series

import (
	"slices"

	"imbench/loadgen/internal/stats"
	"imbench/reports/rundir"
)

// Repeat sets the runs of one scenario side by side. A run that does not count is nil; it keeps its place.
func Repeat(runs [][]Figure) []rundir.RepeatFigure {
	var list []rundir.RepeatFigure
	for _, f := range union(runs) {
		row := rundir.RepeatFigure{Name: f.Name, Unit: f.Unit, Values: make([]*float64, len(runs))}
		var x []float64
		for i, run := range runs {
			if v, ok := value(run, f.Name); ok {
				row.Values[i] = &v
				x = append(x, v)
			}
		}
		if len(x) > 0 {
			low, mid, high := slices.Min(x), stats.Median(x), slices.Max(x)
			row.Min, row.Median, row.Max = &low, &mid, &high
			if mid > 0 {
				row.Spread = ptr((high - low) / mid)
			}
		}
		if e, ok := stats.Mean(x); ok && len(x) >= rundir.IntervalRuns {
			row.Low, row.High = &e.Low, &e.High
		}
		list = append(list, row)
	}
	return list
}

// Pair is the two runs of one pair; one that does not count, or was not made, is nil.
type Pair struct{ A, B []Figure }

// Compare gives the paired differences of B against A. A pair of which one run does not count is left out; so is, for a
// figure, one without data on both sides. Fewer than rundir.IntervalRuns pairs have no interval and no verdict: of two, the interval
// is wider than anything it could tell, and chance alone may bring two differences close to each other.
func Compare(pairs []Pair) []rundir.ComparisonFigure {
	var runs [][]Figure
	for _, p := range pairs {
		runs = append(runs, p.A, p.B)
	}
	var (
		list   []rundir.ComparisonFigure
		tested []int // indices of list
		p      []float64
	)
	figures := union(runs)
	for _, f := range figures {
		row := rundir.ComparisonFigure{Name: f.Name, Unit: f.Unit, Result: rundir.NoData, Differences: make([]*float64, len(pairs))}
		var a, b []float64
		var at []int
		for i, pair := range pairs {
			x, ok1 := value(pair.A, f.Name)
			y, ok2 := value(pair.B, f.Name)
			if ok1 && ok2 {
				a, b, at = append(a, x), append(b, y), append(at, i)
			}
		}
		if row.Pairs = len(a); row.Pairs > 0 {
			row.A, row.B, row.Result = ptr(stats.Median(a)), ptr(stats.Median(b)), rundir.FewPairs
			var each []float64
			each, row.Relative = stats.Each(a, b)
			for i, d := range each {
				row.Differences[at[i]] = ptr(d)
			}
		}
		if d, ok := stats.Pair(a, b); ok && row.Pairs >= rundir.IntervalRuns {
			row.Mean, row.Low, row.High, row.P = &d.Mean, &d.Low, &d.High, &d.P
			tested, p = append(tested, len(list)), append(p, d.P)
		}
		list = append(list, row)
	}
	for n, real := range stats.Holm(p) {
		row := &list[tested[n]]
		row.Result = result(figures[tested[n]], *row.Mean, real)
	}
	return list
}

func result(f Figure, mean float64, real bool) string {
	switch {
	case !real:
		return rundir.NoneSeen
	case !f.Less && !f.More:
		return rundir.Different
	case f.Less == (mean < 0):
		return rundir.Better
	}
	return rundir.Worse
}

// union is every figure of any run, in the order in which they first come.
func union(runs [][]Figure) []Figure {
	var list []Figure
	for _, run := range runs {
		for _, f := range run {
			if !has(list, f.Name) {
				list = append(list, f)
			}
		}
	}
	return list
}

func value(run []Figure, name string) (float64, bool) {
	for _, f := range run {
		if f.Name == name {
			return f.Value, f.OK
		}
	}
	return 0, false
}

func ptr(v float64) *float64 { return &v }

// Order says which variant each run of a comparison has, 0 or 1: AB, BA, AB, … A drift of the machine that goes on evenly
// falls on both alike, with an even number of pairs exactly so.
func Order(pairs int) []int {
	var order []int
	for i := range pairs {
		order = append(order, i%2, 1-i%2)
	}
	return order
}

// Worst is the verdict that stands first among the verdicts; "passed" of none.
func Worst(verdicts ...rundir.Verdict) rundir.Verdict {
	for _, v := range []rundir.Verdict{rundir.Error, rundir.Broken, rundir.Aborted, rundir.Interrupted, rundir.Invalid, rundir.Missed} {
		if slices.Contains(verdicts, v) {
			return v
		}
	}
	return rundir.Passed
}

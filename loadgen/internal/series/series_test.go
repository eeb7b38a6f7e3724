package series

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"imbench/reports/rundir"
)

func summary() rundir.Summary {
	messages, bytes := 100.0, 30000.0
	limit := 6500.0
	return rundir.Summary{Offered: 1000, AchievedRate: 100, EffectiveAck: 3.5,
		Metrics:     map[string]rundir.Metric{"send.intended": {Count: 1000, P50: 10, P99: 50}, "sync": {}},
		Predictions: []rundir.Prediction{{Name: "messages", Measured: &messages}, {Name: "bytes.down", Measured: &bytes}, {Name: "frames.down"}},
		Processes:   []rundir.ProcessUse{{Role: "gateway-1", CPUCores: 0.2, RSSMaxBytes: 1 << 20}, {Role: "gateway-2", CPUCores: 0.3, RSSMaxBytes: 2 << 20}},
		Criteria: []rundir.Criterion{{Metric: "send.intended.p99", Op: "<=", Value: &limit}, {Metric: "deliver.repaired.max", Op: "<=", Unit: "ms", Value: &limit},
			{Metric: "heal.max", Op: "<=", Unit: "ms"}},
	}
}

func TestFigures(t *testing.T) {
	got := map[string]Figure{}
	for _, f := range Figures(summary()) {
		if _, twice := got[f.Name]; twice {
			t.Errorf("%s twice", f.Name)
		}
		if f.Less && f.More {
			t.Errorf("%s is good in both directions", f.Name)
		}
		got[f.Name] = f
	}
	for name, want := range map[string]float64{"achieved_rate": 100, "send.intended.p99": 50, "bytes/message": 300,
		"gateway CPU/message": 5000, "gateway memory, max": 3, "deliver.repaired.max": 6500} {
		if f := got[name]; !f.OK || math.Abs(f.Value-want) > 1e-9 {
			t.Errorf("%s: %+v, want %v", name, f, want)
		}
	}
	for _, name := range []string{"sync.p99", "deliver.p50", "frames/message", "database CPU/message", "heal.max"} {
		if f, ok := got[name]; !ok || f.OK {
			t.Errorf("%s: %+v, want no data", name, f)
		}
	}
	empty := Figures(rundir.Summary{})
	for _, f := range empty {
		if f.OK {
			t.Errorf("of nothing: %+v", f)
		}
	}
}

func run(values map[string]float64) []Figure {
	var list []Figure
	for _, f := range []Figure{{Name: "ms", Less: true}, {Name: "rate", More: true}, {Name: "late"}} {
		f.Value, f.OK = values[f.Name], values[f.Name] != 0
		list = append(list, f)
	}
	return list
}

func TestRepeat(t *testing.T) {
	list := Repeat([][]Figure{run(map[string]float64{"ms": 10, "rate": 1}), nil, run(map[string]float64{"ms": 30}), run(map[string]float64{"ms": 20})})
	ms, rate, late := list[0], list[1], list[2]
	if *ms.Min != 10 || *ms.Median != 20 || *ms.Max != 30 || *ms.Spread != 1 || ms.Values[1] != nil || *ms.Values[2] != 30 ||
		!(*ms.Low < 20 && 20 < *ms.High) {
		t.Errorf("%+v", ms)
	}
	if *rate.Median != 1 || rate.Low != nil || late.Median != nil || late.Values[0] != nil {
		t.Errorf("one value %+v, none %+v", rate, late)
	}
	for _, f := range Repeat([][]Figure{run(map[string]float64{"ms": 10}), run(map[string]float64{"ms": 30})}) {
		if f.Low != nil || f.High != nil || f.Name == "ms" && *f.Spread != 1 {
			t.Errorf("two values have an interval: %+v", f)
		}
	}
	if got := Repeat(nil); got != nil {
		t.Errorf("of nothing %v", got)
	}
}

func TestCompare(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	noise := func() float64 { return math.Exp(0.01 * rng.NormFloat64()) }
	var pairs []Pair
	for i := range 6 {
		load := float64(i + 1)
		pairs = append(pairs, Pair{
			run(map[string]float64{"ms": 10 * load * noise(), "rate": 100 * noise(), "late": load * noise()}),
			run(map[string]float64{"ms": 5 * load * noise(), "rate": 50 * noise(), "late": load * noise()})})
	}
	pairs = append(pairs, Pair{nil, run(map[string]float64{"ms": 1e9, "rate": 1, "late": 1e9})}) // not counted
	for i, want := range []string{rundir.Better, rundir.Worse, rundir.NoneSeen} {
		if f := Compare(pairs)[i]; f.Result != want || f.Pairs != 6 || !f.Relative || !(*f.Low <= *f.Mean && *f.Mean <= *f.High) {
			t.Errorf("%+v, want %s", f, want)
		}
	}
	if f := Compare(pairs)[0]; *f.Mean > -0.45 || *f.Mean < -0.55 {
		t.Errorf("half is told as %v", *f.Mean)
	}
	for n := 1; n < rundir.IntervalRuns; n++ { // of few pairs the differences are told, and no more
		for i, f := range Compare(append(pairs[:n:n], Pair{})) {
			a, b := pairs[0].A[i].Value, pairs[0].B[i].Value
			if f.Result != rundir.FewPairs || f.Pairs != n || f.P != nil || f.Low != nil || f.High != nil || f.Mean != nil || f.A == nil || !f.Relative ||
				len(f.Differences) != n+1 || math.Abs(*f.Differences[0]-(b/a-1)) > 1e-9 || f.Differences[n] != nil {
				t.Errorf("of %d pairs: %+v", n, f)
			}
		}
	}
	amounts := Compare([]Pair{{run(map[string]float64{"ms": 4}), run(map[string]float64{"ms": 1})}, {run(map[string]float64{"ms": -1}), run(map[string]float64{"ms": 1})}})
	if f := amounts[0]; f.Relative || *f.Differences[0] != -3 || *f.Differences[1] != 2 {
		t.Errorf("with a value below 0 differences are amounts: %+v", f)
	}
	if f := amounts[1]; f.Result != rundir.NoData || f.Pairs != 0 {
		t.Errorf("of no pair: %+v", f)
	}
	if Compare(nil) != nil || Compare([]Pair{{}}) != nil {
		t.Error("of nothing there are figures")
	}
}

func TestADifferenceThatIsNeitherGoodNorBad(t *testing.T) {
	var pairs []Pair
	for range 4 {
		pairs = append(pairs, Pair{run(map[string]float64{"late": 1}), run(map[string]float64{"late": 2})})
	}
	if f := Compare(pairs)[2]; f.Result != rundir.Different {
		t.Errorf("%+v", f)
	}
}

func TestOrder(t *testing.T) {
	if got := fmt.Sprint(Order(4)); got != "[0 1 1 0 0 1 1 0]" {
		t.Error(got)
	}
}

func TestWorst(t *testing.T) {
	for _, c := range []struct {
		in   []rundir.Verdict
		want rundir.Verdict
	}{{nil, rundir.Passed}, {[]rundir.Verdict{rundir.Passed, rundir.Missed, rundir.Invalid}, rundir.Invalid},
		{[]rundir.Verdict{rundir.Interrupted, rundir.Broken}, rundir.Broken}} {
		if got := Worst(c.in...); got != c.want {
			t.Errorf("worst of %v is %s", c.in, got)
		}
	}
	for _, v := range []rundir.Verdict{rundir.Error, rundir.Aborted, rundir.Interrupted, rundir.Invalid, ""} {
		if Counted(v) {
			t.Errorf("%q counts", v)
		}
	}
}

package figure

import (
	"bytes"
	"fmt"
	"image/png"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"gonum.org/v1/plot"

	"imbench/model/capacity"
	"imbench/reports/rundir"
)

var began = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func ptr(v float64) *float64 { return &v }

// material is what the figures are drawn from.
type material struct {
	series      map[string]*rundir.Series
	counters    []rundir.CounterLine
	processes   []rundir.ProcessLine
	predictions []rundir.Prediction
	table       capacity.Table
	bytes       capacity.PushHintBytes
	points      []RatioPoint
	limit       float64
	tl          Timeline
}

func (m material) draw() []*Drawing {
	return []*Drawing{Histograms(m.series), Spectrum(m.series), OverTime(m.series, m.tl), Load(m.counters, m.limit, m.tl),
		PredictionErrors(m.predictions), Processes(m.processes, m.tl), Utilization(m.table), PushHint(m.bytes, m.points)}
}

// seriesOf has one interval a second, each with the same latencies in ms.
func seriesOf(tag string, seconds int, ms ...float64) *rundir.Series {
	s := &rundir.Series{Tag: tag, Total: rundir.NewHistogram()}
	h := rundir.NewHistogram()
	for _, v := range ms {
		_ = h.RecordValue(int64(v * 1e6)) // out of range = not recorded
		_ = s.Total.RecordValues(int64(v*1e6), int64(seconds))
	}
	metric := rundir.MetricOf(h)
	for i := range seconds {
		start := began.Add(time.Duration(30+i) * time.Second)
		s.Intervals = append(s.Intervals, rundir.Interval{Start: start, End: start.Add(time.Second), Metric: metric})
	}
	return s
}

func allSeries(seconds int, ms ...float64) map[string]*rundir.Series {
	all := map[string]*rundir.Series{}
	for _, tag := range Shown() {
		all[tag] = seriesOf(tag, seconds, ms...)
	}
	return all
}

func ordinary() material {
	in, err := capacity.Lookup("im-baseline")
	if err != nil {
		panic(err)
	}
	m := material{series: allSeries(60, 1.5, 2, 3, 3, 5, 9, 40), table: capacity.Predict(in), bytes: capacity.Documents08(), limit: 10,
		points: []RatioPoint{{"g-pull", 1, 1.133, false}, {"g-lazy", 0.2, 0.318, false}, {"this run", 0.5, 0.6, true}},
		tl: Timeline{Started: began, Window: rundir.Window{From: 30, To: 90},
			Phases: []rundir.Phase{{Name: "connect", From: 2, To: 10}, {Name: "warmup", From: 10, To: 30}, {Name: "measure", From: 30, To: 90},
				{Name: "settle", From: 90}}}}
	for i := range 100 {
		at := began.Add(time.Duration(i) * time.Second)
		m.counters = append(m.counters, rundir.CounterLine{At: at, T: float64(i), Seconds: 1, Offered: 1250, Done: 1249,
			Frames: rundir.ByDirection{Down: map[string]int64{"event": 8800, "sent": 1250, "acked": 2500, "synced": 250, "hint": 17}}, LateP99MS: 0.4})
		for pid, role := range []string{"loadgen", "gateway-1", "gateway-2", "postgres"} {
			m.processes = append(m.processes, rundir.ProcessLine{At: at, Role: role, PID: pid + 1, CPUSec: float64(i) * 0.3, RSSBytes: 80 << 20})
		}
	}
	for _, name := range []string{"frames.event", "frames.event_discarded", "effective_ack"} {
		m.predictions = append(m.predictions, rundir.Prediction{Name: name, Unit: "1/s", Predicted: 8800, Low: 8700, High: 8900,
			Planned: ptr(8810)}.WithMeasured(8812))
	}
	m.predictions = append(m.predictions, rundir.Prediction{Name: "frames.hint", Predicted: 16, Low: 15, High: 17, Planned: ptr(15)}.WithMeasured(466),
		rundir.Prediction{Name: "rows.events", Predicted: 1250, Low: 1240, High: 1260})
	return m
}

const hostile = "<script>alert(1)</script>\n\x00\u202eabc a name that never ends and goes on and on"

// materials are what drawing must survive.
func materials() map[string]material {
	huge := ordinary()
	huge.series = allSeries(2, 0.001, 600e3)
	for i := range huge.counters {
		huge.counters[i].Offered, huge.counters[i].Frames.Down["event"], huge.counters[i].LateP99MS = math.MaxInt64, math.MaxInt64, 1e300
	}
	for i := range huge.processes {
		huge.processes[i].RSSBytes, huge.processes[i].CPUSec = math.MaxInt64, float64(i)*1e14
	}
	huge.predictions = []rundir.Prediction{rundir.Prediction{Name: "a", Predicted: 1e-300, Low: -1e300, High: 1e300}.WithMeasured(1e300)}
	huge.table.Resources[0].Utilization, huge.table.Resources[1].Utilization = 1e6, math.Inf(1)
	huge.points = []RatioPoint{{"far", 1, 1e9, true}, {"nowhere", 7, 1, false}, {"not", 0.5, math.NaN(), true}}
	huge.limit = math.Inf(1)

	single := ordinary()
	single.series = map[string]*rundir.Series{rundir.Deliver: seriesOf(rundir.Deliver, 1, 12)}
	single.counters, single.processes, single.predictions = single.counters[:1], single.processes[:1], single.predictions[:1]

	zeros := ordinary()
	zeros.series = allSeries(3, 0)
	for i := range zeros.counters {
		zeros.counters[i] = rundir.CounterLine{At: began}
	}
	for i := range zeros.processes {
		zeros.processes[i] = rundir.ProcessLine{At: began, Role: "p"}
	}
	for i := range zeros.predictions {
		zeros.predictions[i] = rundir.Prediction{Name: "zero", Planned: ptr(0)}.WithMeasured(0)
	}
	zeros.table = capacity.Table{Resources: []capacity.Resource{{Name: "r", Budget: 1}}}
	zeros.bytes = capacity.PushHintBytes{}

	strange := ordinary()
	strange.tl.Phases = []rundir.Phase{{Name: hostile, From: 30, To: 90}, {Name: "back", From: 90, To: 30}, {Name: "", From: math.NaN(), To: 1}}
	for i := range 40 {
		strange.processes = append(strange.processes, rundir.ProcessLine{At: began.Add(time.Minute), Role: fmt.Sprint(i, hostile), PID: i})
	}
	strange.predictions = append(strange.predictions, rundir.Prediction{Name: hostile, Predicted: 1, Low: 2, High: 0}.WithMeasured(-5))
	strange.points = []RatioPoint{{hostile, 0.9, 1, true}}

	faults := ordinary()
	faults.tl.Faults = []Fault{{"kill-gateway 1, back after 5s", 10, 16, 21}, {"cut-devices 50 %", 12, 12, 14}, {"drop-network for 3s", 12.5, 15.5, 0},
		{hostile, 55, 1e300, math.NaN()}, {"before", -500, 0, 0}, {"after", 1e9, 2e9, 3e9}, {"nowhere", math.NaN(), 0, 0}}
	for i := range 20 {
		faults.tl.Faults = append(faults.tl.Faults, Fault{"stop-gateway 2", 30 + float64(i)/10, 31, 32})
	}

	return map[string]material{"ordinary": ordinary(), "faults": faults, "empty": {}, "single": single, "huge": huge, "zeros": zeros, "strange": strange}
}

func TestEveryTextIsVisible(t *testing.T) {
	for name, m := range materials() {
		for _, d := range m.draw() {
			for _, problem := range check(d) {
				t.Errorf("%s, %s: %s", name, d.Name, problem)
			}
		}
	}
}

func TestNoDataIsSaid(t *testing.T) {
	m := ordinary()
	delete(m.series, rundir.Sync)
	for _, c := range []struct {
		d    *Drawing
		want int
	}{
		{Histograms(nil), 5}, {OverTime(nil, m.tl), 5}, {Spectrum(nil), 1}, {Load(nil, 0, m.tl), 3}, {Processes(nil, m.tl), 2},
		{PredictionErrors(nil), 1}, {Utilization(capacity.Table{}), 1}, {Histograms(m.series), 1}, {OverTime(m.series, m.tl), 1},
		{Load(m.counters, 0, m.tl), 0},
	} {
		if got := strings.Count(strings.Join(texts(c.d), "\n"), "no data"); got != c.want {
			t.Errorf("%s says \"no data\" %d times, want %d", c.d.Name, got, c.want)
		}
	}
}

// TestFaultsAreMarked: every panel over time has the numbers of the faults that its axis shows, and the legend says what they are.
func TestFaultsAreMarked(t *testing.T) {
	m := ordinary()
	m.tl.Faults = []Fault{{"kill-gateway 1, back after 5s", 10, 16, 21}, {"delay-network 50 % by 40ms ± 20ms for 1.5s", 40, 41.5, 42}, {"before the axis", -500, 1, 2}}
	for _, d := range []*Drawing{OverTime(m.series, m.tl), Load(m.counters, 0, m.tl), Processes(m.processes, m.tl)} {
		all := texts(d)
		for text, want := range map[string]int{"1": len(d.panels), "2": len(d.panels), "1: kill-gateway 1, back after 5s": 1,
			"2: delay-network 50 % by 40ms ± 20ms for 1.5s": 1, "until healed": 1} {
			n := 0
			for _, s := range all {
				if s == text {
					n++
				}
			}
			if n < want || want == 1 && n != 1 {
				t.Errorf("%s says %q %d times, want %d", d.Name, text, n, want)
			}
		}
	}
}

func TestUnitsAreOnTheAxes(t *testing.T) {
	want := map[string][]string{
		"latency-histograms": {"latency, ms", "% of samples"}, "latency-spectrum": {"latency, ms"}, "latency-over-time": {"ms", timeLabel},
		"load-over-time": {"1/s", "ms", timeLabel}, "prediction-errors": {"signed error, %"}, "processes-over-time": {"cores", "MiB", timeLabel},
		"utilization": {"used, % of the budget"}, "push-hint-bytes": {"bytes, hint ÷ push"},
	}
	for _, d := range ordinary().draw() {
		got := texts(d)
		for _, label := range want[d.Name] {
			if !slices.Contains(got, label) {
				t.Errorf("%s has no axis %q", d.Name, label)
			}
		}
		delete(want, d.Name)
		if !slices.Contains(Names(), d.Name) {
			t.Errorf("Names does not know %s", d.Name)
		}
	}
	if len(want) > 0 || len(Names()) != 8 {
		t.Errorf("not drawn: %v; names %v", want, Names())
	}
}

func TestPNG(t *testing.T) {
	d := Utilization(ordinary().table)
	b, err := d.PNG()
	if err != nil {
		t.Fatal(err)
	}
	c, err := png.DecodeConfig(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	if w, h := d.Size(); c.Width != 612*DPI/72 || w != 816 || math.Abs(float64(c.Height)/float64(h)-DPI/96.0) > 0.01 {
		t.Errorf("image %d × %d for %d × %d CSS pixels", c.Width, c.Height, w, h)
	}
	again, err := d.PNG()
	if err != nil || !bytes.Equal(b, again) {
		t.Error("the same drawing gave other bytes")
	}
}

func TestPanicBecomesAnError(t *testing.T) {
	d := Utilization(ordinary().table)
	setLog(&d.panels[0].X, 1, 10)
	d.panels[0].X.Min = -1 // a logarithmic scale cannot
	if b, err := d.PNG(); err == nil || b != nil || !strings.Contains(err.Error(), "utilization") {
		t.Errorf("got %d bytes and %v", len(b), err)
	}
}

func TestOffTheAxisIsWritten(t *testing.T) {
	got := strings.Join(texts(PredictionErrors(ordinary().predictions)), "\n")
	if !strings.Contains(got, "+2\u00a0812 % (off the axis)") {
		t.Errorf("an error of +2 812.5 %% is not written:\n%s", got)
	}
}

// The check of the texts must itself see what is wrong.
func TestCheckSees(t *testing.T) {
	p := newPanel("", "x", "y")
	p.Add(caption{1, 0.5, "this leaves the figure", textStyle(9, black, 0, 0)}, caption{0.1, 0.5, "\U0001F600", textStyle(9, black, 0, 0)})
	setLinear(&p.X, 0, 1)
	setLinear(&p.Y, 0, 1)
	problems := strings.Join(check(&Drawing{height: 100, panels: []*plot.Plot{p}}), "\n")
	if !strings.Contains(problems, "is cut off") || !strings.Contains(problems, "no glyph") {
		t.Errorf("check found only: %s", problems)
	}
}

package rundir

import (
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// hgrm is a percentile file, read by the rules of the public format.
type hgrm struct {
	rows    [][4]float64 // value, percentile, count, 1/(1−percentile); the last of these is +Inf at the end
	trailer map[string]float64
}

var trailerField = regexp.MustCompile(`(Mean|StdDeviation|Max|Total count|Buckets|SubBuckets) += +([0-9.]+)`)

// parseHgrm reads as plotFiles.html does: rows are four columns, lines with # are the trailer, the head names the columns.
func parseHgrm(t *testing.T, b []byte) hgrm {
	t.Helper()
	lines := strings.Split(string(b), "\n")
	if got := strings.Join(strings.Fields(lines[0]), " "); got != "Value Percentile TotalCount 1/(1-Percentile)" || lines[1] != "" {
		t.Fatalf("head %q, then %q", lines[0], lines[1])
	}
	if lines[len(lines)-1] != "" {
		t.Fatal("the last line does not end")
	}
	h := hgrm{trailer: map[string]float64{}}
	for _, line := range lines[2 : len(lines)-1] {
		if strings.HasPrefix(line, "#[") && strings.HasSuffix(line, "]") {
			for _, m := range trailerField.FindAllStringSubmatch(line, -1) {
				v, err := strconv.ParseFloat(m[2], 64)
				must(t, err)
				h.trailer[m[1]] = v
			}
			continue
		}
		f := strings.Fields(line)
		if len(f) != 4 || len(h.trailer) > 0 {
			t.Fatalf("neither a row nor a trailer: %q", line)
		}
		var row [4]float64
		for i := range f {
			v, err := strconv.ParseFloat(f[i], 64)
			must(t, err)
			row[i] = v
		}
		h.rows = append(h.rows, row)
	}
	return h
}

// Whatever was recorded, a percentile file keeps the public format's rules, and says of it what summary.json does.
func TestPercentileText(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		h := histogram(rapid.SliceOfN(rapid.Int64Range(0, HighestNS), 1, 300).Draw(rt, "ns")...)
		b, err := percentileText(h)
		must(t, err)
		checkHgrm(rt, parseHgrm(t, b), MetricOf(h))
	})
}

// A finished run has a percentile file for each tag with samples, of all its intervals.
func TestPercentileFiles(t *testing.T) {
	w := newRun(t)
	end := began.Add(time.Second)
	must(t, w.Latency(Deliver, began, end, histogram(1e6, 2e6)), w.Latency(Ack, began, end, histogram()),
		w.Latency(Deliver, end, end.Add(time.Second), histogram(250e6)), w.Finish(testSummary(), nil))
	files, err := filepath.Glob(filepath.Join(w.Dir(), "*.hgrm"))
	if err != nil || len(files) != 1 || filepath.Base(files[0]) != "deliver.hgrm" {
		t.Fatalf("%v, %v: want one file for the one tag with samples", files, err)
	}
	b, err := os.ReadFile(files[0])
	must(t, err)
	if h := parseHgrm(t, b); h.trailer["Total count"] != 3 || math.Abs(h.trailer["Max"]-250) > 0.25 {
		t.Errorf("%+v", h)
	}
}

func checkHgrm(t *rapid.T, h hgrm, m Metric) {
	for i, row := range h.rows {
		if i > 0 && (row[0] < h.rows[i-1][0] || row[1] < h.rows[i-1][1] || row[2] < h.rows[i-1][2] || row[3] < h.rows[i-1][3]) {
			t.Fatalf("row %d %v after %v", i, row, h.rows[i-1])
		}
		// Six digits of the percentile and two of its inverse are kept.
		if left := 1 - row[1]; math.Abs(left-1/row[3]) > 1e-6+0.005/(row[3]*row[3]) {
			t.Fatalf("1/(1−%v) is %v", row[1], row[3])
		}
	}
	last := h.rows[len(h.rows)-1]
	if last[1] != 1 || !math.IsInf(last[3], 1) || last[2] != float64(m.Count) {
		t.Fatalf("the last row is %v of %d", last, m.Count)
	}
	near := func(a, b float64) bool { return math.Abs(a-b) <= 0.0006 }
	if tr := h.trailer; len(tr) != 6 || tr["Total count"] != float64(m.Count) || !near(tr["Max"], m.Max) || !near(last[0], m.Max) || !near(tr["Mean"], m.Mean) {
		t.Fatalf("trailer %v, the metric is %+v", tr, m)
	}
}

// Figures of few samples: in order, and within the least and the greatest, as far as the histogram tells values apart.
func TestFewSamples(t *testing.T) {
	for _, n := range []int{1, 2, 16} {
		rapid.Check(t, func(t *rapid.T) {
			samples := rapid.SliceOfN(rapid.Int64Range(LowestNS, HighestNS), n, n).Draw(t, "ns")
			h := histogram(samples...)
			m := MetricOf(h)
			least, greatest := ms(h.Min()), ms(h.Max())
			if !(least <= m.P50 && m.P50 <= m.P95 && m.P95 <= m.P99 && m.P99 <= m.P999 && m.P999 <= m.Max && m.Max == greatest) ||
				m.Mean < least || m.Mean > greatest || m.Count != int64(n) {
				t.Fatalf("%+v, of values from %v to %v", m, least, greatest)
			}
			if n == 1 && (m.P50 != m.Max || math.Abs(m.P50/ms(samples[0])-1) > 0.001) && samples[0] > 1e6 {
				t.Fatalf("one sample of %d ns: %+v", samples[0], m)
			}
		})
	}
}

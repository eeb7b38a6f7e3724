package rundir

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// latency.hlog keeps the rules of the public format, and the public reader gives back what went in.
func TestPublicHistogramFormat(t *testing.T) {
	w := newRun(t)
	from, to := began.Add(250*time.Millisecond), began.Add(1250*time.Millisecond)
	in := histogram(1_000_000, 2_000_000, 250_000_000)
	must(t, w.Latency(SendIntended, from, to, in), w.Close())
	b, err := os.ReadFile(filepath.Join(w.Dir(), LatencyFile))
	must(t, err)
	text := strings.Split(strings.TrimSpace(string(b)), "\n")
	rules := []string{
		`^#\[imbench .*\]$`,
		`^#\[Histogram log format version 1\.3\]$`,
		`^#\[StartTime: \d+ \(seconds since epoch\), \S+\]$`,
		`^"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"$`,
		`^Tag=send\.intended,\d+\.\d+,1\.000000,\d+\.\d+,HISTFAAA[A-Za-z0-9+/=]+$`,
	}
	if len(text) != len(rules) {
		t.Fatalf("%d lines:\n%s", len(text), b)
	}
	for i, rule := range rules {
		if !regexp.MustCompile(rule).MatchString(text[i]) {
			t.Errorf("line %d is %q, the rule is %s", i+1, text[i], rule)
		}
	}
	fields := strings.Split(text[4], ",")
	if want := fmt.Sprintf("%.6f", float64(from.UnixMilli())/1000); fields[1] != want {
		t.Errorf("start %s, want %s", fields[1], want)
	}
	if !strings.HasPrefix(fields[3], "250.") && !strings.HasPrefix(fields[3], "249.") {
		t.Errorf("the longest was 250 ms, the file says %s", fields[3])
	}
	raw, err := base64.StdEncoding.DecodeString(fields[4])
	if err != nil || !bytes.Equal(raw[:4], []byte{0x1c, 0x84, 0x93, 0x14}) { // the cookie of a compressed V2 histogram
		t.Errorf("%x %v", raw[:4], err)
	}
	out, err := hdrhistogram.NewHistogramLogReader(bytes.NewReader(b)).NextIntervalHistogram()
	must(t, err)
	if out.Tag() != SendIntended || out.StartTimeMs() != from.UnixMilli() || out.EndTimeMs() != to.UnixMilli() {
		t.Errorf("%s %d %d", out.Tag(), out.StartTimeMs(), out.EndTimeMs())
	}
	if out.TotalCount() != 3 || out.ValueAtPercentile(50) != in.ValueAtPercentile(50) || out.Max() != in.Max() {
		t.Errorf("%d %d %d", out.TotalCount(), out.ValueAtPercentile(50), out.Max())
	}
}

// The intervals of a tag sum up to its total, and no figure changes on the way through the file.
func TestIntervalsSumUp(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 4 {
		var log bytes.Buffer
		must(t, histogramHeader(&log, began))
		all := NewHistogram()
		for i := range 1 + rng.IntN(3) {
			h := NewHistogram()
			for range 1 + rng.IntN(200) {
				must(t, h.RecordValue(int64(math.Exp(rng.Float64()*math.Log(float64(HighestNS))))))
			}
			all.Merge(h)
			start := began.Add(time.Duration(i) * time.Second)
			must(t, histogramLine(&log, Deliver, start, start.Add(time.Second), h))
		}
		got, err := collect(log.Bytes())
		must(t, err)
		if MetricOf(got[Deliver].Total) != MetricOf(all) {
			t.Fatalf("%+v\n%+v", MetricOf(got[Deliver].Total), MetricOf(all))
		}
		var n int64
		for _, i := range got[Deliver].Intervals {
			n += i.Count
		}
		if n != all.TotalCount() {
			t.Fatalf("%d in the intervals, %d in all", n, all.TotalCount())
		}
	}
}

func TestMetricOfNothing(t *testing.T) {
	if MetricOf(nil) != (Metric{}) || MetricOf(NewHistogram()) != (Metric{}) {
		t.Error("figures out of nothing")
	}
}

func FuzzHistograms(f *testing.F) {
	var log bytes.Buffer
	if err := histogramHeader(&log, began); err != nil {
		f.Fatal(err)
	}
	if err := histogramLine(&log, Ack, began, began.Add(time.Second), histogram(5e6)); err != nil {
		f.Fatal(err)
	}
	f.Add(log.Bytes())
	f.Add([]byte("Tag=x\n"))
	f.Add([]byte("0,1,2,HISTFAAA\n"))
	f.Fuzz(func(_ *testing.T, b []byte) { _, _ = collect(b) })
}

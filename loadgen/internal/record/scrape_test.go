package record

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"imbench/loadgen/internal/sample"
	"imbench/model/capacity"
)

func TestParseMetrics(t *testing.T) {
	page := `# HELP im_frames_total frames
# TYPE im_frames_total counter
im_frames_total{type="event",dir="down"} 12345
im_frames_total{type="a \"b} c\\",dir="up"} 7 1700000000000
im_queue_depth 3.5e2
im_batch_seconds_bucket{le="0.1"} 9
im_batch_seconds_sum 0.25
im_fanout_seconds_bucket{le="0.02"} 8
process_cpu_seconds_total 1.5
go_goroutines 12
go_memstats_alloc_bytes 4
other_total 1
im_nan NaN
im_inf +Inf
im_broken
im_broken{a="b" 3

`
	want := map[string]float64{
		`im_frames_total{type="event",dir="down"}`:    12345,
		`im_frames_total{type="a \"b} c\\",dir="up"}`: 7,
		"im_queue_depth":                      350,
		"im_batch_seconds_sum":                0.25,
		`im_fanout_seconds_bucket{le="0.02"}`: 8,
		"process_cpu_seconds_total":           1.5,
		"go_goroutines":                       12,
	}
	if got := parseMetrics([]byte(page)); !maps.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	var long strings.Builder
	for i := range maxValues + 10 {
		fmt.Fprintf(&long, "im_x%d 1\n", i)
	}
	if n := len(parseMetrics([]byte(long.String()))); n != maxValues {
		t.Errorf("%d values are kept", n)
	}
}

func FuzzParseMetrics(f *testing.F) {
	f.Add([]byte(`im_a{b="c"} 1`))
	f.Add([]byte("im_a{\\"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for name, v := range parseMetrics(b) {
			if !wanted(name) || v != v {
				t.Errorf("%q = %v", name, v)
			}
		}
	})
}

// A source that fails is a line, and keeps nothing else from being read.
func TestScrapeWritesWhatItGetsAndWhyNot(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/metrics", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "im_x 5") })
	mux.HandleFunc("/db", func(w http.ResponseWriter, q *http.Request) {
		if q.Header.Get("Authorization") != "Bearer secret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		fmt.Fprint(w, `{"commits": 9}`)
	})
	mux.HandleFunc("/html", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") })
	mux.HandleFunc("/long", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, strings.Repeat("x", maxPage+1)) })
	srv := httptest.NewServer(mux)
	defer srv.Close()
	r, dir := newRecorder(t, Config{Scrapes: []Scrape{
		{URL: srv.URL + "/metrics"}, {URL: srv.URL + "/db", JSON: true, Token: "secret"}, {URL: srv.URL + "/db", JSON: true},
		{URL: srv.URL + "/html?token=x", JSON: true}, {URL: srv.URL + "/long"}, {URL: "http://127.0.0.1:1/x"}, {URL: ":"}}})
	finish(t, r)
	lines, _, err := dir.Server()
	if err != nil || len(lines) != 7 {
		t.Fatalf("%+v %v", lines, err)
	}
	if lines[0].Values["im_x"] != 5 || string(lines[1].JSON) != `{"commits":9}` {
		t.Errorf("%+v", lines[:2])
	}
	for i, part := range []string{"401", "not JSON", "longer than", "connection refused", "not a URL"} {
		if l := lines[i+2]; !strings.Contains(l.Error, part) || l.Values != nil || l.JSON != nil || strings.Contains(l.Source, "token") {
			t.Errorf("%+v, want %q", l, part)
		}
	}
}

// When the run ends, each source is read a last time: the final counts belong to the run.
func TestScrapesALastTime(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var calls atomic.Int64 // the first call is given up while it is being answered, so that two may run at once
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := calls.Add(1)
		if n == 1 {
			cancel()
		}
		fmt.Fprintf(w, "im_events_committed_total %d\n", n)
	}))
	defer srv.Close()
	r, dir := newRecorder(t, Config{Scrapes: []Scrape{{URL: srv.URL}}})
	r.scrape.run(ctx)
	lines, _, err := dir.Server()
	if err != nil || len(lines) == 0 || lines[len(lines)-1].Values["im_events_committed_total"] != 2 {
		t.Errorf("%+v %v", lines, err)
	}
}

// Rows are a ratio over the whole load, from the last reading before it on, applied to the window's own traffic.
func TestRowsAreMeasuredAsARatio(t *testing.T) {
	r, _ := newRecorder(t, Config{})
	s := &r.scrape
	reading := func(source string, events, cursors float64, sent, acked int64) {
		s.keepRows(source, map[string]float64{eventRowsMetric: events, cursorRowsMetric: cursors}, rowTraffic{sent, acked})
	}
	reading("a", 1000, 5000, 0, 0) // left from an earlier run
	if _, _, ok := s.ratios(); ok {
		t.Error("a ratio out of one reading")
	}
	reading("a", 2000, 9000, 0, 0)
	reading("b", 0, 0, 0, 0)
	reading("a", 2500, 9700, 500, 1000)
	s.keepRows("db", map[string]float64{"other": 9}, rowTraffic{9, 9})
	reading("a", 3000, 10000, 2000, 2000)
	reading("b", 1000, 600, 2000, 2000)
	for range 20 {
		r.Send(sample.Send{Intended: in, Start: in, Done: in})
		r.Frame(sample.Frame{Dir: sample.Up, Type: sample.FAck, Msg: in})
	}
	m := finish(t, r).Measured
	if m[capacity.EventRows] != 2 || m[capacity.CursorRows] != 0.8*2 {
		t.Errorf("rows of events %v, cursor writes %v", m[capacity.EventRows], m[capacity.CursorRows])
	}
	reading("b", 10, 6, 3000, 3000) // started again
	if _, _, ok := s.ratios(); ok {
		t.Error("a ratio over a restart")
	}
}

// The messages that the gateways counted, or why they are not known.
func TestCommitted(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(read func(source string, events float64, sent int64), silent func(string))
		n    int64
		why  string
	}{
		{"nothing read", func(func(string, float64, int64), func(string)) {}, 0, "no gateway's"},
		{"two gateways", func(read func(string, float64, int64), _ func(string)) {
			read("http://a", 1000, 0)
			read("http://b", 5, 0)
			read("http://a", 1040, 30)
			read("http://a", 1100, 150)
			read("http://b", 55, 150)
		}, 150, ""},
		{"one is silent and comes back", func(read func(string, float64, int64), silent func(string)) {
			read("http://a", 0, 0)
			silent("http://a")
			read("http://a", 10, 10)
		}, 10, ""},
		{"one is silent at the end", func(read func(string, float64, int64), silent func(string)) {
			read("http://a", 0, 0)
			read("http://a", 10, 10)
			silent("http://a")
		}, 0, "did not answer at the end: http://a"},
		{"one was started anew", func(read func(string, float64, int64), _ func(string)) {
			read("http://a", 7, 0)
			read("http://a", 3, 10)
		}, 0, "started anew"},
		{"the load had begun", func(read func(string, float64, int64), _ func(string)) { read("http://a", 3, 10) }, 0, "had begun"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, _ := newRecorder(t, Config{})
			s := &r.scrape
			c.do(func(source string, events float64, sent int64) {
				s.keepRows(source, map[string]float64{eventRowsMetric: events, cursorRowsMetric: 0}, rowTraffic{sent: sent})
			}, s.missRows)
			n, why := s.committed()
			if n != c.n || (why == "") != (c.why == "") || !strings.Contains(why, c.why) {
				t.Errorf("%d, %q; want %d, %q", n, why, c.n, c.why)
			}
		})
	}
}

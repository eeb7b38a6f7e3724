package dashboard

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

const (
	scrape     = 15 * time.Second
	evaluation = 30 * time.Second
)

// world gives each series, written as in the text format, a value over the seconds since the beginning.
type world map[string]func(seconds float64) float64

// firing evaluates the rules with Prometheus' own engine as Prometheus does, and names those that fired.
func firing(t *testing.T, w world, rules []rule, length time.Duration) []string {
	t.Helper()
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1_000_000, Timeout: time.Minute, LookbackDelta: 5 * time.Minute})
	defer engine.Close()
	store := newMemory(t, w, length)
	var fired []string
	for _, r := range rules {
		wait, err := time.ParseDuration(r.For)
		if err != nil {
			t.Fatal(err)
		}
		q, err := engine.NewRangeQuery(t.Context(), store, nil, r.Expr, time.Unix(0, 0), time.Unix(0, 0).Add(length), evaluation)
		if err != nil {
			t.Fatalf("%s: %v", r.Alert, err)
		}
		matrix, err := q.Exec(t.Context()).Matrix()
		if err != nil {
			t.Fatalf("%s: %v", r.Alert, err)
		}
		for _, series := range matrix {
			if longest(series.Floats) >= wait && !slices.Contains(fired, r.Alert) {
				fired = append(fired, r.Alert)
			}
		}
		q.Close()
	}
	slices.Sort(fired)
	return fired
}

// longest is for how long a series was there at each evaluation.
func longest(points []promql.FPoint) (d time.Duration) {
	began := int64(0)
	for i, p := range points {
		if i == 0 || p.T-points[i-1].T > evaluation.Milliseconds() {
			began = p.T
		}
		d = max(d, time.Duration(p.T-began)*time.Millisecond)
	}
	return d
}

// memory is a storage of what a world's scrapes would have seen.
type memory []storage.Series

func newMemory(t *testing.T, w world, length time.Duration) memory {
	t.Helper()
	var m memory
	for name, f := range w {
		metric, err := parser.ParseMetric(name)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var samples []chunks.Sample
		for at := time.Duration(0); at <= length; at += scrape {
			samples = append(samples, sample{at.Milliseconds(), f(at.Seconds())})
		}
		m = append(m, storage.NewListSeries(metric, samples))
	}
	return m
}

// Querier implements storage.Queryable.
func (m memory) Querier(int64, int64) (storage.Querier, error) { return querier{m}, nil }

type querier struct{ m memory }

func (querier) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

func (querier) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

func (querier) Close() error { return nil }

func (q querier) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	set := &seriesSet{}
	for _, s := range q.m {
		if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(s.Labels().Get(m.Name)) }) {
			set.list = append(set.list, s)
		}
	}
	return set
}

// seriesSet is before its first series at first.
type seriesSet struct {
	list []storage.Series
	n    int
}

func (s *seriesSet) Next() bool                        { s.n++; return s.n <= len(s.list) }
func (s *seriesSet) At() storage.Series                { return s.list[s.n-1] }
func (s *seriesSet) Err() error                        { return nil }
func (s *seriesSet) Warnings() annotations.Annotations { return nil }

// sample is a value at a time in milliseconds.
type sample struct {
	t int64
	f float64
}

func (s sample) T() int64                      { return s.t }
func (s sample) F() float64                    { return s.f }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }

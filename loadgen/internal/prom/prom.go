// Package prom asks a Prometheus server, after a run, what it saw of the system under load: in the measured window, and in
// quiet spans before and after the run, which say what was there without it.
//
// A Mapping does not change; Fetch may be called by several goroutines.
package prom

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"regexp"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/prometheus/client_golang/api"
	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
)

const (
	maxFile    = 64 << 10 // bytes of a mapping
	maxQueries = 100
	askLimit   = 20 * time.Second // for one query
	maxStep    = time.Minute
	leastStep  = time.Second
	mostPoints = 10_000 // of one query, which is below the server's own limit of 11 000
)

// Query is one figure: an expression that gives a single series.
type Query struct {
	Name string `yaml:"name"`
	Unit string `yaml:"unit"`
	Expr string `yaml:"query"`
}

// Mapping is what is asked.
type Mapping struct {
	Step    time.Duration // between two points
	Queries []Query
}

var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`)

// Load reads a mapping. The error names the file, and what would be right.
func Load(file string) (Mapping, error) {
	f, err := os.Open(file)
	if err != nil {
		return Mapping{}, fmt.Errorf("-prometheus-queries: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return Mapping{}, fmt.Errorf("-prometheus-queries: %w", err)
	case len(text) > maxFile:
		return Mapping{}, fmt.Errorf("-prometheus-queries %s: larger than %d bytes", file, maxFile)
	}
	m, err := parse(text)
	if err != nil {
		return m, fmt.Errorf("-prometheus-queries %s: %w", file, err)
	}
	return m, nil
}

func parse(text []byte) (Mapping, error) {
	var doc struct {
		Step    string  `yaml:"step"`
		Queries []Query `yaml:"queries"`
	}
	if err := yaml.UnmarshalWithOptions(text, &doc, yaml.Strict()); err != nil {
		return Mapping{}, err
	}
	m := Mapping{Step: 5 * time.Second, Queries: doc.Queries}
	if doc.Step != "" {
		step, err := time.ParseDuration(doc.Step)
		if err != nil || step < leastStep || step > maxStep {
			return m, fmt.Errorf("step %q: want a duration from %v to %v", doc.Step, leastStep, maxStep)
		}
		m.Step = step
	}
	if n := len(m.Queries); n == 0 || n > maxQueries {
		return m, fmt.Errorf("want 1 to %d queries, each with name and query, and there are %d", maxQueries, n)
	}
	seen := map[string]bool{}
	for i, q := range m.Queries {
		switch {
		case !nameForm.MatchString(q.Name):
			return m, fmt.Errorf("queries[%d]: name %.80q: want 1 to 64 letters, digits, dots, dashes and underscores", i, q.Name)
		case seen[q.Name]:
			return m, fmt.Errorf("queries[%d]: %s stands twice", i, q.Name)
		case q.Expr == "":
			return m, fmt.Errorf("queries[%d]: %s has no query", i, q.Name)
		}
		seen[q.Name] = true
	}
	return m, nil
}

// Span is a stretch of time, [From, To].
type Span struct{ From, To time.Time }

// Spans are where the means are taken.
type Spans struct{ Before, Window, After Span }

// Point is a value at a moment.
type Point struct {
	At    time.Time
	Value float64
}

// Figure is what became of a query. Means that are not known are nil.
type Figure struct {
	Query
	Points                []Point // from the beginning of Before to the end of After
	Before, Window, After *float64
	Err                   error
}

// Background is the mean of what was before and after, as far as it is known; nil if neither is.
func (f Figure) Background() *float64 {
	switch {
	case f.Before == nil:
		return f.After
	case f.After == nil:
		return f.Before
	}
	b := (*f.Before + *f.After) / 2
	return &b
}

// Fetch asks for every query of the mapping. A query that fails is told in its figure, an address that is none in the error.
func (m Mapping) Fetch(ctx context.Context, address string, via http.RoundTripper, at Spans) ([]Figure, error) {
	client, err := api.NewClient(api.Config{Address: address, RoundTripper: via})
	if err != nil {
		return nil, fmt.Errorf("-prometheus %s: %w", address, err)
	}
	server := v1.NewAPI(client)
	var all []Figure
	for _, q := range m.Queries {
		f := Figure{Query: q}
		if f.Points, f.Err = ask(ctx, server, q.Expr, at.Before.From, at.After.To, m.Step); f.Err == nil {
			f.Before, f.Window, f.After = mean(f.Points, at.Before), mean(f.Points, at.Window), mean(f.Points, at.After)
		}
		all = append(all, f)
	}
	return all, nil
}

func ask(ctx context.Context, server v1.API, expr string, from, to time.Time, step time.Duration) ([]Point, error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	value, _, _, err := server.QueryRange(ctx, expr, v1.Range{Start: from, End: to, Step: thinned(step, to.Sub(from))})
	if err != nil {
		return nil, err
	}
	matrix, ok := value.(model.Matrix)
	switch {
	case !ok:
		return nil, fmt.Errorf("the answer is a %s, and no range", value.Type())
	case len(matrix) == 0:
		return nil, errors.New("no data")
	case len(matrix) > 1:
		return nil, fmt.Errorf("it gives %d series: sum them, or choose one", len(matrix))
	}
	var points []Point
	for _, v := range matrix[0].Values {
		if x := float64(v.Value); !math.IsNaN(x) && !math.IsInf(x, 0) {
			points = append(points, Point{v.Timestamp.Time(), x})
		}
	}
	return points, nil
}

// thinned is step, or as many whole seconds as a time so long needs to have no more than mostPoints.
func thinned(step, long time.Duration) time.Duration {
	return max(step, (long/mostPoints + time.Second - 1).Truncate(time.Second))
}

// mean is that of the points in a span; nil if there are none.
func mean(points []Point, in Span) *float64 {
	sum, n := 0.0, 0
	for _, p := range points {
		if !p.At.Before(in.From) && !p.At.After(in.To) {
			sum, n = sum+p.Value, n+1
		}
	}
	if n == 0 {
		return nil
	}
	sum /= float64(n)
	return &sum
}

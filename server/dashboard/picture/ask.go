package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"gonum.org/v1/plot/plotter"
)

// asker asks a Prometheus for a stretch of time.
type asker struct {
	url      string
	from, to time.Time
	rate     string
}

// line is one series of a panel: x in seconds since the beginning of the stretch.
type line struct {
	name   string
	points plotter.XYs
}

const (
	points    = 120 // of a line
	maxAnswer = 16 << 20
	maxLines  = 40 // of a query
)

// lines asks one query; legend names each line as Grafana would. The lines come in the order of their names.
func (a asker) lines(ctx context.Context, expr, legend string) ([]line, error) {
	q := url.Values{"query": {expr}, "start": {stamp(a.from)}, "end": {stamp(a.to)},
		"step": {strconv.FormatFloat(max(1, a.to.Sub(a.from).Seconds()/points), 'f', 3, 64)}}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(a.url, "/")+"/api/v1/query_range?"+q.Encode(), nil)
	if err != nil {
		return nil, fmt.Errorf("-prometheus %s: %w", a.url, err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, err
	}
	var answer struct {
		Status, Error string
		Data          struct {
			Result []struct {
				Metric map[string]string
				Values [][2]any
			}
		}
	}
	if err := json.Unmarshal(body, &answer); err != nil || answer.Status != "success" {
		return nil, fmt.Errorf("%s: status %d: %s %v", a.url, resp.StatusCode, answer.Error, err)
	}
	var out []line
	for _, s := range answer.Data.Result {
		l := line{name: named(legend, s.Metric)}
		for _, v := range s.Values {
			at, ok := v[0].(float64)
			text, isText := v[1].(string)
			y, err := strconv.ParseFloat(text, 64)
			if ok && isText && err == nil && !math.IsNaN(y) && !math.IsInf(y, 0) {
				l.points = append(l.points, plotter.XY{X: at - float64(a.from.UnixMilli())/1000, Y: y})
			}
		}
		if len(l.points) > 0 && len(out) < maxLines {
			out = append(out, l)
		}
	}
	slices.SortFunc(out, func(a, b line) int { return strings.Compare(a.name, b.name) })
	return out, nil
}

func stamp(t time.Time) string { return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', 3, 64) }

var label = regexp.MustCompile(`{{ *(\w+) *}}`)

// named puts a series' labels in its legend.
func named(legend string, metric map[string]string) string {
	return label.ReplaceAllStringFunc(legend, func(s string) string { return metric[label.FindStringSubmatch(s)[1]] })
}

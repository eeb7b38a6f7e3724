package app

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"imbench/loadgen/internal/prom"
	"imbench/loadgen/internal/scenario"
	"imbench/reports/rundir"
)

// answer is a Prometheus server in memory: a figure that is a function of the time.
type answer func(at time.Time) float64

func (a answer) RoundTrip(r *http.Request) (*http.Response, error) {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	form := map[string]float64{}
	for _, pair := range strings.Split(string(text), "&") {
		k, v, _ := strings.Cut(pair, "=")
		form[k], _ = strconv.ParseFloat(v, 64)
	}
	var values []string
	for at := form["start"]; at <= form["end"]; at += form["step"] {
		values = append(values, fmt.Sprintf(`[%f,"%g"]`, at, a(time.Unix(0, int64(at*1e9)))))
	}
	body := `{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[` + strings.Join(values, ",") + `]}]}}`
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body))}, nil
}

// The background is that of the quiet time at both ends, and is taken off what the window shows.
func TestPrometheusAfterARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started := time.Now()
		dir := filepath.Join(t.TempDir(), "run")
		out, err := rundir.Create(dir, rundir.Manifest{Started: started}, []byte("name: x\n"))
		if err != nil {
			t.Fatal(err)
		}
		sc, err := scenario.Load("smoke", "phases.measure=30s")
		if err != nil {
			t.Fatal(err)
		}
		r := &runner{program: Program{Stderr: io.Discard}, scenario: sc, out: out, phases: []rundir.Phase{{Name: "measure", From: 10, To: 40}, {Name: "close", From: 50}},
			env: &environment{via: answer(func(at time.Time) float64 {
				switch s := at.Sub(started).Seconds(); {
				case s <= 0:
					return 2
				case s < 45:
					return 9
				}
				return 4
			})}}
		r.options.staging.prom = promOptions{url: "http://prometheus", quiet: 20 * time.Second,
			mapping: prom.Mapping{Step: 5 * time.Second, Queries: []prom.Query{{Name: "db.cpu", Unit: "cores", Expr: "x"}}}}
		time.Sleep(51 * time.Second) // virtual, as all of the clock in here
		var s rundir.Summary
		r.askPrometheus(t.Context(), &s)
		if took := time.Since(started); took != 71*time.Second {
			t.Errorf("asked %v after the start, want the quiet time to be over", took)
		}
		if len(s.Server) != 1 || len(s.Notes) > 0 {
			t.Fatalf("%+v, notes %q", s.Server, s.Notes)
		}
		if f := s.Server[0]; *f.Before != 2 || *f.Mean != 9 || *f.After != 4 || *f.Net != 6 {
			t.Errorf("before %v, window %v, after %v, net %v", *f.Before, *f.Mean, *f.After, *f.Net)
		}
		var text strings.Builder
		if err := rundir.RenderSummary(&text, s, 100); err != nil || !strings.Contains(text.String(), "| db.cpu cores |") {
			t.Errorf("%v\n%s", err, &text)
		}
		if err := out.Finish(s, nil); err != nil {
			t.Fatal(err)
		}
		d, err := rundir.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		if lines, _, err := d.Server(); err != nil || len(lines) != 19 || lines[0].Source != "prometheus" || lines[0].Values["db.cpu"] != 2 {
			t.Errorf("%d lines, %v", len(lines), err)
		}
	})
}

// Nothing is asked of a run without a window, or when the waiting is interrupted.
func TestPrometheusIsNotAsked(t *testing.T) {
	out, err := rundir.Create(filepath.Join(t.TempDir(), "run"), rundir.Manifest{}, []byte("name: x\n"))
	if err != nil {
		t.Fatal(err)
	}
	sc, err := scenario.Load("smoke")
	if err != nil {
		t.Fatal(err)
	}
	r := &runner{program: Program{Stderr: io.Discard}, scenario: sc, out: out, env: &environment{via: answer(nil)}}
	r.options.staging.prom = promOptions{url: "http://prometheus", quiet: time.Hour}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var s rundir.Summary
	if r.askPrometheus(ctx, &s); len(s.Notes)+len(s.Server) > 0 {
		t.Errorf("without a window: %+v", s)
	}
	r.phases = []rundir.Phase{{Name: "measure", From: 1, To: 2}}
	if r.askPrometheus(ctx, &s); len(s.Server) > 0 || len(s.Notes) != 1 || !strings.Contains(s.Notes[0], "interrupted") {
		t.Errorf("interrupted: %+v", s)
	}
}

package app

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"time"

	"imbench/loadgen/internal/clock"
	"imbench/loadgen/internal/driver"
	"imbench/loadgen/internal/prom"
	"imbench/reports/rundir"
)

// promOptions are the flags of a Prometheus server that watches the target.
type promOptions struct {
	url     string
	file    string
	quiet   time.Duration
	mapping prom.Mapping // of file
}

func (o *promOptions) define(fs *flag.FlagSet) {
	fs.StringVar(&o.url, "prometheus", "", "`URL` of a Prometheus server to ask after the run what it saw of the target; needs -prometheus-queries")
	fs.StringVar(&o.file, "prometheus-queries", "", "`FILE` (YAML) with the figures to ask for: step: 5s, queries: [{name: db.cpu, unit: cores, query: 'sum(rate(…[1m]))'}]")
	fs.DurationVar(&o.quiet, "quiet", 30*time.Second, "how long the target is looked at without load, before the run and after it; the mean of both is the background of -prometheus")
}

func (o *promOptions) check() (err error) {
	switch {
	case o.url == "" && o.file == "":
		return nil
	case o.url == "" || o.file == "":
		return errors.New("-prometheus and -prometheus-queries go together: the server, and what to ask it")
	case o.quiet < time.Second || o.quiet > time.Hour:
		return fmt.Errorf("-quiet %v: want 1s to 1h", o.quiet)
	}
	if u, err := url.Parse(o.url); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("-prometheus %q: want http://host:port, with its path if it has one", o.url)
	}
	o.mapping, err = prom.Load(o.file)
	return err
}

// askPrometheus adds to the summary and to server.ndjson what a Prometheus server saw. It first waits until the quiet time
// after the load is over. What it fails with is a note: the run itself is not worse for it.
func (r *runner) askPrometheus(ctx context.Context, s *rundir.Summary) {
	o := r.options.staging.prom
	window, loadEnd, ok := r.spans()
	if o.url == "" || !ok {
		return
	}
	begun, after := r.out.Started(), time.Now()
	if after.Before(loadEnd) {
		after = loadEnd
	}
	r.say("looking at the target for %v without load, for the background", o.quiet)
	if clock.Pause(ctx, o.quiet) != nil {
		s.Notes = append(s.Notes, "-prometheus was not asked: interrupted")
		return
	}
	figures, err := o.mapping.Fetch(ctx, o.url, r.env.via, prom.Spans{Before: prom.Span{From: begun.Add(-o.quiet), To: begun}, Window: window,
		After: prom.Span{From: after, To: after.Add(o.quiet)}})
	if err != nil {
		s.Notes = append(s.Notes, err.Error())
		return
	}
	lines := map[time.Time]map[string]float64{}
	for _, f := range figures {
		s.Server = append(s.Server, serverFigure(f))
		if f.Err != nil {
			s.Notes = append(s.Notes, fmt.Sprintf("-prometheus: %s: %v", f.Name, f.Err))
		}
		for _, p := range f.Points {
			if lines[p.At] == nil {
				lines[p.At] = map[string]float64{}
			}
			lines[p.At][f.Name] = p.Value
		}
	}
	for _, at := range slices.SortedFunc(maps.Keys(lines), time.Time.Compare) {
		// The writer remembers a failure, and tells it when the run is finished.
		_ = r.out.Server(rundir.ServerLine{At: at.UTC(), Source: "prometheus", Values: lines[at]})
	}
}

func serverFigure(f prom.Figure) rundir.ServerFigure {
	out := rundir.ServerFigure{Name: f.Name, Unit: f.Unit, Query: f.Expr, Mean: f.Window, Before: f.Before, After: f.After}
	if b := f.Background(); b != nil && f.Window != nil {
		net := *f.Window - *b
		out.Net = &net
	}
	return out
}

// spans are the measured window, and the end of the load, in wall time; false if there was no window.
func (r *runner) spans() (window prom.Span, loadEnd time.Time, ok bool) {
	started := r.out.Started()
	at := func(s float64) time.Time { return started.Add(time.Duration(s * float64(time.Second))) }
	for _, p := range r.phases {
		switch p.Name {
		case string(driver.Measure):
			window = prom.Span{From: at(p.From), To: at(p.From).Add(r.scenario.Phases.Measure)}
			if p.To > 0 && at(p.To).Before(window.To) {
				window.To = at(p.To)
			}
			ok = true
		case string(driver.Close):
			loadEnd = at(p.From)
		}
	}
	return window, loadEnd, ok
}

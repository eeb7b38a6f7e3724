package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"imbench/loadgen/internal/driver"
	"imbench/loadgen/internal/record"
	"imbench/loadgen/internal/view"
)

// generatorMetrics are the generator's own figures for Prometheus. They are read from what the status shows, so a scrape
// costs the load nothing.
type generatorMetrics struct {
	state     func() view.State
	latencies func() record.Snapshot
}

var (
	descOffered   = prometheus.NewDesc("loadgen_sends_offered_total", "Sends that were due by the plan.", nil, nil)
	descStarted   = prometheus.NewDesc("loadgen_sends_started_total", "Sends handed to a device.", nil, nil)
	descDone      = prometheus.NewDesc("loadgen_sends_done_total", "Sends confirmed as committed.", nil, nil)
	descFailed    = prometheus.NewDesc("loadgen_sends_failed_total", "Sends refused for good, by code.", []string{"code"}, nil)
	descInFlight  = prometheus.NewDesc("loadgen_sends_in_flight", "Sends without an outcome.", nil, nil)
	descConnected = prometheus.NewDesc("loadgen_devices_connected", "Devices with a session.", nil, nil)
	descReady     = prometheus.NewDesc("loadgen_devices_ready", "Devices that know how their conversations stand.", nil, nil)
	descPlanned   = prometheus.NewDesc("loadgen_devices_planned", "Devices that the run connects.", nil, nil)
	descReconnect = prometheus.NewDesc("loadgen_reconnects_total", "Connections that ended before the run did.", nil, nil)
	descLate      = prometheus.NewDesc("loadgen_late_p99_seconds", "Lateness of sends, 99th percentile of the last second.", nil, nil)
	descDropped   = prometheus.NewDesc("loadgen_samples_dropped_total", "Samples lost by the recorder: any makes the run invalid.", nil, nil)
	descPhase     = prometheus.NewDesc("loadgen_phase", "1 for the phase of the run, 0 for the others.", []string{"phase"}, nil)
	descLatency   = prometheus.NewDesc("loadgen_latency_seconds", "Latencies of the measured window so far, by metric as in latency.hlog.", []string{"metric"}, nil)
	descCPU       = prometheus.NewDesc("loadgen_watched_cpu_cores", "Cores that a process under watch used in the last second.", []string{"role"}, nil)
)

// Describe implements prometheus.Collector.
func (g *generatorMetrics) Describe(c chan<- *prometheus.Desc) { prometheus.DescribeByCollect(g, c) }

// Collect implements prometheus.Collector.
func (g *generatorMetrics) Collect(c chan<- prometheus.Metric) {
	s, r := g.state(), g.latencies()
	counter := func(d *prometheus.Desc, v int64, labels ...string) {
		c <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		c <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter(descOffered, s.Offered)
	counter(descStarted, s.Started)
	counter(descDone, s.Done)
	for code, n := range s.FailedBy {
		counter(descFailed, n, code)
	}
	gauge(descInFlight, float64(s.InFlight))
	gauge(descConnected, float64(s.Connected))
	gauge(descReady, float64(s.Ready))
	gauge(descPlanned, float64(s.Devices))
	counter(descReconnect, s.Reconnects)
	gauge(descLate, s.LateP99/1000)
	counter(descDropped, s.Dropped)
	for _, p := range driver.Phases[:len(driver.Phases)-1] { // when all is over nobody answers
		on := 0.0
		if string(p) == s.Phase {
			on = 1
		}
		gauge(descPhase, on, string(p))
	}
	for tag, m := range r.Latencies {
		c <- prometheus.MustNewConstSummary(descLatency, uint64(m.Count), m.Mean/1000*float64(m.Count),
			map[float64]float64{0.5: m.P50 / 1000, 0.95: m.P95 / 1000, 0.99: m.P99 / 1000, 0.999: m.P999 / 1000}, tag)
	}
	cores := map[string]float64{}
	for _, p := range s.Processes {
		cores[p.Role] += p.Cores
	}
	for role, v := range cores {
		gauge(descCPU, v, role)
	}
}

// listenMetrics takes the address of -metrics; nil without one.
func listenMetrics(addr string) (net.Listener, error) {
	if addr == "" {
		return nil, nil
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fail(ExitUsage, "-metrics %s: %w; want an address to listen on, such as 127.0.0.1:9464", addr, err)
	}
	return l, nil
}

// serveMetrics answers at /metrics until the function that it returns is called, which waits for it to end.
func serveMetrics(l net.Listener, g *generatorMetrics) (stop func(), err error) {
	registry := prometheus.NewRegistry()
	if err := registry.Register(g); err != nil {
		return nil, fmt.Errorf("metrics: %w", errors.Join(err, l.Close()))
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(l) // it ends when it is closed
	}()
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if srv.Shutdown(ctx) != nil {
			_ = srv.Close() // a reader that does not read
		}
		<-done
	}, nil
}

// serveMetrics serves this run's figures, if -metrics asks for them. The address was tried before anything was started.
func (r *runner) serveMetrics() (stop func(), err error) {
	l, err := listenMetrics(r.options.outputs.metrics)
	if l == nil {
		return func() {}, err
	}
	r.say("metrics of the generator: http://%s/metrics", l.Addr())
	return serveMetrics(l, &generatorMetrics{state: r.status.state, latencies: r.rec.Snapshot})
}

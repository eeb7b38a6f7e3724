package gateway

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"imbench/server/wire"
)

// metrics count what does not belong to the hub. The labels' values are all ours, never a peer's.
type metrics struct {
	handshakes *prometheus.CounterVec
	errors     *prometheus.CounterVec
	waiting    prometheus.GaugeFunc
	warned     atomic.Int64 // when the last failure of the store was logged, Unix nanoseconds
}

func newMetrics(waiting func() int) metrics {
	handshakes := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "im_handshakes_total",
		Help: "Handshakes by outcome."}, []string{"outcome"})
	errors := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "im_request_errors_total",
		Help: "Requests answered with an error, by code."}, []string{"code"})
	// What alerts and people look for begins at zero, so that the first one is an increase.
	for _, outcome := range []string{"welcome", "turned away", "unauthorised", "unavailable", "overtaken", "draining", "no hello", "bad"} {
		handshakes.WithLabelValues(outcome)
	}
	for _, code := range []wire.Code{wire.Unavailable, wire.RateLimited} {
		errors.WithLabelValues(string(code))
	}
	return metrics{handshakes: handshakes, errors: errors, waiting: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "im_admission_waiting", Help: "Devices that were turned away and told a place in the queue of handshakes."},
		func() float64 { return float64(waiting()) })}
}

// Collectors are the gateway's metrics; the hub has its own.
func (g *Gateway) Collectors() []prometheus.Collector {
	return []prometheus.Collector{g.metrics.handshakes, g.metrics.errors, g.metrics.waiting}
}

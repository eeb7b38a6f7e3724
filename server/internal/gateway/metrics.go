package gateway

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics count what does not belong to the hub. The labels' values are all ours, never a peer's.
type metrics struct {
	handshakes *prometheus.CounterVec
	errors     *prometheus.CounterVec
	warned     atomic.Int64 // when the last failure of the store was logged, Unix nanoseconds
}

func newMetrics() metrics {
	return metrics{
		handshakes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "im_handshakes_total",
			Help: "Handshakes by outcome."}, []string{"outcome"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "im_request_errors_total",
			Help: "Requests answered with an error, by code."}, []string{"code"}),
	}
}

// Collectors are the gateway's metrics; the hub has its own.
func (g *Gateway) Collectors() []prometheus.Collector {
	return []prometheus.Collector{g.metrics.handshakes, g.metrics.errors}
}

// unavailable logs a failure of the store, at most once a second: when it is away each request fails.
func (g *Gateway) unavailable(err error) {
	now, last := time.Now().UnixNano(), g.metrics.warned.Load()
	if now-last > int64(time.Second) && g.metrics.warned.CompareAndSwap(last, now) {
		g.cfg.Log.Warn("a request ended with an unknown outcome", "error", err)
	}
}

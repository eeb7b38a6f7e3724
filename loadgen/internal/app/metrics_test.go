package app

import (
	"net"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"imbench/loadgen/internal/record"
	"imbench/loadgen/internal/view"
	"imbench/reports/rundir"
)

// The generator's figures keep Prometheus' rules for names and units, and say what the status says.
func TestGeneratorMetrics(t *testing.T) {
	g := &generatorMetrics{
		state: func() view.State {
			return view.State{Phase: "measure", Devices: 10, Connected: 9, Ready: 8, Offered: 100, Started: 99, Done: 90, InFlight: 7, Failed: 2,
				FailedBy: map[string]int64{"RATE_LIMITED": 2}, Reconnects: 3, LateP99: 1.5, Processes: []view.Process{{Role: "loadgen", Cores: 0.5}, {Role: "gateway", Cores: 0.25}, {Role: "gateway", Cores: 0.25}}}
		},
		latencies: func() record.Snapshot {
			return record.Snapshot{Latencies: map[string]rundir.Metric{rundir.Deliver: {Count: 4, P50: 10, P95: 20, P99: 30, P999: 40, Mean: 12.5}}}
		},
	}
	if problems, err := testutil.CollectAndLint(g); err != nil || len(problems) != 0 {
		t.Errorf("%v %v", problems, err)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(g)
	want := `# HELP loadgen_latency_seconds Latencies of the measured window so far, by metric as in latency.hlog.
# TYPE loadgen_latency_seconds summary
loadgen_latency_seconds{metric="deliver",quantile="0.5"} 0.01
loadgen_latency_seconds{metric="deliver",quantile="0.95"} 0.02
loadgen_latency_seconds{metric="deliver",quantile="0.99"} 0.03
loadgen_latency_seconds{metric="deliver",quantile="0.999"} 0.04
loadgen_latency_seconds_sum{metric="deliver"} 0.05
loadgen_latency_seconds_count{metric="deliver"} 4
# HELP loadgen_sends_failed_total Sends refused for good, by code.
# TYPE loadgen_sends_failed_total counter
loadgen_sends_failed_total{code="RATE_LIMITED"} 2
# HELP loadgen_watched_cpu_cores Cores that a process under watch used in the last second.
# TYPE loadgen_watched_cpu_cores gauge
loadgen_watched_cpu_cores{role="gateway"} 0.5
loadgen_watched_cpu_cores{role="loadgen"} 0.5
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "loadgen_latency_seconds", "loadgen_sends_failed_total", "loadgen_watched_cpu_cores"); err != nil {
		t.Error(err)
	}
	if n, err := testutil.GatherAndCount(registry, "loadgen_phase"); err != nil || n != 6 {
		t.Errorf("%d phases, %v", n, err)
	}
}

// An address that is taken is a mistake of the caller's, said before anything is started.
func TestMetricsAddress(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for addr, want := range map[string]string{l.Addr().String(): "address already in use", "9464": "missing port", "127.0.0.1:x": "127.0.0.1:x"} {
		var out, errs strings.Builder
		code := Run(t.Context(), Program{Args: []string{"-scenario", "smoke", "-metrics", addr}, Stdout: &out, Stderr: &errs})
		if code != ExitUsage || !strings.Contains(errs.String(), want) || !strings.Contains(errs.String(), "-metrics "+addr) {
			t.Errorf("%s: exit %d, %s", addr, code, errs.String())
		}
	}
}

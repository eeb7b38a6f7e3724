package dashboard

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/prometheus/prometheus/promql/parser"
)

type rule struct {
	Alert       string
	Expr        string
	For         string
	Labels      map[string]string
	Annotations map[string]string
}

func rules(t *testing.T) []rule {
	t.Helper()
	var file struct {
		Groups []struct {
			Name     string
			Interval string
			Rules    []rule
		}
	}
	if err := yaml.UnmarshalWithOptions(Alerts, &file, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	if len(file.Groups) != 1 || file.Groups[0].Interval != evaluation.String() {
		t.Fatalf("groups %+v, want one, evaluated every %v", file.Groups, evaluation)
	}
	return file.Groups[0].Rules
}

func TestRulesAreComplete(t *testing.T) {
	t.Parallel()
	lines := strings.Split(string(Alerts), "\n")
	for _, r := range rules(t) {
		if _, err := parser.ParseExpr(r.Expr); err != nil {
			t.Errorf("%s: %v", r.Alert, err)
		}
		if d, err := time.ParseDuration(r.For); err != nil || d < time.Minute {
			t.Errorf("%s: waits %q: one look is not enough to wake anybody", r.Alert, r.For)
		}
		if r.Labels["severity"] != "page" || !strings.HasSuffix(r.Annotations["summary"], ".") || !strings.HasSuffix(r.Annotations["runbook"], ".") {
			t.Errorf("%s: labels %v, annotations %v", r.Alert, r.Labels, r.Annotations)
		}
		at := slices.Index(lines, "      - alert: "+r.Alert)
		if at < 1 || !strings.HasPrefix(lines[at-1], "      # ") {
			t.Errorf("%s: no reason in a comment above it", r.Alert)
		}
	}
}

// counter grows by so much a second.
func counter(perSecond float64) func(seconds float64) float64 {
	return func(s float64) float64 { return perSecond * s }
}

func constant(v float64) func(float64) float64 { return func(float64) float64 { return v } }

// between is v from minute a to minute b, else zero.
func between(a, b, v float64) func(float64) float64 {
	return func(s float64) float64 {
		if s >= a*60 && s < b*60 {
			return v
		}
		return 0
	}
}

// growing from minute a to minute b by so much a second.
func growing(a, b, perSecond float64) func(float64) float64 {
	return func(s float64) float64 { return perSecond * (min(max(s, a*60), b*60) - a*60) }
}

// absent removes a series.
var absent func(float64) float64

// baseline is what two gateways export at the documents' load, with everyday troubles: some loss, some slow devices.
func baseline() world {
	w := world{}
	for _, g := range []string{"g1", "g2"} {
		set := func(name string, f func(float64) float64) {
			w[strings.ReplaceAll(name, "GW", `instance="`+g+`",job="imbench"`)] = f
		}
		set(`im_ready{GW}`, constant(1))
		set(`im_devices{GW}`, constant(2520))
		set(`im_batch_failed_total{batcher="send",GW}`, counter(0))
		set(`im_batch_refused_total{batcher="send",GW}`, counter(0))
		set(`im_batch_size_sum{batcher="send",GW}`, counter(625))
		set(`im_fanout_seconds_bucket{le="0.05",GW}`, counter(4300))
		set(`im_fanout_seconds_bucket{le="0.25",GW}`, counter(4398))
		set(`im_fanout_seconds_bucket{le="0.5",GW}`, counter(4400))
		set(`im_fanout_seconds_bucket{le="+Inf",GW}`, counter(4400))
		set(`im_sweep_drops_total{GW}`, counter(0))
		set(`im_closes_total{code="4008",GW}`, counter(0.01))
		set(`im_handshakes_total{outcome="welcome",GW}`, counter(2))
		set(`im_handshakes_total{outcome="turned away",GW}`, counter(0.1))
		set(`process_open_fds{GW}`, constant(2600))
		set(`process_max_fds{GW}`, constant(65536))
		set(`im_tls_certificate_expiry_timestamp_seconds{GW}`, constant(80*24*3600))
	}
	return w
}

func TestRulesFire(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	const g1, g2 = `instance="g1",job="imbench"`, `instance="g2",job="imbench"`
	for _, c := range []struct {
		name   string
		change world
		want   string // alerts that fired within the two hours, in order of their names
	}{
		{"baseline", world{}, ""},
		{"no gateway is ready", world{`im_ready{` + g1 + `}`: constant(0), `im_ready{` + g2 + `}`: constant(0)}, "NoGatewayReady"},
		{"no gateway is seen", world{`im_ready{` + g1 + `}`: absent, `im_ready{` + g2 + `}`: absent}, "NoGatewayReady"},
		{"a gateway is gone", world{`im_ready{` + g1 + `}`: absent}, ""},
		{"a gateway restarts", world{`im_ready{` + g1 + `}`: func(s float64) float64 { return 1 - between(30, 32, 1)(s) }}, ""},
		{"one is not ready", world{`im_ready{` + g2 + `}`: constant(0)}, "GatewayNotReady"},
		{"sends fail", world{`im_batch_failed_total{batcher="send",` + g1 + `}`: growing(30, 60, 20)}, "SendsFail"},
		{"sends are refused", world{`im_batch_refused_total{batcher="send",` + g1 + `}`: growing(30, 60, 20)}, "SendsFail"},
		{"a commit failed", world{`im_batch_failed_total{batcher="send",` + g1 + `}`: growing(30, 30.5, 20)}, ""},
		{"nobody sends", world{`im_batch_size_sum{batcher="send",` + g1 + `}`: constant(5), `im_batch_size_sum{batcher="send",` + g2 + `}`: constant(5)}, ""},
		{"delivery is slow", world{`im_fanout_seconds_bucket{le="0.05",` + g1 + `}`: counter(4000), `im_fanout_seconds_bucket{le="0.25",` + g1 + `}`: counter(4200)}, "DeliverySlow"},
		{"a slow minute", world{`im_fanout_seconds_bucket{le="+Inf",` + g1 + `}`: func(s float64) float64 { return counter(4400)(s) + growing(30, 31, 400)(s) },
			`im_fanout_seconds_bucket{le="0.5",` + g1 + `}`: func(s float64) float64 { return counter(4400)(s) + growing(30, 31, 400)(s) }}, ""},
		{"repair drops", world{`im_sweep_drops_total{` + g1 + `}`: growing(30, 60, 1)}, "RepairFallsBehind"},
		{"devices are cut off", world{`im_closes_total{code="4008",` + g1 + `}`: growing(30, 60, 1)}, "ManySlowReceivers"},
		{"a few devices, all slow", world{`im_closes_total{code="4008",` + g1 + `}`: growing(30, 60, 1), `im_devices{` + g1 + `}`: constant(30), `im_devices{` + g2 + `}`: constant(20)}, ""},
		{"a storm that goes on", world{`im_handshakes_total{outcome="turned away",` + g1 + `}`: growing(20, 90, 500)}, "ReconnectStorm"},
		{"a storm that ends", world{`im_handshakes_total{outcome="turned away",` + g1 + `}`: growing(30, 32, 500),
			`im_handshakes_total{outcome="welcome",` + g1 + `}`: growing(30, 32, 1000)}, ""},
		{"descriptors", world{`process_open_fds{` + g1 + `}`: constant(60000)}, "FileDescriptorsRunOut"},
		{"the certificate", world{`im_tls_certificate_expiry_timestamp_seconds{` + g2 + `}`: constant(2 * 24 * 3600)}, "CertificateExpires"},
	} {
		seen[c.want] = true
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := baseline()
			for series, f := range c.change {
				if _, ok := w[series]; !ok {
					t.Fatalf("%s is not in the baseline", series)
				}
				if w[series] = f; f == nil {
					delete(w, series)
				}
			}
			if got := strings.Join(firing(t, w, rules(t), 2*time.Hour), " "); got != c.want {
				t.Errorf("fired: %q, want %q", got, c.want)
			}
		})
	}
	for _, r := range rules(t) {
		if !seen[r.Alert] {
			t.Errorf("%s is never seen to fire", r.Alert)
		}
	}
}

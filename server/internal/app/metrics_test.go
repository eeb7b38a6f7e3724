package app

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"imbench/server/dashboard"
	"imbench/server/internal/batch"
	"imbench/server/wire"
)

// exported is what a real gateway tells after a message went to another device, over TLS, and one request came over HTTP.
func exported(t *testing.T) string {
	t.Helper()
	url, _ := newDatabase(t)
	certFile, keyFile, pool := certificate(t)
	r := start(t, testEnv, nil, "-db", url, "-tls-cert", certFile, "-tls-key", keyFile)
	r.call("POST", "/admin/v1/populations", population, 201, nil)
	dialer := &websocket.Dialer{TLSClientConfig: &tls.Config{RootCAs: pool}}
	a, b := r.connect("t-u1-d1", dialer, "wss"), r.connect("t-u2-d1", dialer, "wss")
	if f := a.ask(wire.Request{T: wire.TSend, RID: "1", Conv: "t-g1", CMID: "c-1", Body: "hello"}); f.T != wire.TSent {
		t.Fatalf("sent %+v", f)
	}
	if f := b.next(); f.T != wire.TEvent {
		t.Fatalf("got %+v", f)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: pool}}}
	var tokens struct{ Tokens map[string]string }
	r.call("POST", "/admin/v1/tokens", `{"devices":["t-u1-d1"]}`, 200, &tokens)
	req, _ := http.NewRequest("GET", "https://"+r.Listen+"/v1/inbox", nil)
	req.Header.Set("Authorization", "Bearer "+tokens.Tokens["t-u1-d1"])
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", req.URL, resp.Status)
	}
	var device struct {
		User  string
		Route struct{ Gateway, Lease string }
		Live  struct{ Subscribed bool }
	}
	r.call("GET", "/admin/v1/devices/t-u2-d1", "", 200, &device)
	if device.User != "t-u2" || device.Route.Gateway != r.Gateway || device.Route.Lease != "held" || !device.Live.Subscribed {
		t.Errorf("device %+v", device)
	}
	r.call("GET", "/admin/v1/devices/t-u9-d1", "", 404, nil)
	return r.call("GET", "/metrics", "", 200, nil)
}

// TestMetrics: what a real gateway exports keeps to the conventions, and has all that dashboard and alerts ask for.
func TestMetrics(t *testing.T) {
	t.Parallel()
	page := exported(t)
	problems, err := promlint.New(strings.NewReader(page)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	text := expfmt.NewTextParser(model.UTF8Validation)
	families, err := text.TextToMetricFamilies(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	series := 0
	for name, f := range families {
		series += len(f.Metric)
		if strings.HasPrefix(name, "im_") && !strings.HasSuffix(f.GetHelp(), ".") {
			t.Errorf("%s: its help is no sentence: %q", name, f.GetHelp())
		}
	}
	if series > 400 {
		t.Errorf("%d series of one gateway: labels are to be bounded", series)
	}
	for where, expr := range expressions(t) {
		parsed, err := parser.ParseExpr(expr)
		if err != nil {
			t.Fatalf("%s: %v", where, err)
		}
		parser.Inspect(parsed, func(n parser.Node, _ []parser.Node) error {
			if v, ok := n.(*parser.VectorSelector); ok && !exports(page, v) {
				t.Errorf("%s: no gateway exports %s", where, v)
			}
			return nil
		})
	}
}

// exports says whether the page has a series of this name, whose labels are as asked for. instance and job are put there
// by whoever scrapes.
func exports(page string, v *parser.VectorSelector) bool {
	for line := range strings.Lines(page) {
		name, rest, _ := strings.Cut(line, " ")
		if strings.HasPrefix(line, "#") || !strings.HasPrefix(line, v.Name+"{") && name != v.Name {
			continue
		}
		if end := strings.LastIndex(line, "} "); end >= 0 {
			name, rest = line[:end+1], line[end+2:]
		}
		metric, err := parser.ParseMetric(name)
		if err == nil && rest != "" && !slices.ContainsFunc(v.LabelMatchers, func(m *labels.Matcher) bool {
			return m.Name != "instance" && m.Name != "job" && !m.Matches(metric.Get(m.Name))
		}) {
			return true
		}
	}
	return false
}

// expressions are all of the dashboard and of the alerts, by where they stand.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	panels, err := dashboard.Panels()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range panels {
		for i, q := range p.Targets {
			all[fmt.Sprintf("panel %s, query %d", p.Title, i+1)] = dashboard.Query(q.Expr, "1m")
		}
	}
	var rules struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	if err := yaml.Unmarshal(dashboard.Alerts, &rules); err != nil {
		t.Fatal(err)
	}
	for _, r := range rules.Groups[0].Rules {
		all["alert "+r.Alert] = r.Expr
	}
	return all
}

// collected is a Collector of what one of its methods emits.
type collected func(emitter)

func (collected) Describe(chan<- *prometheus.Desc)      {}
func (c collected) Collect(ch chan<- prometheus.Metric) { c(emitter{ch}) }

// A call that ends while the counters are read is in some of them: no bucket holds more than its histogram does.
func TestHistogramsHoldTheirBuckets(t *testing.T) {
	r := prometheus.NewRegistry()
	r.MustRegister(collected(func(m emitter) {
		c := batch.Counters{Batches: 1, Requests: 4}
		c.Sizes[0], c.Sizes[len(batch.SizeBuckets)], c.Took[0] = 2, 1, 2
		m.batch("send", c)
	}))
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	histograms := 0
	for _, f := range families {
		h := f.GetMetric()[0].GetHistogram()
		if h == nil {
			continue
		}
		histograms++
		for _, b := range h.GetBucket() {
			if b.GetCumulativeCount() > h.GetSampleCount() {
				t.Errorf("%s: %d up to %v, of %d", f.GetName(), b.GetCumulativeCount(), b.GetUpperBound(), h.GetSampleCount())
			}
		}
		if f.GetName() == "im_batch_size" && h.GetSampleCount() != 3 {
			t.Errorf("%d calls, want 3", h.GetSampleCount())
		}
	}
	if histograms != 2 {
		t.Errorf("%d histograms", histograms)
	}
}

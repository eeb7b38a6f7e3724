package prom

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestMappings(t *testing.T) {
	m, err := parse([]byte("step: 15s\nqueries:\n  - {name: db.cpu, unit: cores, query: 'sum(rate(x[1m]))'}\n"))
	if err != nil || m.Step != 15*time.Second || m.Queries[0] != (Query{"db.cpu", "cores", "sum(rate(x[1m]))"}) {
		t.Errorf("%+v, %v", m, err)
	}
	for text, want := range map[string]string{
		"":            "want 1 to 100 queries",
		"queries: []": "want 1 to 100 queries",
		"querys: []":  "unknown field",
		"step: 1\nqueries: [{name: a, query: b}]":             `step "1"`,
		"step: 2m\nqueries: [{name: a, query: b}]":            "from 1s to 1m0s",
		"queries: [{query: b}]":                               `queries[0]: name ""`,
		"queries: [{name: a}]":                                "queries[0]: a has no query",
		"queries: [{name: a, query: b}, {name: a, query: c}]": "queries[1]: a stands twice",
		"queries: [{name: a b, query: c}]":                    "want 1 to 64 letters",
	} {
		if _, err := parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
	if _, err := Load(filepath.Join(t.TempDir(), "none")); err == nil || !strings.HasPrefix(err.Error(), "-prometheus-queries: open ") {
		t.Errorf("got %v", err)
	}
	large := filepath.Join(t.TempDir(), "large")
	if err := os.WriteFile(large, make([]byte, maxFile+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(large); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("got %v", err)
	}
}

// A server that shows 2 before, 12 in the window and 4 after it; the background is 3.
func TestFetch(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	spans := Spans{Before: Span{at(0), at(30)}, Window: Span{at(50), at(110)}, After: Span{at(130), at(160)}}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		from, _ := strconv.ParseFloat(r.Form.Get("start"), 64)
		to, _ := strconv.ParseFloat(r.Form.Get("end"), 64)
		step, _ := strconv.ParseFloat(r.Form.Get("step"), 64)
		var series []string
		switch r.Form.Get("query") {
		case "steps":
			var values []string
			for x := from; x <= to; x += step {
				v := "2"
				switch s := x - float64(start.Unix()); {
				case s >= 130:
					v = "4"
				case s >= 120:
					v = "NaN"
				case s > 40:
					v = "12"
				}
				values = append(values, fmt.Sprintf(`[%f,"%s"]`, x, v))
			}
			series = []string{`{"metric":{},"values":[` + strings.Join(values, ",") + `]}`}
		case "two":
			series = []string{`{"metric":{"a":"1"},"values":[[0,"1"]]}`, `{"metric":{"a":"2"},"values":[[0,"1"]]}`}
		case "bad":
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"status":"error","errorType":"bad_data","error":"parse error"}`)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"status":"success","data":{"resultType":"matrix","result":[%s]}}`, strings.Join(series, ","))
	}))
	defer srv.Close()
	m := Mapping{Step: 5 * time.Second, Queries: []Query{{Name: "a", Expr: "steps"}, {Name: "b", Expr: "two"}, {Name: "c", Expr: "none"}, {Name: "d", Expr: "bad"}}}
	all, err := m.Fetch(t.Context(), srv.URL, nil, spans)
	if err != nil {
		t.Fatal(err)
	}
	if f := all[0]; f.Err != nil || *f.Before != 2 || *f.Window != 12 || *f.After != 4 || *f.Background() != 3 || len(f.Points) != 31 {
		t.Errorf("%+v", f)
	}
	for i, want := range map[int]string{1: "it gives 2 series", 2: "no data", 3: "parse error"} {
		if f := all[i]; f.Err == nil || !strings.Contains(f.Err.Error(), want) || f.Window != nil || f.Background() != nil {
			t.Errorf("%+v, want %q", f, want)
		}
	}
	one := 1.0
	if b := (Figure{After: &one}).Background(); b != &one {
		t.Error("what is known of the background is used")
	}
	if _, err := m.Fetch(t.Context(), "::", nil, spans); err == nil {
		t.Error("no address, and no error")
	}
}

// However long a run is, a query has no more points than the server gives; where it would have, whole seconds lie between.
func TestLongRunsAreThinned(t *testing.T) {
	const second, hour = time.Second, time.Hour
	for _, c := range []struct{ step, long, want time.Duration }{
		{second, mostPoints * second, second}, {second, mostPoints*second + second, 2 * second}, {second, 5 * hour, 2 * second},
		{5 * second, hour, 5 * second}, {5 * second, 16 * hour, 6 * second}, {15 * second, 240 * hour, 87 * second},
	} {
		if got := thinned(c.step, c.long); got != c.want || c.long/got > mostPoints {
			t.Errorf("every %v for %v: a point every %v, want %v", c.step, c.long, got, c.want)
		}
	}
}

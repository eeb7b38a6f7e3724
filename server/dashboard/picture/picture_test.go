package main

import (
	"bytes"
	"fmt"
	"image/png"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// prometheus answers every query with two series, of which one has a value that cannot be drawn.
func prometheus(t *testing.T) (url string, asked *[]string) {
	t.Helper()
	asked = &[]string{}
	var mu sync.Mutex
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		mu.Lock()
		*asked = append(*asked, q.Get("query"))
		mu.Unlock()
		from := q.Get("start")
		fmt.Fprintf(w, `{"status":"success","data":{"result":[{"metric":{"type":"send"},"values":[[%s,"1500"],[%s.5,"NaN"]]},{"metric":{"type":"ack"},"values":[[%s,"3"]]}]}}`,
			from, strings.Split(from, ".")[0], from)
	}))
	t.Cleanup(s.Close) // and asked is read after all answers have come
	return s.URL, asked
}

func TestPicture(t *testing.T) {
	t.Parallel()
	url, asked := prometheus(t)
	out := filepath.Join(t.TempDir(), "d.png")
	if err := run(t.Context(), []string{"-prometheus", url, "-last", "5m", "-rate", "7s", "-until", "2026-01-02T15:04:05Z", "-out", out}); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	img, err := png.Decode(bytes.NewReader(file))
	if err != nil || img.Bounds().Dx() < 500 || img.Bounds().Dy() < 1000 {
		t.Fatalf("picture: %v", err)
	}
	if all := strings.Join(*asked, "\n"); len(*asked) < 40 || strings.Contains(all, "$") || !strings.Contains(all, `rate(im_events_committed_total{instance=~".*"}[7s])`) {
		t.Errorf("%d queries:\n%s", len(*asked), all)
	}
}

func TestLines(t *testing.T) {
	t.Parallel()
	url, _ := prometheus(t)
	got, err := asker{url: url}.lines(t.Context(), "x", "{{type}} of {{ none }}.")
	if err != nil || len(got) != 2 || got[0].name != "ack of ." || got[1].name != "send of ." || len(got[1].points) != 1 || got[1].points[0].Y != 1500 {
		t.Errorf("lines %+v, %v", got, err)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"status":"error","error":"parse error"}`)
	}))
	t.Cleanup(broken.Close)
	for want, args := range map[string][]string{
		"-last 1s: must be": {"-last", "1s"}, "parse error": {"-prometheus", broken.URL},
		`-until "noon": must look like`: {"-until", "noon"},
	} {
		if err := run(t.Context(), args); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one that says %q", args, err, want)
		}
	}
	for _, c := range []struct {
		v          float64
		unit, want string
	}{{0.25, "s", "250 ms"}, {0, "s", "0 s"}, {12, "s", "12 s"}, {0.5, "percentunit", "50 %"}, {1500, "ops", "1.5 k/s"}, {2e9, "bytes", "2 GB"}, {7, "short", "7 "}} {
		if got := shown(c.v, c.unit); got != c.want {
			t.Errorf("%v in %s: %q, want %q", c.v, c.unit, got, c.want)
		}
	}
}

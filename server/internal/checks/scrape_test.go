package checks

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// metric is the sum of the gateway's samples of this name whose labels hold all of these texts, as `code="4008"`.
func (g *gateway) metric(name string, labels ...string) float64 {
	g.t.Helper()
	req, err := http.NewRequestWithContext(g.t.Context(), http.MethodGet, g.stack.AdminURLs[0]+"/metrics", nil)
	if err != nil {
		g.t.Fatal(err)
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		g.t.Fatal(err)
	}
	defer resp.Body.Close()
	sum := 0.0
	for s := bufio.NewScanner(resp.Body); s.Scan(); {
		series, value, ok := strings.Cut(s.Text(), " ")
		base, set, _ := strings.Cut(series, "{")
		if !ok || base != name {
			continue
		}
		for _, l := range labels {
			ok = ok && strings.Contains(set, l)
		}
		if v, err := strconv.ParseFloat(value, 64); ok && err == nil {
			sum += v
		}
	}
	return sum
}

// becomes waits until a condition holds; false means that it did not within the limit.
func becomes(t *testing.T, limit time.Duration, holds func() bool) bool {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(limit); !holds(); <-tick.C {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// errorLines counts what the gateway has logged as errors so far, and returns the first such line.
func (g *gateway) errorLines() (n int, first string) {
	g.t.Helper()
	text, err := os.ReadFile(filepath.Join(g.logs, "gateway-1.log"))
	if err != nil {
		g.t.Fatal(err)
	}
	return errorsIn(text)
}

func errorsIn(text []byte) (n int, first string) {
	for line := range bytes.Lines(text) {
		if bytes.Contains(line, []byte(`"level":"ERROR"`)) || bytes.Contains(line, []byte("panic")) {
			if n++; n == 1 {
				first = strings.TrimSpace(string(line))
			}
		}
	}
	return n, first
}

// burden is what a gateway carries: goroutines, and resident memory in MB.
type burden struct{ goroutines, mb float64 }

func (g *gateway) burden() burden {
	g.t.Helper()
	return burden{g.metric("go_goroutines"), g.metric("process_resident_memory_bytes") / 1e6}
}

// The growth that a check lets pass: a goroutine or a connection kept for each of some thousand repetitions is far above.
const (
	moreGoroutines = 50
	moreMB         = 48.0
)

// grown waits until the goroutines are about as many as before, and says what has grown. The second line has the figures.
func (g *gateway) grown(before burden) (seen, figures string) {
	g.t.Helper()
	now := before
	calm := becomes(g.t, patience, func() bool {
		now = g.burden()
		return now.goroutines <= before.goroutines+moreGoroutines
	})
	seen = "nothing grew"
	if !calm {
		seen = fmt.Sprintf("%.0f goroutines more", now.goroutines-before.goroutines)
	} else if now.mb > before.mb+moreMB {
		seen = fmt.Sprintf("%.0f MB more", now.mb-before.mb)
	}
	return seen, fmt.Sprintf("goroutines %.0f before and %.0f after, resident memory %.0f and %.0f MB", before.goroutines, now.goroutines, before.mb, now.mb)
}

func TestErrorsIn(t *testing.T) {
	t.Parallel()
	n, first := errorsIn([]byte("{\"level\":\"WARN\",\"msg\":\"x\"}\n{\"level\":\"ERROR\",\"msg\":\"y\"}\npanic: z\n"))
	if n != 2 || first != `{"level":"ERROR","msg":"y"}` {
		t.Fatal(n, first)
	}
}

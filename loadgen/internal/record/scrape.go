package record

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"imbench/reports/rundir"
)

// Bounds of a scrape: a page beyond maxPage bytes is an error, samples beyond maxValues are left out.
const (
	maxPage       = 4 << 20
	maxValues     = 2000
	scrapeTimeout = 2 * time.Second
)

// scraper reads the sources every few seconds. A failure is a line of server.ndjson, never more.
type scraper struct {
	cfg     Config
	traffic func() rowTraffic

	mu       sync.Mutex
	rows     rowCounts
	admitted admitted
}

// run scrapes at once, at each period, and a last time when ctx has ended and with it the load.
func (s *scraper) run(ctx context.Context) {
	if len(s.cfg.Scrapes) == 0 {
		return
	}
	client := s.client()
	t := time.NewTicker(s.cfg.ScrapeEvery)
	defer t.Stop()
	for {
		s.all(ctx, client)
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), scrapeTimeout)
			defer cancel()
			s.all(last, client)
			return
		case <-t.C:
		}
	}
}

// client goes by the way that it was given, or by one that gives up its connections after each answer: there may be seconds
// between two, and many sources.
func (s *scraper) client() *http.Client {
	via := s.cfg.Via
	if via == nil {
		via = &http.Transport{DisableKeepAlives: true}
	}
	return &http.Client{Timeout: scrapeTimeout, Transport: via}
}

// all reads each source once.
func (s *scraper) all(ctx context.Context, client *http.Client) {
	for _, src := range s.cfg.Scrapes {
		line := rundir.ServerLine{At: time.Now(), Source: safeURL(src.URL)}
		before := s.traffic()
		body, err := get(ctx, client, src)
		if ctx.Err() != nil {
			return // the run is over: a call cut short says nothing of the source
		}
		switch {
		case err != nil:
			line.Error = err.Error()
			s.missRows(src.URL)
		case src.JSON && !json.Valid(body):
			line.Error = "the answer is not JSON"
		case src.JSON:
			line.JSON = json.RawMessage(body)
		default:
			line.Values = parseMetrics(body)
			s.keepRows(src.URL, line.Values, before)
			s.mu.Lock()
			s.admitted.keep(src.URL, line.Values, line.At)
			s.mu.Unlock()
		}
		// The run directory remembers its first failure, and Tick returns it: there is nothing to add here.
		_ = s.cfg.Out.Server(line)
	}
}

func get(ctx context.Context, client *http.Client, src Scrape) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, src.URL, nil)
	if err != nil {
		return nil, fmt.Errorf("not a URL")
	}
	if src.Token != "" {
		req.Header.Set("Authorization", "Bearer "+src.Token)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("answered %s", resp.Status)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxPage+1))
	if err != nil {
		return nil, err
	}
	if len(body) > maxPage {
		return nil, fmt.Errorf("the answer is longer than %d bytes", maxPage)
	}
	return body, nil
}

// safeURL is the URL without credentials and query.
func safeURL(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "?"
	}
	return u.Scheme + "://" + u.Host + u.Path
}

// parseMetrics reads the samples of a Prometheus text page that a report may want.
func parseMetrics(page []byte) map[string]float64 {
	values := map[string]float64{}
	sc := bufio.NewScanner(bytes.NewReader(page))
	sc.Buffer(nil, 64<<10)
	for sc.Scan() && len(values) < maxValues {
		name, value, ok := parseSample(sc.Text())
		if ok && wanted(name) {
			values[name] = value
		}
	}
	return values
}

// parseSample splits `name{labels} value [timestamp]`. Label values may hold spaces and braces, so the labels end at the
// first closing brace outside quotes.
func parseSample(line string) (name string, value float64, ok bool) {
	end, quoted := 0, false
	for end < len(line) {
		c := line[end]
		switch {
		case quoted && c == '\\':
			end++
		case c == '"':
			quoted = !quoted
		case (c == ' ' || c == '\t') && !quoted && balanced(line[:end]):
			fields := strings.Fields(line[end:])
			if len(fields) == 0 || line[0] == '#' {
				return "", 0, false
			}
			v, err := strconv.ParseFloat(fields[0], 64)
			// JSON has no NaN and no infinities.
			return line[:end], v, err == nil && v-v == 0
		}
		end++
	}
	return "", 0, false
}

func balanced(s string) bool { return !strings.Contains(s, "{") || strings.HasSuffix(s, "}") }

func wanted(name string) bool {
	if strings.Contains(name, "_bucket{") {
		// Hundreds of samples a second that nothing reads: sum and count stay, but for the one latency with a limit.
		return strings.HasPrefix(name, "im_fanout_seconds_bucket{")
	}
	for _, p := range []string{"im_", "process_", "go_goroutines"} {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}

package record

import (
	"context"
	"net/http"
	"strings"
)

// ReadMetrics reads a page of metrics once, as the recorder does.
func ReadMetrics(ctx context.Context, via http.RoundTripper, src Scrape) (map[string]float64, error) {
	s := scraper{cfg: Config{Via: via}}
	page, err := get(ctx, s.client(), src)
	if err != nil {
		return nil, err
	}
	return parseMetrics(page), nil
}

// Sum adds up a metric's samples over their labels; false if there is none.
func Sum(values map[string]float64, metric string) (sum float64, ok bool) {
	for name, v := range values {
		if name == metric || strings.HasPrefix(name, metric+"{") {
			sum, ok = sum+v, true
		}
	}
	return sum, ok
}

// CPUs is how many cores this process may use: the quota of its control group, or the processors.
func CPUs() float64 { return findQuota("/proc/self/cgroup", "/sys/fs/cgroup").cores }

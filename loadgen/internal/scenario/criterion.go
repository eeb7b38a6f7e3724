package scenario

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Criterion bounds one figure of the run's summary. In YAML: {metric: send.intended.p99, max: 100ms}.
type Criterion struct {
	Metric string `yaml:"metric" doc:"a latency and statistic (send.intended.p99), achieved_rate, effective_ack, or admitted_rate: the most handshakes a second that a gateway let in between two readings, 5 s apart"`
	Max    *Limit `yaml:"max" doc:"the figure may not be above this"`
	Min    *Limit `yaml:"min" doc:"the figure may not be below this"`
}

// Limit is a bound with the unit that the summary uses: milliseconds for a latency, a plain number else (a share for
// achieved_rate, which may also be written in per cent).
type Limit struct {
	Value float64
	text  string
}

// String is the bound as the scenario wrote it.
func (l Limit) String() string { return l.text }

// Met says whether the figure, in the summary's unit, keeps the criterion.
func (c Criterion) Met(figure float64) bool {
	return (c.Max == nil || figure <= c.Max.Value) && (c.Min == nil || figure >= c.Min.Value)
}

// String is the criterion as a person writes it: "send.intended.p99 ≤ 100ms".
func (c Criterion) String() string {
	var parts []string
	if c.Max != nil {
		parts = append(parts, c.Metric+" ≤ "+c.Max.text)
	}
	if c.Min != nil {
		parts = append(parts, c.Metric+" ≥ "+c.Min.text)
	}
	return strings.Join(parts, ", ")
}

// Latency says whether the metric is a latency, and then which one and which statistic of it.
func (c Criterion) Latency() (metric, stat string, ok bool) {
	i := strings.LastIndexByte(c.Metric, '.')
	if i < 0 {
		return "", "", false
	}
	return c.Metric[:i], c.Metric[i+1:], true
}

var (
	latencyMetrics = []string{"send.intended", "send.service", "deliver", "deliver.repaired", "sync", "connect", "ack", "reconnect", "read", "fetch", "convs", "heal"}
	latencyStats   = []string{"p50", "p95", "p99", "p999", "max"}
	plainMetrics   = []string{"achieved_rate", "effective_ack", "admitted_rate"}
)

// Metrics lists every figure that a criterion may bound.
func Metrics() []string {
	all := append([]string(nil), plainMetrics...)
	for _, m := range latencyMetrics {
		for _, s := range latencyStats {
			all = append(all, m+"."+s)
		}
	}
	return all
}

// resolve turns the bounds' texts into numbers of the metric's unit.
func (c *Criterion) resolve() error {
	if c.Max == nil && c.Min == nil {
		return fmt.Errorf("%s needs max or min", c.Metric)
	}
	_, _, latency := c.Latency()
	for _, l := range []*Limit{c.Max, c.Min} {
		if l == nil {
			continue
		}
		if err := l.resolve(kindOf(c.Metric, latency)); err != nil {
			return fmt.Errorf("%s: %w", c.Metric, err)
		}
	}
	return nil
}

// limitKind is what a bound bounds: how it is written, and how large it can be.
type limitKind int

const (
	plainLimit   limitKind = iota // any number
	shareLimit                    // a part of a whole, never above 1: a bound of 99 would be one that nothing meets
	latencyLimit                  // a duration
)

func kindOf(metric string, latency bool) limitKind {
	switch {
	case latency:
		return latencyLimit
	case slices.Contains([]string{ErrorRate, AchievedRate, Connected}, metric):
		return shareLimit
	}
	return plainLimit
}

func (l *Limit) resolve(kind limitKind) error {
	if kind == latencyLimit {
		d, err := time.ParseDuration(l.text)
		if err != nil || d < 0 {
			return fmt.Errorf("%q is not a duration such as 100ms or 6.5s", l.text)
		}
		l.Value = float64(d) / float64(time.Millisecond)
		return nil
	}
	number, percent := strings.CutSuffix(l.text, "%")
	v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if err != nil || v < 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return fmt.Errorf("%q is not a number such as 0.99 or 99%%", l.text)
	}
	if percent {
		v /= 100
	}
	if kind == shareLimit && v > 1 {
		return fmt.Errorf("%q is more than the whole; 99 %% is written 99%% or 0.99", l.text)
	}
	l.Value = v
	return nil
}

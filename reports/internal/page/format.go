package page

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"imbench/reports/internal/figure"
)

const (
	noData = "no data"
	none   = "–"
)

func num(v float64) string { return figure.Number(v) }

func count(n int64) string { return figure.Number(float64(n)) }

// percent writes a fraction as a signed percentage with two places.
func percent(v float64) string {
	if math.Abs(v) >= 10 {
		return sign(v) + num(math.Round(100*v)) + "\u00a0%"
	}
	return fmt.Sprintf("%+.2f\u00a0%%", 100*v)
}

func sign(v float64) string {
	if v > 0 {
		return "+"
	}
	return ""
}

// optional writes what is known, or a dash.
func optional(v *float64, format func(float64) string) string {
	if v == nil {
		return none
	}
	return format(*v)
}

func size(bytes int64) string {
	if bytes >= 10<<30 {
		return num(float64(bytes)/(1<<30)) + "\u00a0GiB"
	}
	return num(float64(bytes)/(1<<20)) + "\u00a0MiB"
}

// codes lists counts by name: "UNAVAILABLE 2, TIMEOUT 1".
func codes(m map[string]int64) string {
	var list []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		list = append(list, k+" "+count(m[k]))
	}
	return strings.Join(list, ", ")
}

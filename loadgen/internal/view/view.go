// Package view shows a run that is going on: on a terminal a few lines that are drawn over themselves, else a line of JSON
// a second. It computes nothing of its own: a State is made of what has been recorded anyway.
//
// Frame and Line are pure. A Terminal is safe for concurrent use.
package view

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// State is a run at a moment; as JSON it is the line that a run prints each second without a terminal. Rates are of the last
// seconds, latencies of the last second with samples of the measured window, counts since the beginning of the load.
type State struct {
	Phase       string           `json:"phase"` // connect, warmup, measure, tail, settle, close
	ElapsedS    float64          `json:"elapsed_s"`
	OfS         float64          `json:"of_s"` // planned length of the phase; 0 = it ends when it is done
	Devices     int              `json:"devices"`
	Connected   int64            `json:"connected"`
	Ready       int64            `json:"ready"`
	OfferedRate float64          `json:"offered_rate"` // by the scenario, 1/s
	DoneRate    float64          `json:"done_rate"`
	Offered     int64            `json:"offered"`
	Started     int64            `json:"started"`
	Done        int64            `json:"done"`
	InFlight    int64            `json:"in_flight"`
	Failed      int64            `json:"failed"`
	FailedBy    map[string]int64 `json:"failed_by"` // by code
	Reconnects  int64            `json:"reconnects"`
	Dropped     int64            `json:"dropped"` // samples
	SendP50     float64          `json:"send_p50_ms"`
	SendP99     float64          `json:"send_p99_ms"`
	DeliverP50  float64          `json:"deliver_p50_ms"`
	DeliverP99  float64          `json:"deliver_p99_ms"`
	LateP99     float64          `json:"late_p99_ms"`
	Processes   []Process        `json:"processes"`
}

// Process is a process in the last second.
type Process struct {
	Role     string  `json:"role"`
	Cores    float64 `json:"cpu_cores"`
	RSSBytes int64   `json:"rss_bytes"`
}

// The frame's bounds: 80 columns suffice, a smaller terminal gets the one line.
const (
	minWidth     = 70
	maxWidth     = 100
	maxProcesses = 6
	maxCodes     = 4
)

// ANSI colours.
const (
	bold  = "\x1b[1m"
	red   = "\x1b[31m"
	green = "\x1b[32m"
	plain = "\x1b[0m"
)

// Line is the state in one line, for terminals in which a frame has no room.
func Line(s State) string {
	switch s.Phase {
	case "connect":
		return fmt.Sprintf("connect  %d of %d devices", s.Connected, s.Devices)
	case "settle", "close", "finished":
		return fmt.Sprintf("%-8s %ds  %d in flight", s.Phase, int(s.ElapsedS), s.InFlight)
	}
	return fmt.Sprintf("%-8s %d/%ds  %.0f of %.0f msg/s  p99 send %.1f deliver %.1f ms  failed %d", s.Phase, int(s.ElapsedS), int(s.OfS),
		s.DoneRate, s.OfferedRate, s.SendP99, s.DeliverP99, s.Failed)
}

// Frame is the state in some lines of fewer than width columns; colour adds ANSI colours, which take no room.
func Frame(s State, width int, colour bool) []string {
	width = min(width, maxWidth)
	paint := func(c, text string) string {
		if !colour {
			return text
		}
		return c + text + plain
	}
	head := fmt.Sprintf("%-8s %s", s.Phase, clockText(s))
	bar := progress(s, width-1-utf8.RuneCountInString(head)-2)
	lines := []string{paint(bold, head) + "  " + bar}
	add := func(format string, args ...any) { lines = append(lines, cut(fmt.Sprintf(format, args...), width-1)) }
	add("devices  %d of %d connected, %d reconnects", s.Connected, s.Devices, s.Reconnects)
	add("sends    %.0f/s of %.0f/s   %d done of %d   %d in flight", s.DoneRate, s.OfferedRate, s.Done, s.Offered, s.InFlight)
	add("latency  send p50 %s p99 %s   deliver p50 %s p99 %s ms", latency(s.SendP50), latency(s.SendP99), latency(s.DeliverP50), latency(s.DeliverP99))
	failed := cut(fmt.Sprintf("failed   %d%s   late p99 %s ms   samples dropped %d", s.Failed, codes(s.FailedBy), latency(s.LateP99), s.Dropped), width-1)
	if s.Failed > 0 || s.Dropped > 0 {
		failed = paint(red, failed)
	} else {
		failed = paint(green, failed)
	}
	lines = append(lines, failed)
	if len(s.Processes) > 0 {
		add("cores    %s", processes(s.Processes))
	}
	return lines
}

// clockText is how far the phase is: in devices while they connect, else in seconds.
func clockText(s State) string {
	switch {
	case s.Phase == "connect":
		return fmt.Sprintf("%d/%d", s.Ready, s.Devices)
	case s.OfS > 0:
		return fmt.Sprintf("%d/%ds", int(s.ElapsedS), int(s.OfS))
	}
	return fmt.Sprintf("%ds", int(s.ElapsedS))
}

// progress is a bar of n columns.
func progress(s State, n int) string {
	if n < 10 {
		return ""
	}
	share := 0.0
	switch {
	case s.Phase == "connect" && s.Devices > 0:
		share = float64(s.Ready) / float64(s.Devices)
	case s.OfS > 0:
		share = s.ElapsedS / s.OfS
	}
	full := int(min(max(share, 0), 1) * float64(n-2))
	return "[" + strings.Repeat("=", full) + strings.Repeat(" ", n-2-full) + "]"
}

// latency is in ms; a 0 is no data.
func latency(ms float64) string {
	switch {
	case ms <= 0:
		return "-"
	case ms < 100:
		return fmt.Sprintf("%.1f", ms)
	}
	return fmt.Sprintf("%.0f", ms)
}

// codes are the errors that came most often.
func codes(by map[string]int64) string {
	if len(by) == 0 {
		return ""
	}
	names := slices.SortedFunc(maps.Keys(by), func(a, b string) int {
		if by[a] != by[b] {
			return int(min(max(by[b]-by[a], -1), 1))
		}
		return strings.Compare(a, b)
	})
	var list []string
	for _, name := range names[:min(len(names), maxCodes)] {
		list = append(list, fmt.Sprintf("%s %d", printable(name), by[name]))
	}
	if len(names) > maxCodes {
		list = append(list, "…")
	}
	return " (" + strings.Join(list, ", ") + ")"
}

func processes(list []Process) string {
	var out []string
	for _, p := range list[:min(len(list), maxProcesses)] {
		out = append(out, fmt.Sprintf("%s %.2f", printable(p.Role), p.Cores))
	}
	if len(list) > maxProcesses {
		out = append(out, fmt.Sprintf("and %d more", len(list)-maxProcesses))
	}
	return strings.Join(out, "  ")
}

// printable keeps what a server chose from steering the terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 || r == utf8.RuneError {
			return '?'
		}
		return r
	}, s)
}

func cut(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}

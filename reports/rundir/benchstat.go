package rundir

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode"
)

// Benchstat writes a run as lines of the Go benchmark format, for golang.org/x/perf's benchstat: a line a latency, whose
// iterations are its samples, and one for the rates and the costs. Of a run that does not count (an error, interrupted,
// aborted, invalid) there is a line that says so and no figure, since its figures must not be compared with others.
func Benchstat(w io.Writer, r Run) error {
	m, s := r.Manifest, r.Summary
	var b bytes.Buffer
	var os, arch string
	if len(m.Hosts) > 0 {
		os, arch = m.Hosts[0].OS, m.Hosts[0].Arch
	}
	for _, c := range [][2]string{{"goos", os}, {"goarch", arch}, {"scenario", s.Scenario}, {"revision", m.Revision}, {"target", m.Target.Kind},
		{"server-revision", m.Target.Revision}, {"postgres", m.Postgres.Version}} {
		if c[1] != "" {
			fmt.Fprintf(&b, "%s: %s\n", c[0], strings.Join(strings.Fields(c[1]), " "))
		}
	}
	name := benchName(s.Scenario)
	switch s.Verdict {
	case Passed, Missed, Broken:
		b.WriteString("Unit msg/s better=higher\nUnit msg-share better=higher\nUnit events/ack better=higher\n")
		for _, tag := range Metrics() {
			if x, ok := s.Metrics[tag]; ok && x.Count > 0 {
				fmt.Fprintf(&b, "Benchmark%s/latency=%s %d %.0f p50-ns %.0f p95-ns %.0f p99-ns %.0f p999-ns %.0f mean-ns\n", name, tag, x.Count,
					x.P50*1e6, x.P95*1e6, x.P99*1e6, x.P999*1e6, x.Mean*1e6)
			}
		}
		if s.Offered > 0 {
			fmt.Fprintf(&b, "Benchmark%s/load %d %.6g msg/s %.6g msg-share", name, s.Offered, s.AchievedRate, s.AchievedShare)
			if s.EffectiveAck > 0 { // else there were no acks, or the wire has none
				fmt.Fprintf(&b, " %.6g events/ack", s.EffectiveAck)
			}
			roles, cores := coresByRole(s.Processes)
			for _, role := range roles {
				fmt.Fprintf(&b, " %.6g %s-cores", cores[role], word(role))
			}
			b.WriteByte('\n')
		}
	default:
		fmt.Fprintf(&b, "# %s: %s, no figures\n", s.Run, s.Verdict)
	}
	b.WriteByte('\n')
	_, err := w.Write(b.Bytes())
	return err
}

// benchName keeps a name within what a part of a benchmark's may hold, and begins it as Go's do.
func benchName(s string) string {
	if s = word(s); s == "" {
		return "Load"
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// word is s without spaces and slashes.
func word(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '/' || unicode.IsSpace(r) || !unicode.IsPrint(r) {
			return '_'
		}
		return r
	}, s)
}

// coresByRole adds up processes of one role, in the order of their first: one that was started again is another process.
func coresByRole(list []ProcessUse) (roles []string, cores map[string]float64) {
	cores = map[string]float64{}
	for _, p := range list {
		if _, seen := cores[p.Role]; !seen {
			roles = append(roles, p.Role)
		}
		cores[p.Role] += p.CPUCores
	}
	return roles, cores
}

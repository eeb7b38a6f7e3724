package page

import (
	"fmt"
	"strings"
	"time"

	"imbench/reports/rundir"
)

// meaning is the verdict in a sentence.
func meaning(v rundir.Verdict) string {
	switch v {
	case rundir.Passed:
		return "Every criterion was met, and every delivery was proved."
	case rundir.Missed:
		return "The load was driven as planned, and a criterion was not met."
	case rundir.Invalid:
		return "The generator could not drive the load as planned: the latencies say nothing about the server."
	case rundir.Interrupted:
		return "Someone ended the run before its time: what was measured until then is shown, and nothing is concluded."
	case rundir.Aborted:
		return "An abort rule ended the run."
	case rundir.Broken:
		return "A delivery promise was broken. See deliveries."
	case rundir.Error:
		return "The run ended with an error."
	}
	return "This program does not know this verdict."
}

func (b *builder) verdict() section {
	s, m := b.run.Summary, b.run.Manifest
	out := section{ID: "verdict", Title: "Verdict and conditions"}
	if len(s.Reasons) > 0 {
		out.Blocks = append(out.Blocks, block{List: s.Reasons})
	}
	facts := []fact{
		{"scenario", fmt.Sprintf("%s, seed %d", m.Scenario, m.Seed)},
		{"started", m.Started.UTC().Format("2006-01-02 15:04:05 UTC") + ended(m)},
		{"generator", fmt.Sprintf("revision %s, %s", orNone(m.Revision), orNone(m.Go))},
		{"target", target(m.Target)},
		{"PostgreSQL", postgres(m.Postgres)},
		{"hosts", hosts(m.Hosts)},
		{"population", fmt.Sprintf("%s users with %s devices, %s of them connected; %s conversations, %s cursor rows at the start",
			num(float64(m.Population.Users)), num(float64(m.Population.Devices)), num(float64(m.Population.Connected)),
			num(float64(m.Population.Conversations)), num(float64(m.Population.CursorRows)))},
		{"phases", phases(m)},
		{"sends in the window", fmt.Sprintf("%s offered, %s started, %s done, %s unfinished%s", count(s.Offered), count(s.Started),
			count(s.Done), count(s.Censored), failed(s.Failed))},
		{"rate", fmt.Sprintf("offered %s/s, achieved %s/s (%s %% of offered)", num(s.OfferedRate), num(s.AchievedRate), num(100*s.AchievedShare))},
		{"events an ack", fmt.Sprintf("%s measured, %s nominal (k)", num(s.EffectiveAck), nominal(s.NominalAck))},
	}
	out.Blocks = append(out.Blocks, block{Facts: facts})
	notes := append(append([]string{}, s.Notes...), m.Notes...)
	for _, name := range b.run.Torn {
		notes = append(notes, "the last line of "+name+" is incomplete and was left out")
	}
	for _, e := range b.run.Events {
		if e.Kind != "phase" {
			notes = append(notes, fmt.Sprintf("%s s: %s %s %s", num(e.T), e.Kind, e.Name, e.Detail))
		}
	}
	if len(notes) > 0 {
		out.Blocks = append(out.Blocks, block{List: notes})
	}
	return out
}

func orNone(s string) string {
	if s == "" {
		return "not known"
	}
	return s
}

func ended(m rundir.Manifest) string {
	if m.Ended == nil {
		return ""
	}
	return fmt.Sprintf(", took %s", m.Ended.Sub(m.Started).Round(time.Second))
}

func target(t rundir.Target) string {
	what := "the embedded stack"
	if t.Kind != "embedded" {
		what = strings.Join(t.URLs, ", ")
	}
	return fmt.Sprintf("%s, %d gateways, environment %s, revision %s", what, t.Gateways, orNone(t.Environment), orNone(t.Revision))
}

func postgres(p rundir.Postgres) string {
	list := []string{orNone(p.Version)}
	for _, name := range []string{"fsync", "synchronous_commit", "full_page_writes", "shared_buffers"} {
		if v, ok := p.Settings[name]; ok {
			list = append(list, name+" "+v)
		}
	}
	return strings.Join(list, ", ")
}

func hosts(list []rundir.Host) string {
	var out []string
	for _, h := range list {
		out = append(out, fmt.Sprintf("%s (%s): %s/%s, kernel %s, %d CPUs, %s", h.Name, h.Role, h.OS, h.Arch, orNone(h.Kernel), h.CPUs,
			size(h.MemoryBytes)))
	}
	return orNone(strings.Join(out, "; "))
}

func phases(m rundir.Manifest) string {
	var out []string
	for _, p := range m.Phases {
		if p.To > p.From {
			out = append(out, fmt.Sprintf("%s %s s", p.Name, num(p.To-p.From)))
		}
	}
	return orNone(strings.Join(out, ", "))
}

func failed(m map[string]int64) string {
	if len(m) == 0 {
		return ", none failed"
	}
	return ", failed: " + codes(m)
}

func nominal(v float64) string {
	if v == 0 {
		return "no"
	}
	return num(v)
}

func (b *builder) criteria() section {
	t := table{Head: columns("criterion", ">limit", ">value", "unit", "result"), Origin: "Run: summary.json; limits from the scenario."}
	for _, c := range b.run.Summary.Criteria {
		of, unit := 1.0, c.Unit
		if strings.HasPrefix(unit, "of ") { // a share: in per cent, as scenarios write it
			of, unit = 100, "% "+unit
		}
		value := noData
		if c.Value != nil {
			value = num(of * *c.Value)
		}
		class := "bad"
		switch c.Result {
		case rundir.Met:
			class = "good"
		case rundir.Unlimited:
			class = ""
		}
		r := cells(c.Metric, comparison(c.Op)+num(of*c.Limit), value, unit)
		t.Rows = append(t.Rows, append(r, cell{Text: c.Result, Class: class}))
	}
	out := section{ID: "criteria", Title: "Criteria"}
	if len(t.Rows) == 0 {
		out.Lead = []string{"The scenario has no criteria."}
		return out
	}
	out.Blocks = []block{{Table: &t}}
	return out
}

func comparison(op string) string {
	switch op {
	case "<=":
		return "≤\u00a0"
	case ">=":
		return "≥\u00a0"
	}
	return op + "\u00a0"
}

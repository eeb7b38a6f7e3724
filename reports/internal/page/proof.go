package page

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"imbench/reports/rundir"
)

func (b *builder) ledger() section {
	l := b.run.Summary.Ledger
	out := section{ID: "deliveries", Title: "Deliveries", Lead: []string{
		fmt.Sprintf("%s messages in the log, %s deliveries expected, %s delivered, checked for %s pairs of device and conversation.",
			count(l.Messages), count(l.Expected), count(l.Delivered), count(l.Pairs)), proof(l)}}
	t := table{Head: columns("promise", ">broken", "unit"), Origin: "Run: ledger.json. The ledger does not use the devices' own cursor logic."}
	for _, f := range []struct {
		key, name, unit string
		n               int64
	}{
		{"lost", "none lost", "deliveries", l.Lost}, {"duplicated", "none applied twice", "deliveries", l.Duplicated}, {"reordered", "none out of order", "deliveries", l.Reordered},
		{"leaked", "none seen by someone who must not see it", "deliveries", l.Leaked}, {"mismatched", "none with another content", "deliveries", l.Mismatched},
		{"foreign", "none that is in no log", "deliveries", l.Foreign}, {"unlogged", "each acknowledged message is in the log", "messages", l.Unlogged},
		{"logged_twice", "none in the log twice", "messages", l.LoggedTwice}, {"log_gaps", "no gaps in the log", "seqs", l.LogGaps}, {"regressed", "delivered never goes back", "times", l.Regressed},
	} {
		c := cell{Text: count(f.n), Class: "good"}
		switch {
		case l.NotChecked.Has(f.key):
			c = cell{Text: rundir.NotCheckedText}
		case f.n > 0:
			c.Class = "bad"
		}
		t.Rows = append(t.Rows, row{{Text: f.name}, c, {Text: f.unit}})
	}
	out.Blocks = []block{{Table: &t}, {List: []string{
		fmt.Sprintf("%s repeats on the wire, not applied: no fault", count(l.WireRepeats)),
		fmt.Sprintf("%s sends without an answer: %s of them found in the log, %s could not be resolved", count(l.Unknown), count(l.Committed), count(l.Unresolved)),
		fmt.Sprintf("%s deliveries still to come when the run ended", count(l.Undelivered)),
		fmt.Sprintf("%s deliveries checked by digest only, because their log entries had been folded", count(l.Unverified)),
	}}}
	if b.run.Ledger == nil {
		out.Lead = append(out.Lead, "The run left no ledger.json: culprits are not known.")
		return out
	}
	if c := culprits(*b.run.Ledger); c != nil {
		out.Blocks = append(out.Blocks, block{Table: c})
	}
	if len(b.run.Ledger.Notes) > 0 {
		out.Blocks = append(out.Blocks, block{List: b.run.Ledger.Notes})
	}
	return out
}

func proof(l rundir.LedgerSummary) string {
	text := "Compared with an independent export of the log"
	if !l.Exported {
		text = "Compared with the sent replies only, because there was no export of the log"
	}
	if !l.Settled {
		return text + "; the settle phase did not run in full, so that nothing missing counts as lost."
	}
	return text + ", after a full settle phase."
}

func culprits(l rundir.Ledger) *table {
	if len(l.Culprits) == 0 {
		return nil
	}
	t := table{Caption: fmt.Sprintf("Culprits: the first %d found", len(l.Culprits)), Head: columns("kind", "device", "user", "conversation", ">seq", "detail"),
		Origin: "Run: ledger.json. In all: " + codes(l.Counts) + "."}
	for _, c := range l.Culprits {
		t.Rows = append(t.Rows, cells(c.Kind, c.Device, c.User, c.Conv, count(c.Seq), c.Detail))
	}
	return &t
}

func (b *builder) generator() section {
	g := b.run.Summary.Generator
	t := table{Head: columns("figure", ">value", "unit"), Origin: "Run: summary.json, sends intended in the measured window; the limit is a tenth of the send criterion."}
	limit := none
	if g.LateLimitMS > 0 {
		limit = num(g.LateLimitMS)
	}
	for _, f := range [][3]string{
		{"sends started late, p50", num(g.LateP50MS), "ms"}, {"sends started late, p99", num(g.LateP99MS), "ms"},
		{"sends started late, max", num(g.LateMaxMS), "ms"}, {"limit of the p99", limit, "ms"},
		{"sends later than the limit, or never started", num(100 * g.LateShare), "%"},
		{"samples dropped (any makes the run invalid)", count(g.Dropped), "samples"},
		{"processor, mean", num(g.CPUCores), "cores"}, {"longest garbage collection pause", num(g.GCPauseMaxMS), "ms"},
		{"processors that it may use", known(g.CPULimit), "cores"},
		{"held up by a CPU quota", num(100 * g.ThrottledShare), "% of the window"},
		{"received bytes lay unread, mean", optional(g.UnreadMeanMS, num), "ms"}, {"most that lay unread in a socket", count(g.UnreadMaxBytes), "B"},
		{"heap, max", num(float64(g.HeapMaxBytes) / (1 << 20)), "MiB"}, {"goroutines, max", count(g.Goroutines), "1"},
	} {
		t.Rows = append(t.Rows, cells(f[0], f[1], f[2]))
	}
	out := section{ID: "generator", Title: "The generator's own health", Blocks: []block{{Table: &t}},
		Lead: []string{"A generator that starts its sends late measures itself. How late it was second by second stands under latencies."}}
	if c := b.run.Summary.Calibration; c != nil {
		ceiling := calibrated(c)
		out.Blocks = append(out.Blocks, block{Table: &ceiling})
	}
	ops, closes := map[string]int64{}, map[string]int64{}
	for _, l := range b.run.Counters {
		for k, n := range l.OpsFailed {
			ops[k] += n
		}
		for k, n := range l.Reconnects {
			closes[k] += n
		}
	}
	if len(ops) > 0 {
		out.Blocks = append(out.Blocks, block{List: []string{"failed operations: " + codes(ops)}})
	}
	if len(closes) > 0 {
		out.Blocks = append(out.Blocks, block{List: []string{"connections that ended, by close code (0 = broken): " + codes(closes)}})
	}
	return out
}

// calibrated is what the generator could do before the run.
func calibrated(c *rundir.Calibration) table {
	t := table{Caption: "What it can do at most, against a server that does nothing", Head: columns("figure", ">value", "unit"),
		Origin: "Run: summary.json, measured just before the run on the same machine, of which the null server takes its part."}
	for _, f := range [][3]string{
		{"sends, nothing else", num(c.SendsPerS), "1/s"},
		{fmt.Sprintf("sends, each to %d receivers", c.Fanout), num(c.MixSendsPerS), "1/s"}, {"frames received meanwhile", num(c.FramesPerS), "1/s"},
		{"processor meanwhile", num(c.CPUCores), "cores"}, {"of the null server", num(c.ServerCores), "cores"},
		{"the run's rate, of that ceiling", num(100 * c.OfferedShare), "%"},
		{fmt.Sprintf("latency floor at %s sends/s, p50", num(c.FloorRate)), num(c.FloorP50MS), "ms"}, {"p99", num(c.FloorP99MS), "ms"},
	} {
		t.Rows = append(t.Rows, cells(f[0], f[1], f[2]))
	}
	for _, w := range c.Workers {
		t.Rows = append(t.Rows, cells(w.Name+": sends, each to as many", num(w.MixSendsPerS), "1/s"), cells(w.Name+": its share of the run's rate, of that", num(100*w.OfferedShare), "%"))
	}
	return t
}

// known is a figure whose 0 means that nobody knows it.
func known(v float64) string {
	if v == 0 {
		return none
	}
	return num(v)
}

func (b *builder) environment() section {
	m := b.run.Manifest
	out := section{ID: "environment", Title: "Environment and assumptions", Lead: []string{
		"Measured: what this run counted. Given, bounded, assumed: the standing of each of the model's inputs is listed under capacity. This machine ran the " +
			"generator, the gateways and the database together unless the target says otherwise."}}
	settings := table{Head: columns("setting", "value"), Origin: "Run: manifest.json, as the database told them."}
	for _, name := range slices.Sorted(maps.Keys(m.Postgres.Settings)) {
		settings.Rows = append(settings.Rows, cells(name, m.Postgres.Settings[name]))
	}
	var inputs []string
	for _, name := range slices.Sorted(maps.Keys(m.Model)) {
		inputs = append(inputs, name+" = "+num(m.Model[name]))
	}
	out.Blocks = []block{
		{Facts: []fact{
			{"run", fmt.Sprintf("%s, id %d, format %d", m.Run, m.RunID, m.Format)},
			{"command", strings.Join(m.Command, " ")},
			{"target", strings.Join(m.Target.URLs, ", ")},
			{"population", fmt.Sprintf("namespace %s, digest %s", m.Population.Namespace, m.Population.Digest)},
			{"arrivals", fmt.Sprintf("%s messages, digest %s", count(m.Arrivals.Messages), m.Arrivals.Digest)},
			{"model's inputs of this scenario", orNone(strings.Join(inputs, ", "))},
		}},
		{Table: &settings, Fold: "PostgreSQL settings"},
		{Pre: string(b.run.Scenario), Fold: "The scenario as used"},
	}
	return out
}

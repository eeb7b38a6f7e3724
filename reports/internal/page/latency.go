package page

import (
	"fmt"

	"imbench/reports/internal/figure"
	"imbench/reports/rundir"
)

// measures says from where to where each latency goes (FORMAT.md).
var measures = map[string]string{
	rundir.SendIntended:    "intended time of the plan → sent read; unfinished sends with the time waited",
	rundir.SendService:     "send written → sent read; finished sends",
	rundir.Deliver:         "intended → applied by the first push (or hint and sync of a reading device)",
	rundir.DeliverRepaired: "intended → applied by a sync after the push was lost",
	rundir.Sync:            "sync request → reply",
	rundir.Ack:             "ack request → reply",
	rundir.Connect:         "dial → welcome, in all phases",
	rundir.Reconnect:       "the end of a session → the next one ready, in all phases",
	rundir.Read:            "read report → reply",
	rundir.Fetch:           "intended time of the plan → one event read; unfinished ones with the time waited",
	rundir.Convs:           "likewise → the last page of the conversation list",
	rundir.Late:            "intended → send written: the generator's own lateness",
}

func (b *builder) latency() section {
	s := b.run.Summary
	t := table{Head: columns("latency, ms", ">count", ">mean", ">p50", ">p95", ">p99", ">p99.9", ">max"),
		Origin: "Run: summary.json, messages intended in the measured window. Histograms of 3 digits; a percentile is off by at most 0.1 %, or 0.5 µs."}
	var notes []string
	for _, name := range rundir.Metrics() {
		m := s.Metrics[name]
		if rundir.Occasional(name) && m.Count == 0 {
			continue
		}
		r := row{{Text: name, Note: measures[name]}, {Text: count(m.Count)}}
		if m.Count == 0 {
			r = append(r, cells(noData, "", "", "", "", "")...)
		} else {
			r = append(r, cells(num(m.Mean), num(m.P50), num(m.P95), num(m.P99), num(m.P999), num(m.Max))...)
		}
		t.Rows = append(t.Rows, r)
		if m.Negative+m.OverRange+m.Censored > 0 {
			notes = append(notes, fmt.Sprintf("%s: %s negative (counted, in no histogram), %s longer than 10 minutes, %s unfinished",
				name, count(m.Negative), count(m.OverRange), count(m.Censored)))
		}
	}
	out := section{ID: "latency", Title: "Latencies", Blocks: []block{{Table: &t}}}
	if len(notes) > 0 {
		out.Blocks = append(out.Blocks, block{List: notes})
	}
	tl := b.run.timeline()
	out.Blocks = append(out.Blocks,
		b.draw(figure.Histograms(b.run.Series), "Distribution of each latency, in logarithmic buckets of 12 %.",
			"Run: latency.hlog, all intervals of a metric merged."),
		b.draw(figure.Spectrum(b.run.Series), "Percentile spectrum: each nine takes the same room. A line ends at its largest sample.",
			"Run: latency.hlog."),
		b.draw(figure.OverTime(b.run.Series, tl), "Median and 99th percentile of what ended in each second. Only messages intended in the measured "+
			"window count, so the warm-up is empty and what comes after the window are its late ones.", "Run: latency.hlog, an interval a second."),
		b.draw(figure.Load(b.run.Counters, s.Generator.LateLimitMS, tl), "Load and frames second by second, warm-up included.",
			"Run: counters.ndjson ÷ the length of each interval."))
	return out
}

package page

import (
	"imbench/reports/rundir"
)

// batching shows how much of the work the gateways did together: where the database's time goes, and what the model's
// inputs batch_size and fanout_reads are in truth.
var batching = []struct {
	name, unit string
	over, per  []string // sum of growth ÷ sum of growth; per nil = a second. A name that older runs have stands beside the present one
}{
	{"messages a commit", "messages", []string{`im_batch_size_sum{batcher="send"}`}, []string{`im_batch_size_count{batcher="send"}`}},
	{"commits of messages", "1/s", []string{`im_batch_size_count{batcher="send"}`}, nil},
	{"time of such a commit's call", "ms", []string{`im_batch_seconds_sum{batcher="send"}`, `im_batch_busy_seconds_total{batcher="send"}`}, []string{`im_batch_size_count{batcher="send"}`}},
	{"sends that met a locked conversation", "1/s", []string{"im_send_contended_total"}, nil},
	{"acks a write", "acks", []string{`im_batch_size_sum{batcher="ack"}`}, []string{`im_batch_size_count{batcher="ack"}`}},
	{"time of such a write", "ms", []string{`im_batch_seconds_sum{batcher="ack"}`, `im_batch_busy_seconds_total{batcher="ack"}`}, []string{`im_batch_size_count{batcher="ack"}`}},
	{"syncs a call", "syncs", []string{`im_batch_size_sum{batcher="sync"}`}, []string{`im_batch_size_count{batcher="sync"}`}},
	{"announcements a notification", "1", []string{"im_bus_announced_total"}, []string{"im_bus_notifies_total"}},
	{"reads of the fan-out a message", "reads", []string{"im_fanout_event_reads_total", "im_fanout_member_reads_total"}, []string{"im_events_committed_total"}},
	{"announced → written to a connection, mean", "ms", []string{"im_fanout_seconds_sum"}, []string{"im_fanout_seconds_count"}},
	{"hints of the repair sweep", "1/s", []string{"im_sweep_hints_total"}, nil},
	{"queues that collapsed into hints", "1/s", []string{"im_queue_collapses_total"}, nil},
	{"writes that found a full socket", "1/s", []string{"im_full_sockets_total"}, nil},
}

func (b *builder) serverTable() table {
	t := table{Caption: "What the gateways did together", Head: columns("figure", ">value", "unit"),
		Origin: "Run: server.ndjson, growth of the counters between the first and the last reading in the measured window, all gateways summed."}
	growth, seconds := b.growth()
	if seconds == 0 {
		return t
	}
	sum := func(names []string) (v float64, ok bool) {
		for _, n := range names {
			g, is := growth[n]
			v, ok = v+g, ok || is
		}
		return v, ok
	}
	for _, f := range batching {
		v, ok := sum(f.over)
		per := seconds
		if f.per != nil {
			per, _ = sum(f.per)
		}
		text := noData
		if ok && per > 0 {
			if f.unit == "ms" {
				v *= 1000 // the gateways count seconds
			}
			text = num(v / per)
		}
		t.Rows = append(t.Rows, cells(f.name, text, f.unit))
	}
	return t
}

// growth of each counter in the measured window, summed over the sources that were read at least twice in it; seconds is
// the longest time between two such readings.
func (b *builder) growth() (growth map[string]float64, seconds float64) {
	window := b.run.Manifest.Window
	if window == nil {
		return nil, 0
	}
	first, last := map[string]rundir.ServerLine{}, map[string]rundir.ServerLine{}
	for _, l := range b.run.Server {
		if l.Values == nil || l.T < window.From || l.T >= window.To {
			continue
		}
		if _, ok := first[l.Source]; !ok {
			first[l.Source] = l
		}
		last[l.Source] = l
	}
	growth = map[string]float64{}
	for source, end := range last {
		begin := first[source]
		seconds = max(seconds, end.T-begin.T)
		for name, v := range end.Values {
			if before, ok := begin.Values[name]; ok {
				growth[name] += v - before
			}
		}
	}
	return growth, seconds
}

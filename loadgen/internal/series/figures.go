// Package series turns the summaries of several runs into what a series says of each figure: how far the runs of one
// scenario lie apart, and what differs between two variants that ran in pairs.
//
// Pure functions, safe for concurrent use.
package series

import (
	"strings"

	"imbench/model/capacity"
	"imbench/reports/rundir"
)

// Figure is one figure of one run. OK false: the run had no data for it.
type Figure struct {
	Name, Unit string
	Less       bool // less of it is better
	More       bool // more of it is better; neither: it says nothing of good and bad
	Value      float64
	OK         bool
}

// Counted says whether a run's figures may be used: it was driven to its end, honestly. One that missed a criterion, or
// broke a promise, was.
func Counted(v rundir.Verdict) bool {
	return v == rundir.Passed || v == rundir.Missed || v == rundir.Broken
}

// latencies are those that a series follows; others of a run are in its summary.
var latencies = []string{rundir.SendIntended, rundir.Deliver, rundir.DeliverRepaired, rundir.Sync, rundir.Ack}

// perMessage are measured rates (frames and bytes are those to devices) that are told for each committed message, so that they compare between loads.
var perMessage = []struct{ name, rate, unit string }{
	{"frames/message", capacity.DownFrames, ""},
	{"bytes/message", capacity.DownBytes, "B"},
	{"acks/message", capacity.AckFrames, ""},
	{"syncs/message", capacity.SyncFrames, ""},
	{"cursor rows/message", capacity.CursorRows, ""},
}

// Figures are what a series follows of one run, always the same ones in the same order, and then those that the criteria
// name besides.
func Figures(s rundir.Summary) []Figure {
	list := []Figure{{Name: "achieved_rate", Unit: "1/s", More: true, Value: s.AchievedRate, OK: s.Offered > 0}}
	for _, name := range latencies {
		m := s.Metrics[name]
		list = append(list,
			Figure{Name: name + ".p50", Unit: "ms", Less: true, Value: m.P50, OK: m.Count > 0},
			Figure{Name: name + ".p99", Unit: "ms", Less: true, Value: m.P99, OK: m.Count > 0})
	}
	list = append(list, Figure{Name: "effective_ack", Unit: "events", More: true, Value: s.EffectiveAck, OK: s.EffectiveAck > 0})
	list = append(list, traffic(s)...)
	list = append(list, processes(s)...)
	late := s.Metrics[rundir.Late]
	list = append(list, Figure{Name: rundir.Late + ".p99", Unit: "ms", Value: late.P99, OK: late.Count > 0})
	for _, c := range s.Criteria {
		if c.Metric == "achieved_rate" || has(list, c.Metric) {
			continue
		}
		f := Figure{Name: c.Metric, Unit: c.Unit, Less: c.Op == "<=", More: c.Op == ">="}
		if c.Value != nil {
			f.Value, f.OK = *c.Value, true
		}
		list = append(list, f)
	}
	return list
}

func has(list []Figure, name string) bool {
	for _, f := range list {
		if f.Name == name {
			return true
		}
	}
	return false
}

// traffic are frames, bytes and rows for each message. Less of them is better: they are what a message costs.
func traffic(s rundir.Summary) (list []Figure) {
	measured := map[string]*float64{}
	for _, p := range s.Predictions {
		measured[p.Name] = p.Measured
	}
	messages := measured[capacity.Messages]
	for _, t := range perMessage {
		f := Figure{Name: t.name, Unit: t.unit, Less: true}
		if rate := measured[t.rate]; rate != nil && messages != nil && *messages > 0 {
			f.Value, f.OK = *rate / *messages, true
		}
		list = append(list, f)
	}
	return list
}

// processes are CPU time for each message, and the gateways' memory. A target's processes are not seen, and a window of a
// second or two has no two looks at any: 0 is no data.
func processes(s rundir.Summary) (list []Figure) {
	cpu, memory := map[string]float64{}, 0.0
	for _, p := range s.Processes {
		role := p.Role
		if strings.HasPrefix(role, "gateway") {
			role = "gateways"
			memory += float64(p.RSSMaxBytes) / (1 << 20)
		}
		cpu[role] += p.CPUCores
	}
	for _, x := range []struct{ role, name string }{{"loadgen", "generator CPU/message"}, {"gateways", "gateway CPU/message"}, {"postgres", "database CPU/message"}} {
		f := Figure{Name: x.name, Unit: "µs", Less: true, OK: cpu[x.role] > 0 && s.AchievedRate > 0}
		if f.OK {
			f.Value = cpu[x.role] / s.AchievedRate * 1e6
		}
		list = append(list, f)
	}
	return append(list, Figure{Name: "gateway memory, max", Unit: "MiB", Less: true, Value: memory, OK: memory > 0})
}

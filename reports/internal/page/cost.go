package page

import (
	"fmt"
	"math"
	"strings"

	"imbench/reports/internal/figure"
	"imbench/reports/rundir"
)

// estimate is what a cost of the baseline was expected to be, in cores at baselineRate, from prototypes measured before
// there was a gateway.
type estimate struct {
	name, where string
	low, high   float64
}

const baselineRate = 1250 // messages/s

var estimates = []estimate{
	{"SQL of sends, at a batch of about 5", "database", 0.31, 0.50},
	{"acknowledgements, 2 500/s", "database", 0.13, 0.13},
	{"reads of the fan-out", "database", 0.06, 0.19},
	{"syncs of repairs", "database", 0.16, 0.16},
	{"8 800 push writes/s", "gateways", 0.11, 0.11},
	{"round trips of acks and sends", "gateways, generator", 0.20, 0.20},
	{"reads of the generator", "generator", 0.11, 0.11},
}

func (b *builder) costs() section {
	out := section{ID: "cost", Title: "Processor and memory"}
	list := b.run.Summary.Processes
	if len(list) == 0 {
		out.Lead = []string{"The run has no figures of processes: on a target they are the operator's to measure."}
		return out
	}
	out.Lead = []string{"Estimates come from prototypes measured one by one before the whole existed, at 1 250 messages/s; here they are scaled by the " +
		"achieved rate, which assumes that cost is proportional to messages."}
	use := b.processTable(list)
	costs := b.estimateTable(list)
	out.Blocks = []block{{Table: &use}, {Table: &costs}}
	if t := b.serverTable(); len(t.Rows) > 0 {
		out.Blocks = append(out.Blocks, block{Table: &t})
	}
	out.Blocks = append(out.Blocks, b.draw(figure.Processes(b.run.Processes, b.run.timeline()),
		"Processor cores in use and resident memory of each process.", "Run: processes.ndjson, a reading a second."))
	return out
}

func cores3(v float64) string { return fmt.Sprintf("%.3f", v) }

// micros are microseconds of processor time a message.
func (b *builder) micros(cores float64) string {
	if b.run.Summary.AchievedRate == 0 {
		return none
	}
	return num(math.Round(cores / b.run.Summary.AchievedRate * 1e6))
}

func (b *builder) processTable(list []rundir.ProcessUse) table {
	t := table{Caption: "Measured, by process", Head: columns("process", ">pid", ">cores, mean", ">CPU, µs/message", ">memory, max", ">kB a connection"),
		Origin: "Run: summary.json, mean of the measured window. Memory a connection is all of a process's memory ÷ its connections (a gateway's " +
			"share of them is taken as equal), so an upper bound."}
	var cores float64
	var rss int64
	for _, p := range list {
		cores += p.CPUCores
		rss += p.RSSMaxBytes
		each := none
		if n := b.connections(p.Role); n > 0 {
			each = num(float64(p.RSSMaxBytes) / 1000 / n)
		}
		t.Rows = append(t.Rows, cells(p.Role, fmt.Sprint(p.PID), cores3(p.CPUCores), b.micros(p.CPUCores), size(p.RSSMaxBytes), each))
	}
	total := cells("all", "", cores3(cores), b.micros(cores), size(rss), "")
	for i := range total {
		total[i].Class = "total"
	}
	t.Rows = append(t.Rows, total)
	return t
}

// connections that a process of this role holds; 0 where that has no meaning.
func (b *builder) connections(role string) float64 {
	n := float64(b.run.Manifest.Population.Connected)
	switch place(role) {
	case "generator":
		return n
	case "gateways":
		return n / float64(max(1, b.run.Manifest.Target.Gateways))
	}
	return 0
}

// place groups roles as the estimate does.
func place(role string) string {
	switch {
	case strings.HasPrefix(role, "gateway"):
		return "gateways"
	case strings.HasPrefix(role, "postgres"):
		return "database"
	case role == "loadgen" || role == "generator":
		return "generator"
	}
	return "other"
}

func (b *builder) estimateTable(list []rundir.ProcessUse) table {
	t := table{Caption: "Estimated, by cost", Head: columns("cost", "where", ">estimate, cores", ">at this rate", ">measured, cores"),
		Origin: "Assumption: estimates from prototypes on two cores. Measured: the processes above, which cannot be told apart by cost."}
	scale := b.run.Summary.AchievedRate / baselineRate
	between := func(low, high, factor float64) string {
		if low == high {
			return fmt.Sprintf("%.2f", low*factor)
		}
		return fmt.Sprintf("%.2f – %.2f", low*factor, high*factor)
	}
	add := func(class, name, where string, low, high float64, measured string) {
		r := cells(name, where, between(low, high, 1), between(low, high, scale), measured)
		for i := range r {
			r[i].Class = class
		}
		t.Rows = append(t.Rows, r)
	}
	measured := map[string]float64{}
	for _, p := range list {
		measured[place(p.Role)] += p.CPUCores
	}
	var db, rest estimate
	for _, e := range estimates {
		add("", e.name, e.where, e.low, e.high, "")
		sum := &rest
		if e.where == "database" {
			sum = &db
		}
		sum.low, sum.high = sum.low+e.low, sum.high+e.high
	}
	clients := measured["gateways"] + measured["generator"]
	add("total", "database", "", db.low, db.high, cores3(measured["database"]))
	add("total", "gateways and generator", "", rest.low, rest.high, cores3(clients))
	add("total", "all", "", db.low+rest.low, db.high+rest.high, cores3(measured["database"]+clients+measured["other"]))
	return t
}

// Package limits says which resource of a run was nearest to its end, from the run directory and two looks at the
// machine's CPU. It reads what was recorded and guesses nothing: a resource without a known bound is left out.
//
// Pure functions, but for Machine, which reads /proc/stat; all are safe for concurrent use.
package limits

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"imbench/reports/rundir"
)

// Full is the share from which a resource counts as limiting: what is used to nine tenths on average had none left at
// times.
const Full = 0.9

// Two of the resources: the generator's own lateness, and what processes that are no part of the run (the kernel's own among
// them) took of the machine.
const (
	GeneratorLate = "generator lateness"
	OtherCPU      = "CPU of others"
)

// Run is what is known of one run.
type Run struct {
	Manifest rundir.Manifest
	Summary  rundir.Summary
	Server   []rundir.ServerLine
	CPU      *CPU           // of the generator's machine in the window; nil = not known
	Limits   map[string]any // what a gateway says of its own limits (/admin/v1/info); what is missing is not known
}

// Find lists the resources, the fullest first.
func Find(r Run) []rundir.Limit {
	list := append(r.machine(), r.generator()...)
	list = append(list, r.gateways()...)
	list = append(list, r.batches()...)
	list = append(list, r.queues()...)
	for i := range list {
		if list[i].Bound > 0 {
			list[i].Used = list[i].Value / list[i].Bound
		}
	}
	list = slices.DeleteFunc(list, func(l rundir.Limit) bool { return math.IsNaN(l.Used) || math.IsInf(l.Used, 0) })
	slices.SortStableFunc(list, func(a, b rundir.Limit) int {
		switch {
		case a.Used > b.Used:
			return -1
		case a.Used < b.Used:
			return 1
		}
		return 0
	})
	return list
}

// Limiting picks what to blame from a list of Find: what was full, and the generator first if it was what failed. Empty:
// nothing that was observed was full.
func Limiting(list []rundir.Limit, generator bool) []rundir.Limit {
	var full []rundir.Limit
	for _, l := range list {
		switch {
		case generator && l.Resource == GeneratorLate:
			full = slices.Insert(full, 0, l)
		case l.Used >= Full:
			full = append(full, l)
		}
	}
	return full
}

// machine is the CPU of the machine that the generator runs on, with everything on it.
func (r Run) machine() []rundir.Limit {
	if r.CPU == nil || r.CPU.Cores == 0 {
		return nil
	}
	var own []string
	sum := 0.0
	for _, u := range r.uses() {
		own = append(own, fmt.Sprintf("%s %.2f", u.Role, u.CPUCores))
		sum += u.CPUCores
	}
	l := rundir.Limit{Resource: "machine CPU", Value: r.CPU.Busy, Bound: r.CPU.Cores, Unit: "cores"}
	others := max(0, r.CPU.Busy-sum)
	l.Note = fmt.Sprintf("of it %s, other processes and the kernel's own %.2f", strings.Join(own, ", "), others)
	if r.CPU.Stolen >= 0.01 {
		l.Note += fmt.Sprintf("; %.2f of it taken by other virtual machines", r.CPU.Stolen)
	}
	list := []rundir.Limit{l, {Resource: OtherCPU, Value: others, Bound: r.CPU.Cores, Unit: "cores"}}
	for _, u := range r.Summary.Processes {
		if u.Role == "postgres" {
			list = append(list, rundir.Limit{Resource: "database CPU", Value: u.CPUCores, Bound: r.CPU.Cores, Unit: "cores",
				Note: "against the whole machine"})
		}
	}
	return list
}

// uses are the run's processes, gateways as one.
func (r Run) uses() []rundir.ProcessUse {
	var list []rundir.ProcessUse
	for _, p := range r.Summary.Processes {
		if strings.HasPrefix(p.Role, "gateway") {
			p.Role = "gateways"
		}
		if i := slices.IndexFunc(list, func(u rundir.ProcessUse) bool { return u.Role == p.Role }); i >= 0 {
			list[i].CPUCores += p.CPUCores
		} else {
			list = append(list, p)
		}
	}
	return list
}

// generator is how late sends started, against what makes a run invalid.
func (r Run) generator() []rundir.Limit {
	g := r.Summary.Generator
	if g.LateLimitMS <= 0 {
		return nil
	}
	return []rundir.Limit{{Resource: GeneratorLate, Value: g.LateP99MS, Bound: g.LateLimitMS, Unit: "ms in the p99"}}
}

// gateways are the busiest gateway's threads. An embedded gateway has its share of the cores (server/local).
func (r Run) gateways() []rundir.Limit {
	if r.Manifest.Target.Kind != "embedded" || len(r.Manifest.Hosts) == 0 || r.Manifest.Target.Gateways == 0 {
		return nil
	}
	bound := max(1, r.Manifest.Hosts[0].CPUs/r.Manifest.Target.Gateways)
	worst := rundir.ProcessUse{}
	for _, p := range r.Summary.Processes {
		if strings.HasPrefix(p.Role, "gateway") && p.CPUCores >= worst.CPUCores {
			worst = p
		}
	}
	if worst.Role == "" {
		return nil
	}
	return []rundir.Limit{{Resource: "gateway CPU", Value: worst.CPUCores, Bound: float64(bound), Unit: "cores", Note: worst.Role + ", the busiest"}}
}

// batches are the calls to the store of each gateway: how much of the time one was under way, and how full they were.
func (r Run) batches() []rundir.Limit {
	var list []rundir.Limit
	for _, b := range []struct{ name, what string }{{"send", "send batches"}, {"ack", "ack batches"}} {
		label := `{batcher="` + b.name + `"}`
		busiest, fullest := 0.0, 0.0
		for _, s := range r.sources() {
			seconds := s.growth("im_batch_seconds_sum" + label)
			busiest = max(busiest, seconds/s.seconds())
			if calls := s.growth("im_batch_size_count" + label); calls > 0 {
				fullest = max(fullest, s.growth("im_batch_size_sum"+label)/calls)
			}
		}
		workers := max(1, r.told(b.name+"_workers")) * max(1, r.told("shards")) // each shard has so many
		if busiest > 0 {
			list = append(list, rundir.Limit{Resource: b.what, Value: busiest, Bound: workers, Unit: "under way at a time",
				Note: fmt.Sprintf("the busiest gateway; %.1f in a batch", fullest)})
		}
		if most := r.told("send_max_batch"); b.name == "send" && most > 0 && fullest > 0 {
			list = append(list, rundir.Limit{Resource: "send batch size", Value: fullest, Bound: most, Unit: "messages in the mean"})
		}
	}
	return list
}

// queues are the connections': the longest that was seen, and how many receivers were cut off or had their queues folded
// into hints.
func (r Run) queues() []rundir.Limit {
	longest, slow := 0.0, 0.0
	for _, s := range r.sources() {
		longest = max(longest, s.largest("im_queue_frames_max"))
		slow += s.growth(`im_closes_total{code="4008"}`) + s.growth("im_queue_collapses_total")
	}
	most := r.told("queue_frames")
	if most == 0 || longest == 0 {
		return nil
	}
	l := rundir.Limit{Resource: "connection queue", Value: longest, Bound: most, Unit: "frames, the longest seen"}
	if slow > 0 {
		l.Note = fmt.Sprintf("%.0f queues were folded into hints or their connections closed", slow)
	}
	return []rundir.Limit{l}
}

// told is a number among what a gateway says of its limits; 0 = it says none.
func (r Run) told(name string) float64 {
	v, _ := r.Limits[name].(float64)
	return v
}

// source is what one gateway told within the measured window, in order.
type source struct {
	t      []float64
	values []map[string]float64
}

// sources gives those that told at least two readings.
func (r Run) sources() []source {
	if r.Manifest.Window == nil {
		return nil
	}
	by := map[string]*source{}
	var order []string
	for _, l := range r.Server {
		if l.Values == nil || l.T < r.Manifest.Window.From || l.T > r.Manifest.Window.To {
			continue
		}
		if by[l.Source] == nil {
			by[l.Source] = &source{}
			order = append(order, l.Source)
		}
		s := by[l.Source]
		s.t, s.values = append(s.t, l.T), append(s.values, l.Values)
	}
	var list []source
	for _, name := range order {
		if len(by[name].t) > 1 {
			list = append(list, *by[name])
		}
	}
	return list
}

func (s source) seconds() float64 { return s.t[len(s.t)-1] - s.t[0] }

// growth of a counter between the first and the last reading; one that began again counts from there.
func (s source) growth(name string) float64 {
	sum, last := 0.0, s.values[0][name]
	for _, v := range s.values[1:] {
		if now := v[name]; now >= last {
			sum, last = sum+now-last, now
		} else {
			sum, last = sum+now, now
		}
	}
	return sum
}

func (s source) largest(name string) (m float64) {
	for _, v := range s.values {
		m = max(m, v[name])
	}
	return m
}

package figure

import (
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"

	"imbench/reports/rundir"
)

// mostProcesses are drawn; further ones are in the table only.
const mostProcesses = 12

// Processes shows CPU and memory of each process over the run. Source: processes.ndjson; the cores in use are the
// difference of CPU seconds between two lines ÷ the time between them.
func Processes(lines []rundir.ProcessLine, tl Timeline) *Drawing {
	cpu := newPanel("processor time", "", "cores")
	rss := newPanel("resident memory", "", "MiB")
	d := &Drawing{Name: "processes-over-time", height: 360, panels: []*plot.Plot{cpu, rss},
		Alt: "Processor cores and resident memory of each process over time."}
	names, byName := processes(lines)
	cpu.Add(phases{tl}, gridlines{}, phaseNames{tl})
	rss.Add(phases{tl}, gridlines{}, phaseNames{tl})
	var x, cores, mib span
	for i, name := range names {
		c, m := line{nil, lineStyle(i), secondsApart}, line{nil, lineStyle(i), secondsApart}
		for j, l := range byName[name] {
			at := tl.at(l.At)
			if !usable(at) || l.Gone {
				continue
			}
			x.add(at)
			if v := float64(l.RSSBytes) / (1 << 20); usable(v) {
				m.pts = append(m.pts, plotter.XY{X: at, Y: v})
				mib.add(v)
			}
			if j == 0 {
				continue
			}
			before := byName[name][j-1]
			if v := (l.CPUSec - before.CPUSec) / l.At.Sub(before.At).Seconds(); usable(v) && v >= 0 {
				c.pts = append(c.pts, plotter.XY{X: at, Y: v})
				cores.add(v)
			}
		}
		cpu.Add(c)
		rss.Add(m)
		d.legend = append(d.legend, entry{name, c})
	}
	for _, part := range []struct {
		p *plot.Plot
		y span
	}{{cpu, cores}, {rss, mib}} {
		if !part.y.some {
			empty(part.p)
			continue
		}
		setLinear(&part.p.Y, 0, part.y.hi*1.2)
	}
	if x.some {
		tl.share(d.panels, x)
		d.legend = append(d.legend, tl.faultLegend()...)
	}
	return d
}

// processes are the lines of the first mostProcesses, by name and in the order of their coming; the second of a role has
// its pid in its name.
func processes(lines []rundir.ProcessLine) (names []string, byName map[string][]rundir.ProcessLine) {
	byName = map[string][]rundir.ProcessLine{}
	for _, l := range lines {
		name := label(l.Role)
		if old := byName[name]; len(old) > 0 && old[0].PID != l.PID {
			name += " " + strconv.Itoa(l.PID)
		}
		if byName[name] == nil {
			if len(names) == mostProcesses {
				continue
			}
			names = append(names, name)
		}
		byName[name] = append(byName[name], l)
	}
	return names, byName
}

package app

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"imbench/loadgen/internal/driver"
	"imbench/loadgen/internal/population"
	"imbench/loadgen/internal/scenario"
	"imbench/model/capacity"
	"imbench/reports/rundir"
)

const explainLabel = 12 // columns

// explain prints what a scenario would do, what the model predicts of it, and what it needs; nothing is started.
func explain(w io.Writer, sc *scenario.Scenario, o options) error {
	if o.brought.given() {
		return explainBrought(w, sc, o)
	}
	pop, err := population.Build(sc, sc.Seed, "r00000000")
	if err != nil {
		return &exitError{ExitUsage, err}
	}
	plan, err := population.NewPlan(pop, sc, sc.Seed)
	if err != nil {
		return &exitError{ExitUsage, err}
	}
	predictions, expected, err := predict(sc, pop, plan)
	if err != nil {
		return &exitError{ExitUsage, err}
	}
	t := &sheet{width: textWidth(w)}
	t.text(sc.Name + ": " + sc.Description)
	t.text("")
	explainTarget(t, sc, o)
	explainPopulation(t, sc, pop)
	explainLoad(t, sc, plan, expected)
	explainDevices(t, sc)
	explainPhases(t, sc, "provisioning")
	explainRules(t, sc)
	explainNeeds(t, sc, pop, expected, o)
	t.predictions(predictions.Predictions)
	_, err = io.WriteString(w, t.b.String())
	return err
}

// explainRules is what is done to the system, and what decides.
func explainRules(t *sheet, sc *scenario.Scenario) {
	for _, f := range sc.Faults {
		t.row("faults", "at %v of the measured window: %s", f.At, f)
	}
	for _, c := range sc.Criteria {
		t.row("criteria", "%s", c)
	}
	t.row("criteria", "no delivery promise broken, in any case")
	for _, rule := range sc.Abort {
		t.row("aborts if", "%s", rule)
	}
}

func explainTarget(t *sheet, sc *scenario.Scenario, o options) {
	if len(o.targets) > 0 {
		t.row("drives", "%s; environments allowed: %s", strings.Join(o.targets, ", "), strings.Join(allowed(sc, o), ", "))
		return
	}
	t.row("drives", "an embedded stack: a private PostgreSQL and %s (%s)", many(sc.Server.Gateways, "gateway"), strings.Join(sc.GatewayArgs(), " "))
}

func explainPopulation(t *sheet, sc *scenario.Scenario, pop *population.Population) {
	t.row("population", "%s, %s of which %s are connected, %s; digest %.16s", many(len(pop.Users), "user"), many(len(pop.Devices), "device"),
		grouped(sc.Population.ConnectedDevices), many(len(pop.Convs), "conversation"), population.Digest(pop))
	for _, k := range sc.GroupKinds() {
		way := "pushed"
		if k.Hinted(sc.Delivery) {
			way = fmt.Sprintf("hinted, read by %.3g %% of the devices", 100**k.ReadingShare)
		}
		if k.HintAbove != nil || k.OpenOnlyAbove != nil {
			hint, open := k.Thresholds(sc.Delivery)
			way += fmt.Sprintf("; thresholds of their own: hinted above %s, only where open above %s", threshold(hint), threshold(open))
		}
		t.row("groups", "%s of %d members, %s", grouped(k.Count), k.Size, way)
	}
	directs := 0
	for i := range pop.Convs {
		if pop.Convs[i].Kind == "direct" {
			directs++
		}
	}
	t.row("directs", "%s, pushed", many(directs, "direct chat"))
}

// threshold is a size as a person reads it.
func threshold(members int) string {
	if members == 0 {
		return "no size"
	}
	return fmt.Sprintf("%d members", members)
}

func explainLoad(t *sheet, sc *scenario.Scenario, plan *population.Plan, e population.Expected) {
	l := sc.Load
	t.row("arrivals", "%s: %s to groups (%d active at a time), %s to direct chats (%d active), in bursts of %d", l.Arrivals, l.GroupRate, l.ActiveGroups,
		l.DirectRate, l.ActiveDirects, l.Burst)
	t.row("arrivals", "%s in all, %s in the measured window; seed %d, digest %.16s", many(int(e.Total), "message"), grouped(int(e.Window)), sc.Seed, plan.Digest())
	asked := func(stream population.Arrivals) string {
		window, total := plan.Asked(stream)
		return fmt.Sprintf(": %s in all, %s in the measured window", many(int(total), "request"), grouped(int(window)))
	}
	explainAsks(t, l, func() string { return asked(plan.Fetches()) }, func() string { return asked(plan.Lists()) })
	explainShape(t, l)
}

// explainAsks is what devices ask for besides; fetches and lists say how many there will be.
func explainAsks(t *sheet, l scenario.Traffic, fetches, lists func() string) {
	if l.FetchRate > 0 {
		t.row("asks", "%s for single events that the device has (fetch)%s", l.FetchRate, fetches())
	}
	if l.ConvsRate > 0 {
		t.row("asks", "%s for the list of conversations (convs)%s", l.ConvsRate, lists())
	}
}

// explainShape is how rates and bodies are, whoever sends.
func explainShape(t *sheet, l scenario.Traffic) {
	for i, line := range l.Lines() {
		if i == maxExplained {
			t.row("stages", "and %d more", len(l.Stages)-i)
			break
		}
		factor := fmt.Sprintf("× %.4g", line.Begin)
		if line.End != line.Begin {
			factor += fmt.Sprintf(" to × %.4g", line.End)
		}
		t.row("stages", "from %s to %s of the load: rates %s", seconds(line.From), seconds(line.To), factor)
	}
	if len(l.Bodies) == 0 {
		t.row("bodies", "%d bytes", l.BodyBytes)
	}
	for i, b := range l.Bodies {
		if i == maxExplained {
			t.row("bodies", "and %d more kinds", len(l.Bodies)-i)
			break
		}
		size := fmt.Sprintf("%d bytes", b.Bytes)
		if b.Sigma > 0 {
			size = fmt.Sprintf("lognormal, median %d bytes, sigma %.3g, at most %d", b.Bytes, b.Sigma, b.Max)
		}
		t.row("bodies", "weight %.4g: %s", b.Weight, size)
	}
}

// maxExplained bounds what is listed one by one.
const maxExplained = 20

func explainDevices(t *sheet, sc *scenario.Scenario) {
	d := sc.Devices
	t.row("devices", "acknowledge every %d events or after %v; lose %.3g %% of the pushes; send again after %v without a reply", d.AckEvery, d.AckDelay,
		100*d.Loss, d.ResendAfter)
	if d.ReadReports > 0 {
		t.row("devices", "%.3g %% of them tell in each conversation what they have read, %v after a message; how often is not predicted", 100*d.ReadReports, d.ReadDebounce)
	}
	if d.Churn > 0 {
		t.row("devices", "%s of them leave and come back (about %.0f in all); of the predictions only messages and deliveries hold then", d.Churn,
			float64(d.Churn)*sc.Phases.LoadTime().Seconds())
	}
}

// explainPhases is how long a run takes after what comes before them.
func explainPhases(t *sheet, sc *scenario.Scenario, before string) {
	p := sc.Phases
	connect := time.Duration(float64(sc.Population.ConnectedDevices) / float64(sc.Devices.ConnectRate) * float64(time.Second)).Round(100 * time.Millisecond)
	t.row("phases", "connect %v, warm-up %v, measure %v, tail %v, settle up to %v: %v to %v after %s", connect, p.Warmup, p.Measure, p.Tail, p.Settle,
		connect+p.LoadTime(), connect+p.LoadTime()+p.Settle, before)
}

// sheet is a table of labels and texts, wrapped at width columns. Rows of one label name it once.
type sheet struct {
	b     strings.Builder
	width int
	last  string
}

func (t *sheet) text(s string) { t.wrap("", s) }

func (t *sheet) row(label, format string, args ...any) {
	shown := label
	if label == t.last {
		shown = ""
	}
	t.last = label
	t.wrap(fmt.Sprintf("%-*s", explainLabel, shown), fmt.Sprintf(format, args...))
}

func (t *sheet) wrap(mark, text string) {
	t.b.WriteString(mark)
	column := len(mark)
	for i, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case i > 0 && column+1+n > t.width:
			t.b.WriteString("\n" + strings.Repeat(" ", len(mark)))
			column = len(mark)
		case i > 0:
			t.b.WriteByte(' ')
			column++
		}
		t.b.WriteString(word)
		column += n
	}
	t.b.WriteByte('\n')
}

func (t *sheet) predictions(list []rundir.Prediction) {
	t.text("")
	t.text("Predicted for the measured window: by the model with its 95 % interval, and by this plan")
	t.b.WriteString(fmt.Sprintf("%-24s %-8s %14s %27s %12s\n", "figure", "unit", "model", "95 % interval", "plan"))
	for _, f := range list {
		model, interval, planned := rundir.Number(f.Predicted), rundir.Number(f.Low)+" to "+rundir.Number(f.High), "-"
		if f.NotPredicted {
			model, interval = "not predicted", ""
		}
		if f.Planned != nil {
			planned = rundir.Number(*f.Planned)
		}
		t.b.WriteString(fmt.Sprintf("%-24s %-8s %14s %27s %12s\n", f.Name, f.Unit, model, interval, planned))
	}
	told := map[string]bool{}
	for _, f := range list {
		if f.NotPredicted && !told[f.Note] {
			told[f.Note] = true
			t.text("Not predicted: " + f.Note + ".")
		}
	}
}

// many is a number with its noun: "1 gateway", "9 000 users".
func many(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return grouped(n) + " " + noun
}

// grouped writes 1234567 as "1 234 567".
func grouped(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + " " + s[i:]
	}
	return s
}

func seconds(s float64) string { return time.Duration(s * float64(time.Second)).String() }

// megabytes of a number of bytes, with one digit that counts at the least.
func megabytes(bytes float64) string {
	if mb := bytes / 1e6; mb >= 10 {
		return grouped(int(mb+0.5)) + " MB"
	}
	return fmt.Sprintf("%.2g MB", bytes/1e6)
}

func explainNeeds(t *sheet, sc *scenario.Scenario, pop *population.Population, e population.Expected, o options) {
	n := sc.Population.ConnectedDevices
	need := needs(sc, pop, e)
	where, here := "this process", "here"
	if w := o.fleet.workers; o.fleet.shared() {
		where, here = fmt.Sprintf("each of %s", many(w, "worker")), fmt.Sprintf("in %s and this process", many(w, "worker"))
		need.memory += float64(w) * (processMemory + need.population) // each has all of it
	}
	t.row("needs", "open files: %s in %s, and %s over the gateways", grouped(driver.FilesNeeded((n+o.fleet.workers-1)/max(1, o.fleet.workers))), where, grouped(n))
	t.row("needs", "ports: %s at a time, one a device; on loopback from 32 addresses, elsewhere a source address has about 28 000 for each target", grouped(n))
	if len(o.targets) == 0 && sc.HarmsNetwork() {
		t.row("needs", "open files: %s in the process that harms the network", grouped(driver.FilesNeeded(2*n)))
	}
	t.row("needs", "memory, about: %s %s, %s in the gateways", megabytes(need.memory), here, megabytes(need.gateways))
	if len(o.targets) == 0 {
		t.row("needs", "disk, about: %s for the run directory, %s for the private database while it runs", megabytes(need.runDir), megabytes(need.database))
		return
	}
	t.row("needs", "disk, about: %s for the run directory; the target's database grows by about %s", megabytes(need.runDir), megabytes(need.database))
}

// need is what a run takes, in bytes; estimates from what runs of the baseline and of smoke took, good to a factor of two.
type need struct{ memory, population, gateways, runDir, database float64 }

// processMemory is what a process takes before it has devices.
const processMemory = 40e6

func needs(sc *scenario.Scenario, pop *population.Population, e population.Expected) need {
	seats, cursors := 0.0, 0.0
	for _, c := range pop.Convs {
		seats += float64(len(c.Members))
		for _, u := range c.Members {
			cursors += float64(len(pop.Users[u].Devices))
		}
	}
	connected, messages := float64(sc.Population.ConnectedDevices), float64(e.Total)
	acks := 0.0
	if e.Window > 0 {
		acks = e.Figures[capacity.CursorRows] / e.Figures[capacity.EventRows] * messages
	}
	seconds := (sc.Phases.LoadTime() + sc.Phases.Settle).Seconds()
	population := 200 * (seats + float64(len(pop.Users)+len(pop.Convs)))
	return need{
		memory: processMemory + 12e3*connected + population, population: population,
		gateways: float64(sc.Server.Gateways)*30e6 + 16e3*connected,
		runDir:   50e3 + seconds*(3e3+4e3*float64(sc.Server.Gateways)),
		// What is provisioned, a message's row with its indexes, and the log, of which PostgreSQL keeps max_wal_size.
		database: 40e6 + 300*cursors + 600*seats + 700*messages + min(1.1e9, 900*messages+300*acks),
	}
}

package app

import (
	"context"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"imbench/loadgen/internal/limits"
	"imbench/loadgen/internal/population"
	"imbench/loadgen/internal/scenario"
	"imbench/loadgen/internal/search"
	"imbench/loadgen/internal/series"
	"imbench/reports/rundir"
)

// probeSettle is how long the runs of a search may wait for deliveries at least: beyond its limit a system needs longer
// than the scenario allows a healthy one, and late is not lost.
const probeSettle = time.Minute

// search finds the highest multiple of the scenario's rates that meets its criteria; see package search for how.
func (c *campaign) search(ctx context.Context) (int, error) {
	highest, err := c.searchable()
	if err != nil {
		return ExitUsage, err
	}
	p := c.options.series.probes
	s := search.New(search.Config{Resolution: p.resolution, Lowest: c.lowest(), Highest: highest, Retries: p.retries})
	doc := rundir.SearchDocument{Rate: c.rate(), Resolution: p.resolution, Probes: []rundir.Probe{}}
	whole := func() rundir.SearchDocument {
		doc.SeriesHead, doc.Answer = c.head, c.answer(s.Answer(), doc.Probes, highest)
		return doc
	}
	err = c.begin("search", rundir.SearchFile, func() any { return whole() },
		func(w io.Writer, width int) error { return rundir.RenderSearch(w, whole(), width) })
	if err != nil {
		return ExitError, err
	}
	var attempts []attempt
	for trial, more := s.Next(); more; trial, more = s.Next() {
		probe, summary, err := c.probe(ctx, trial, len(doc.Probes)+1)
		if err != nil {
			return ExitUsage, err
		}
		attempts = append(attempts, attempt{trial.Multiple, summary})
		if probe.Outcome != rundir.ProbeNone {
			s.Report(c.reported(trial, &probe, attempts))
		}
		doc.Probes = append(doc.Probes, probe)
		if err := c.save(); err != nil {
			return ExitError, err
		}
		if probe.Outcome == rundir.ProbeNone || ctx.Err() != nil {
			break
		}
	}
	c.concludeSearch(s.Answer(), doc.Probes)
	return c.end()
}

// searchable refuses a scenario without a steady load or an answer, and gives the highest multiple that can be tried.
func (c *campaign) searchable() (highest float64, err error) {
	if len(c.base.Faults) > 0 {
		return 0, fail(ExitUsage, "-search: the scenario has faults, and short probes have no room for their timeline; search without them, then run it at the rate that was found")
	}
	if len(c.base.Criteria) == 0 {
		return 0, fail(ExitUsage, "-search: the scenario has no criteria, so every rate would do")
	}
	return c.plannable(c.options.series.probes.highest)
}

// rate is the scenario's, in messages/s.
func (c *campaign) rate() float64 { return float64(c.base.Load.GroupRate + c.base.Load.DirectRate) }

// scaled are the settings that multiply the load by m. The active sets grow with the rates: each active conversation then
// speaks as often as before, so that bursts, and with them what an acknowledgement covers and a batch holds, keep their
// shape. Users, devices and connections stay.
func (c *campaign) scaled(m float64) []string {
	l := c.base.Load
	set := []string{}
	rate := func(name string, r scenario.Rate) {
		set = append(set, fmt.Sprintf("load.%s=%s/s", name, strconv.FormatFloat(float64(r)*m, 'g', 6, 64)))
	}
	active := func(name string, n int) {
		if n > 0 {
			set = append(set, fmt.Sprintf("load.%s=%d", name, max(1, int(math.Round(float64(n)*m)))))
		}
	}
	rate("group_rate", l.GroupRate)
	rate("direct_rate", l.DirectRate)
	if l.FetchRate > 0 {
		rate("fetch_rate", l.FetchRate)
	}
	if l.ConvsRate > 0 {
		rate("convs_rate", l.ConvsRate)
	}
	active("active_groups", l.ActiveGroups)
	active("active_directs", l.ActiveDirects)
	return set
}

// plannable is the highest multiple up to most for which the population has enough conversations, within a per cent.
func (c *campaign) plannable(most float64) (float64, error) {
	pop, err := population.Build(c.base, c.base.Seed, "r00000000")
	if err != nil {
		return 0, &exitError{ExitUsage, err}
	}
	try := func(m float64) error {
		sc, err := c.vary(c.options, c.scaled(m)...)
		if err == nil {
			_, err = population.NewPlan(pop, sc, sc.Seed)
		}
		return err
	}
	if err := try(1); err != nil {
		return 0, &exitError{ExitUsage, err}
	}
	if try(most) == nil {
		return most, nil
	}
	low, high := 1.0, most
	for high/low > 1.01 {
		if mid := math.Sqrt(low * high); try(mid) == nil {
			low = mid
		} else {
			high = mid
		}
	}
	return low, nil
}

// probe makes one run of the search.
func (c *campaign) probe(ctx context.Context, t search.Trial, number int) (rundir.Probe, *rundir.Summary, error) {
	settings := c.scaled(t.Multiple)
	if !t.Long {
		p := c.options.series.probes
		settings = append(settings, "phases.warmup="+min(p.warmup, c.base.Phases.Warmup).String(), "phases.measure="+min(p.measure, c.base.Phases.Measure).String())
	}
	settings = append(settings, "phases.settle="+max(probeSettle, c.base.Phases.Settle).String())
	sc, err := c.vary(c.options, settings...)
	if err != nil {
		return rundir.Probe{}, nil, err
	}
	what := fmt.Sprintf("probe %d: %.3f times the scenario's rate, %.4g messages/s, %s measured", number, t.Multiple, t.Multiple*c.rate(), sc.Phases.Measure)
	c.say("%s", what)
	x, err := c.one(ctx, c.options, sc, settings)
	if err != nil {
		return rundir.Probe{}, nil, err
	}
	c.report(x, what)
	return rundir.Probe{SeriesRun: x.SeriesRun, Multiple: t.Multiple, Rate: t.Multiple * c.rate(), Long: t.Long,
		Outcome: c.outcome(x), Limits: c.limitsOf(x)}, x.summary, nil
}

// outcome is what a run says of its rate. A stack of our own that went down under the load did not hold it; a target that
// did is left alone.
func (c *campaign) outcome(x ran) string {
	switch x.Verdict {
	case rundir.Passed:
		return rundir.ProbeHeld
	case rundir.Missed, rundir.Broken, rundir.Aborted:
		return rundir.ProbeFailed
	case rundir.Invalid:
		return rundir.ProbeGenerator
	case rundir.Error:
		if x.code == ExitTarget && x.loaded && len(c.options.targets) == 0 {
			return rundir.ProbeFailed
		}
	}
	return rundir.ProbeNone
}

// limitsOf reads from the run directory what was used how far; nil if it cannot be read, which says nothing of the rate.
func (c *campaign) limitsOf(x ran) []rundir.Limit {
	if x.summary == nil || x.Run == "" {
		return nil
	}
	r, err := rundir.Open(filepath.Join(c.dir, x.Run))
	if err != nil {
		return nil
	}
	lines, _, err := r.Server()
	if err != nil {
		lines = nil
	}
	return limits.Find(limits.Run{Manifest: r.Manifest(), Summary: *x.summary, Server: lines, CPU: x.watch.to.Since(x.watch.from), Limits: x.told})
}

// answer turns the search's interval into figures and a sentence.
func (c *campaign) answer(a search.Answer, probes []rundir.Probe, highest float64) rundir.SearchAnswer {
	out := rundir.SearchAnswer{Confirmed: a.Confirmed}
	if a.Held > 0 {
		rate := a.Held * c.rate()
		out.Held, out.HeldRate = &a.Held, &rate
	}
	if a.Failed > 0 {
		rate := a.Failed * c.rate()
		out.Failed, out.FailedRate = &a.Failed, &rate
		out.By = map[search.Outcome]string{search.Failed: rundir.ProbeFailed, search.Generator: rundir.ProbeGenerator}[a.By]
	}
	var at *rundir.Probe
	for i := range probes {
		if a.Failed > 0 && probes[i].Multiple == a.Failed && probes[i].Outcome == out.By {
			at = &probes[i]
			out.Limiting = limits.Limiting(at.Limits, a.By == search.Generator)
		}
	}
	out.Text = answerText(out, at, c.rate(), c.ceiling(a, highest))
	if a.Done && a.Held == 0 && c.hopeless != "" { // what was full there is not what limits it
		out.Text, out.Limiting = "No rate that was tried was held: "+c.hopeless+".", nil
	}
	return out
}

// ceiling says why the search went no higher than what held, once it got there.
func (c *campaign) ceiling(a search.Answer, highest float64) string {
	switch {
	case a.Held < highest:
		return ""
	case highest < c.options.series.probes.highest:
		return " The population has no conversations for a higher rate with bursts of this shape."
	}
	return " -search-highest asked for no more."
}

// answerText is the answer in words; ceiling says why nothing higher was tried, if nothing failed.
func answerText(a rundir.SearchAnswer, at *rundir.Probe, base float64, ceiling string) string {
	name := func(m, rate float64) string {
		return fmt.Sprintf("%.4g messages/s (%.3f × the scenario's %.4g/s)", rate, m, base)
	}
	var text string
	switch {
	case a.Held == nil && a.Failed == nil:
		return "Nothing is known yet: no probe came to its end."
	case a.Held == nil:
		text = "No rate that was tried was held."
	case a.Confirmed:
		text = "Holds " + name(*a.Held, *a.HeldRate) + ", confirmed by a run of the scenario's full phases."
	default:
		text = "Held " + name(*a.Held, *a.HeldRate) + " in short probes; that is not confirmed."
	}
	if a.Failed == nil {
		return text + ceiling
	}
	if a.By == rundir.ProbeGenerator {
		text += " At " + name(*a.Failed, *a.FailedRate) + " the generator could not drive the load, so what the system would have held there is not known."
	} else {
		text += " Does not hold " + name(*a.Failed, *a.FailedRate) + "."
	}
	return text + limitingText(a.Limiting, at) + othersText(at)
}

// muchOthers is the share of a machine from which what else runs there is no longer small beside a few per cent of
// resolution, network interrupts of the run's own included.
const muchOthers = 0.15

// othersText warns of a machine that did other things.
func othersText(at *rundir.Probe) string {
	if at == nil {
		return ""
	}
	for _, l := range at.Limits {
		if l.Resource == limits.OtherCPU && l.Used >= muchOthers {
			return fmt.Sprintf(" Processes that are no part of the run took %.2f of %.0f cores meanwhile: a machine that does nothing else may hold more.", l.Value, l.Bound)
		}
	}
	return ""
}

// limitingText names the resource.
func limitingText(full []rundir.Limit, at *rundir.Probe) string {
	figure := func(l rundir.Limit) string {
		return fmt.Sprintf("%s, %.3g of %.3g %s (%.0f %%)", l.Resource, l.Value, l.Bound, l.Unit, 100*l.Used)
	}
	switch {
	case len(full) > 0:
		text := " Limiting: " + figure(full[0])
		if len(full) > 1 {
			text += "; full, too: " + figure(full[1])
		}
		return text + "."
	case at != nil && len(at.Limits) > 0:
		return " None of the resources that were observed was full there; the fullest was " + figure(at.Limits[0]) + "."
	}
	return " What limits it is not known: nothing could be observed."
}

// concludeSearch sets the verdict: passed if a rate is confirmed, missed if none was held, invalid if it was the generator
// that held none. An end before the answer, and a broken promise in any probe, win over these.
func (c *campaign) concludeSearch(a search.Answer, probes []rundir.Probe) {
	var verdicts []rundir.Verdict
	why := func(v rundir.Verdict, format string, args ...any) {
		verdicts = append(verdicts, v)
		c.head.Reasons = append(c.head.Reasons, fmt.Sprintf(format, args...))
	}
	for i, p := range probes {
		switch {
		case p.Verdict == rundir.Broken:
			why(rundir.Broken, "probe %d, at %.3f times the rate, broke a promise that no load excuses: %s", i+1, p.Multiple, reason(p.Reasons))
		case p.Outcome == rundir.ProbeNone:
			why(p.Verdict, "probe %d: %s", i+1, reason(p.Reasons))
		}
	}
	switch {
	case a.Done && a.Held == 0 && a.By == search.Generator:
		why(rundir.Invalid, "%s", because("the generator could not drive any rate that was tried", c.hopeless))
	case a.Done && a.Held == 0:
		why(rundir.Missed, "%s", because("no rate that was tried met the criteria", c.hopeless))
	case !a.Done:
		c.head.Reasons = append(c.head.Reasons, "the search did not come to its end: the interval is what was known by then")
		verdicts = append(verdicts, rundir.Interrupted)
	}
	c.head.Verdict, c.head.Complete = series.Worst(verdicts...), a.Done
}

// because adds a cause to a sentence, if there is one.
func because(what, cause string) string { return strings.TrimSuffix(what+": "+cause, ": ") }

func reason(reasons []string) string {
	if len(reasons) == 0 {
		return "no reason was given"
	}
	return reasons[0]
}

package app

import (
	"context"
	"fmt"
	"io"
	"slices"

	"imbench/loadgen/internal/scenario"
	"imbench/loadgen/internal/series"
	"imbench/reports/rundir"
)

// compare runs two variants in pairs, in the order ABBA: both runs of a pair have the same seed, and with it the same
// users, conversations and arrivals, so that the workload is no part of their difference; each pair has another.
func (c *campaign) compare(ctx context.Context) (int, error) {
	variants, n := c.options.series.variants, c.options.series.repeat
	aa, err := c.checkVariants(variants)
	if err != nil {
		return ExitUsage, err
	}
	doc := rundir.Comparison{Pairs: n, AA: aa, Runs: []rundir.ComparisonRun{}}
	for i, v := range variants {
		doc.Variants[i] = rundir.Variant{Name: v.name, Settings: v.set}
		if v.target != nil {
			doc.Variants[i].Targets = redactedEach(v.target.targets)
		}
	}
	pairs := make([]series.Pair, n)
	whole := func() rundir.Comparison {
		doc.SeriesHead, doc.Figures = c.head, series.Compare(pairs)
		return doc
	}
	err = c.begin("ab", rundir.ComparisonFile, func() any { return whole() },
		func(w io.Writer, width int) error { return rundir.RenderComparison(w, whole(), width) })
	if err != nil {
		return ExitError, err
	}
	var runs []rundir.SeriesRun
	plans := map[int]string{} // digest of the arrivals by pair
	doc.SamePlan = true
	order := series.Order(n)
	for i, side := range order {
		pair, v := i/2, variants[side]
		settings := append(slices.Clone(v.set), seedSetting(c.seed(pair)))
		sc, err := c.vary(c.of(v), settings...)
		if err != nil {
			return ExitUsage, err
		}
		what := fmt.Sprintf("run %d of %d, pair %d, %s", i+1, len(order), pair+1, v.name)
		c.say("%s, seed %d", what, sc.Seed)
		x, err := c.one(ctx, c.of(v), sc, settings)
		if err != nil {
			return ExitUsage, err
		}
		c.report(x, what)
		runs = append(runs, x.SeriesRun)
		doc.Runs = append(doc.Runs, rundir.ComparisonRun{SeriesRun: x.SeriesRun, Variant: v.name, Pair: pair + 1})
		if side == 0 {
			pairs[pair].A = figuresOf(x)
		} else {
			pairs[pair].B = figuresOf(x)
		}
		if known, ok := plans[pair]; ok && known != x.plan {
			doc.SamePlan = false
		}
		plans[pair] = x.plan
		if err := c.save(); err != nil {
			return ExitError, err
		}
		if stops(x.Verdict) || ctx.Err() != nil {
			break
		}
	}
	c.conclude(len(order), runs)
	return c.end()
}

// of gives the options of a variant's runs.
func (c *campaign) of(v variant) options {
	if v.target != nil {
		return *v.target
	}
	return c.options
}

// checkVariants refuses before anything runs what cannot be compared: a variant that is no scenario, two with
// different seeds, and settings of the server on a target, which has its own. aa: both are the same, whatever they are
// called.
func (c *campaign) checkVariants(variants []variant) (aa bool, err error) {
	var both [2]*scenario.Scenario
	for i, v := range variants {
		sc, err := c.vary(c.of(v), v.set...)
		if err != nil {
			return false, err
		}
		both[i] = sc
	}
	a, b := both[0], both[1]
	if a.Seed != b.Seed {
		return false, fail(ExitUsage, "-ab: the variants differ in their seed, so they would not have the same arrivals; -seed sets that of both")
	}
	if len(c.of(variants[0]).targets) > 0 && (!slices.Equal(a.GatewayArgs(), b.GatewayArgs()) || a.Server.Gateways != b.Server.Gateways) {
		return false, fail(ExitUsage, "-ab: the variants differ in settings of the gateways, which a target brings itself: compare two targets, or leave -target out")
	}
	return a.Same(b) && slices.Equal(c.of(variants[0]).targets, c.of(variants[1]).targets), nil
}

package app

import (
	"context"
	"fmt"
	"io"

	"imbench/loadgen/internal/series"
	"imbench/reports/rundir"
)

// repeat makes n runs of the scenario and says how far they lie apart. Each has a seed of its own, so that the interval is
// about the mix of the scenario and not about one draw of it; with -same-seed the spread is that of the machine alone.
func (c *campaign) repeat(ctx context.Context) (int, error) {
	n := c.options.series.repeat
	doc := rundir.Repeat{Seeds: "derived", Runs: []rundir.SeriesRun{}}
	if c.options.series.sameSeed {
		doc.Seeds = "same"
	}
	var figures [][]series.Figure
	whole := func() rundir.Repeat {
		doc.SeriesHead, doc.Figures = c.head, series.Repeat(figures)
		return doc
	}
	err := c.begin("repeat", rundir.RepeatFile, func() any { return whole() },
		func(w io.Writer, width int) error { return rundir.RenderRepeat(w, whole(), width) })
	if err != nil {
		return ExitError, err
	}
	for i := range n {
		settings := []string{seedSetting(c.seed(i))}
		sc, err := c.vary(c.options, settings...)
		if err != nil {
			return ExitUsage, err
		}
		c.say("run %d of %d, seed %d", i+1, n, sc.Seed)
		x, err := c.one(ctx, c.options, sc, settings)
		if err != nil {
			return ExitUsage, err
		}
		c.report(x, fmt.Sprintf("run %d of %d", i+1, n))
		doc.Runs, figures = append(doc.Runs, x.SeriesRun), append(figures, figuresOf(x))
		if err := c.save(); err != nil {
			return ExitError, err
		}
		if stops(x.Verdict) || ctx.Err() != nil {
			break
		}
	}
	c.conclude(n, doc.Runs)
	return c.end()
}

// figuresOf gives nil for a run that does not count.
func figuresOf(x ran) []series.Figure {
	if !x.Counted || x.summary == nil {
		return nil
	}
	return series.Figures(*x.summary)
}

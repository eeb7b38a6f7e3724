package app

import (
	"fmt"
	"io"
	"strings"
	"time"

	"imbench/loadgen/internal/scenario"
)

// explainSeries prints which runs the flags ask for; nothing for a single one.
func explainSeries(w io.Writer, sc *scenario.Scenario, o options) error {
	c := &campaign{program: Program{Stderr: io.Discard}, options: o, base: sc}
	p := o.series.probes
	switch {
	case o.series.search:
		highest, err := c.searchable()
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(w, "\nsearch      from %.4g messages/s, up to %.4g (%.3f times) if need be; short probes load for %s and more, a confirmation for %s\n",
			c.rate(), highest*c.rate(), highest, min(p.warmup, sc.Phases.Warmup)+min(p.measure, sc.Phases.Measure)+sc.Phases.Tail, sc.Phases.LoadTime())
		return err
	case o.series.ab != "":
		aa, err := c.checkVariants(o.series.variants)
		if err != nil {
			return err
		}
		for i, v := range o.series.variants {
			what := strings.Join(v.set, " ")
			if v.target != nil {
				what = strings.Join(v.target.targets, " ")
			}
			fmt.Fprintf(w, "%svariant %c   %s: %s\n", []string{"\n", ""}[i], 'A'+i, v.name, what)
		}
		kind := "ABBA"
		if aa {
			kind = "A/A (both variants are the same)"
		}
		_, err = fmt.Fprintf(w, "series      %d pairs, %s, %s; loaded for %s in all\n", o.series.repeat, kind, c.seedsText(), time.Duration(2*o.series.repeat)*sc.Phases.LoadTime())
		return err
	case o.series.repeat != 0:
		_, err := fmt.Fprintf(w, "\nseries      %d runs, %s; loaded for %s in all\n", o.series.repeat, c.seedsText(), time.Duration(o.series.repeat)*sc.Phases.LoadTime())
		return err
	}
	return nil
}

func (c *campaign) seedsText() string {
	if c.options.series.sameSeed {
		return fmt.Sprintf("seed %d in all", c.base.Seed)
	}
	return fmt.Sprintf("seeds %d to %d", c.seed(0), c.seed(c.options.series.repeat-1))
}

package rundir

import (
	"fmt"
	"io"
	"math"
	"strings"
)

// RenderRepeat writes a repetition as RenderSummary writes a run.
func RenderRepeat(w io.Writer, s Repeat, width int) error {
	r := renderer{width: max(width, 80)}
	r.seriesHead(s.SeriesHead, fmt.Sprintf("%d runs of %s", len(s.Runs), s.Scenario))
	rows := [][]string{{"run", "seed", "verdict"}}
	for _, x := range s.Runs {
		rows = append(rows, []string{s.short(x), fmt.Sprint(x.Seed), verdictCell(x)})
	}
	r.table(rows, "lrl")
	if len(s.Runs) == 2 {
		r.twoRuns(s)
		_, err := w.Write(r.b.Bytes())
		return err
	}
	rows = [][]string{{"figure", "min", "median", "max", "spread", "95 % interval"}}
	for _, f := range s.Figures {
		if f.Median == nil {
			rows = append(rows, []string{named(f.Name, f.Unit), "", NoData, "", "", ""})
			continue
		}
		rows = append(rows, []string{named(f.Name, f.Unit), figure(*f.Min), figure(*f.Median), figure(*f.Max),
			optional(f.Spread, share), between(f.Low, f.High, figure)})
	}
	r.table(rows, "lrrrrr")
	r.para("Spread: (max − min) ÷ median. The interval is that of the geometric mean (Student's t of the logarithms), or of the mean where a value is 0: "+
		"where the typical run lies; a figure of fewer than %d runs that count has none. %s", IntervalRuns, seedsText(s.Seeds))
	_, err := w.Write(r.b.Bytes())
	return err
}

// twoRuns sets two runs side by side.
func (r *renderer) twoRuns(s Repeat) {
	rows := [][]string{{"figure", "run 1", "run 2", "spread"}}
	for _, f := range s.Figures {
		row := []string{named(f.Name, f.Unit)}
		for _, v := range f.Values {
			if v == nil {
				row = append(row, NoData)
			} else {
				row = append(row, figure(*v))
			}
		}
		rows = append(rows, append(row, optional(f.Spread, share)))
	}
	r.table(rows, "lrrr")
	r.para("Spread: (max − min) ÷ median. Two runs give no interval: that needs at least %d that count (-repeat %[1]d). %s", IntervalRuns, seedsText(s.Seeds))
}

func seedsText(seeds string) string {
	if seeds == "same" {
		return "All runs had the same population and arrivals: the spread is the machine's alone."
	}
	return "Each run had a population and arrivals of its own: the spread is that of the workload and of the machine."
}

// RenderComparison writes a comparison likewise.
func RenderComparison(w io.Writer, c Comparison, width int) error {
	r := renderer{width: max(width, 80)}
	what := c.Scenario
	if c.AA {
		what += ", A/A"
	}
	r.seriesHead(c.SeriesHead, fmt.Sprintf("%s: A = %s, B = %s, %d pairs", what, c.Variants[0].Name, c.Variants[1].Name, c.Pairs))
	if c.AA {
		r.para("Both variants are the same (an A/A comparison): whatever differs is noise, and a verdict other than \"no difference\" a false alarm, as at most one comparison in twenty may have it.")
	}
	rows := [][]string{{"run", "pair", "variant", "seed", "verdict"}}
	for _, x := range c.Runs {
		rows = append(rows, []string{c.short(x.SeriesRun), fmt.Sprint(x.Pair), x.Variant, fmt.Sprint(x.Seed), verdictCell(x.SeriesRun)})
	}
	r.table(rows, "lrlrl")
	plan := "Both runs of a pair had the same users, conversations and arrivals"
	if !c.SamePlan {
		plan = "The runs of a pair had different arrivals, so that the difference is that of the workloads, too"
	}
	if c.Pairs < IntervalRuns {
		r.fewPairs(c, plan)
		_, err := w.Write(r.b.Bytes())
		return err
	}
	rows = [][]string{{"figure", "A", "B", "B vs A", "95 % interval", "B is"}}
	for _, f := range c.Figures {
		difference := figure
		if f.Relative {
			difference = share
		}
		rows = append(rows, []string{named(f.Name, f.Unit), optional(f.A, figure), optional(f.B, figure),
			optional(f.Mean, func(v float64) string { return signed(v, difference) }),
			between(f.Low, f.High, func(v float64) string { return signed(v, difference) }), f.Result})
	}
	r.table(rows, "lrrrrl")
	r.para("%s", "A and B are medians, the difference is the mean over the pairs. "+plan+"; the order was ABBA, so that a drift of the machine falls on both. "+
		"A verdict stands where the difference is more than noise for all figures looked at together (Holm, 5 %); \"no difference\" says that none larger than the noise was seen: the interval tells what may hide in it. "+fmt.Sprintf("\"too few pairs\" is a figure of fewer than %d pairs of which both runs count.", IntervalRuns))
	_, err := w.Write(r.b.Bytes())
	return err
}

// fewPairs sets the differences of two pairs side by side.
func (r *renderer) fewPairs(c Comparison, plan string) {
	head := []string{"figure", "A", "B"}
	for i := range c.Pairs {
		head = append(head, fmt.Sprintf("B vs A, pair %d", i+1))
	}
	rows := [][]string{head}
	for _, f := range c.Figures {
		difference := figure
		if f.Relative {
			difference = share
		}
		row := []string{named(f.Name, f.Unit), optional(f.A, figure), optional(f.B, figure)}
		for _, d := range f.Differences {
			if d == nil {
				row = append(row, NoData)
			} else {
				row = append(row, signed(*d, difference))
			}
		}
		rows = append(rows, row)
	}
	r.table(rows, "lrr"+strings.Repeat("r", c.Pairs))
	r.para("A and B are medians. %s; the order was ABBA. Two pairs give no interval and no verdict: those need at least %d of which both runs count (-repeat %[2]d).", plan, IntervalRuns)
}

// RenderSearch writes a search likewise, the answer first.
func RenderSearch(w io.Writer, s SearchDocument, width int) error {
	r := renderer{width: max(width, 80)}
	r.seriesHead(s.SeriesHead, fmt.Sprintf("the highest rate that %s holds", s.Scenario))
	r.para("%s", s.Answer.Text)
	rows := [][]string{{"probe", "multiple", "messages/s", "phases", "outcome", "fullest resource"}}
	for _, p := range s.Probes {
		phases, fullest, outcome := "short", "", p.Outcome
		if outcome == ProbeNone {
			outcome = string(p.Verdict)
		}
		if p.Long {
			phases = "full"
		}
		if len(p.Limits) > 0 {
			fullest = fmt.Sprintf("%s %.0f %%", p.Limits[0].Resource, 100*p.Limits[0].Used)
		}
		rows = append(rows, []string{s.short(p.SeriesRun), fmt.Sprintf("%.3f", p.Multiple), figure(p.Rate), phases, outcome, fullest})
	}
	r.table(rows, "lrrlll")
	if len(s.Answer.Limiting) > 0 {
		rows = [][]string{{"resource at the lowest rate that did not hold", "value", "bound", "used"}}
		for _, l := range s.Answer.Limiting {
			rows = append(rows, []string{l.Resource, figure(l.Value) + " " + l.Unit, figure(l.Bound) + " " + l.Unit, share(l.Used)})
		}
		r.table(rows, "lrrr")
		for _, l := range s.Answer.Limiting {
			if l.Note != "" {
				r.item(l.Resource + ": " + l.Note)
			}
		}
	}
	_, err := w.Write(r.b.Bytes())
	return err
}

func (r *renderer) seriesHead(s SeriesHead, what string) {
	verdict := strings.ToUpper(string(s.Verdict))
	if !s.Complete {
		verdict += ", not complete"
	}
	r.line("# %s: %s\n", what, verdict)
	for _, reason := range s.Reasons {
		r.item(reason)
	}
	if len(s.Reasons) > 0 {
		r.line("")
	}
}

// short is a run's directory without the scenario's name, which all have.
func (s SeriesHead) short(x SeriesRun) string { return strings.TrimPrefix(x.Run, s.Scenario+"-") }

func verdictCell(x SeriesRun) string {
	if x.Counted {
		return string(x.Verdict)
	}
	return string(x.Verdict) + ", not counted"
}

func named(name, unit string) string { return strings.TrimSpace(name + " " + unit) }

// share writes a share in per cent, a large one without decimals.
func share(v float64) string {
	if v >= 10 {
		return grouped(int64(math.Round(100*v))) + " %"
	}
	return fmt.Sprintf("%.1f %%", 100*v)
}

// signed puts a plus before what is more.
func signed(v float64, format func(float64) string) string {
	if v > 0 {
		return "+" + format(v)
	}
	return format(v)
}

func between(low, high *float64, format func(float64) string) string {
	if low == nil || high == nil {
		return "–"
	}
	return format(*low) + " … " + format(*high)
}

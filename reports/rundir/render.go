package rundir

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// RenderSummary writes the summary as text that is Markdown and reads well on a terminal, too; no line of a table is
// longer than width columns (at least 80).
func RenderSummary(w io.Writer, s Summary, width int) error {
	r := renderer{width: max(width, 80)}
	r.summary(s)
	_, err := w.Write(r.b.Bytes())
	return err
}

// renderer builds a summary as text.
type renderer struct {
	b      bytes.Buffer
	width  int
	github bool // for GitHub only: no line breaks within paragraphs, nothing that could be taken for markup
}

func (r *renderer) line(format string, args ...any) { fmt.Fprintf(&r.b, format+"\n", args...) }

func (r *renderer) summary(s Summary) {
	r.line("# %s: %s\n", s.Run, strings.ToUpper(string(s.Verdict)))
	r.outcome(s)
	r.criteria(s.Criteria)
	r.faults(s.Faults)
	r.metrics(s.Metrics, s.NotChecked)
	r.ledger(s.Ledger, s.Counted)
	r.predictions(s.Predictions)
	r.health(s, s.Generator, s.Processes)
	r.server(s.Server)
	r.notes(s.Notes)
}

// outcome says why the verdict is not passed, and what became of the sends.
func (r *renderer) outcome(s Summary) {
	for _, reason := range s.Reasons {
		r.item(reason)
	}
	if len(s.Reasons) > 0 {
		r.line("")
	}
	r.para("Sends in the window of %.4g s: %s offered, %s started, %s done, %s unfinished, %s failed%s. "+
		"Offered %.1f/s, achieved %.1f/s (%.2f %%). Events an ack: %s.",
		s.WindowS, grouped(s.Offered), grouped(s.Started), grouped(s.Done), grouped(s.Censored), grouped(total(s.Failed)), held(s.Held),
		s.OfferedRate, s.AchievedRate, 100*s.AchievedShare, effectiveAck(s))
}

func (r *renderer) notes(list []string) {
	if len(list) == 0 {
		return
	}
	r.head("Notes")
	for _, n := range list {
		r.item(n)
	}
}

// head begins a section; in a pull request headings are smaller.
func (r *renderer) head(title string) {
	if r.github {
		r.b.WriteString("##")
	}
	r.line("## %s\n", title)
}

func held(n int64) string {
	if n == 0 {
		return ""
	}
	return "; " + grouped(n) + " waited in their device first, for a connection or because of too many in flight"
}

func effectiveAck(s Summary) string {
	if s.NotChecked.Has("effective_ack") {
		return NotCheckedText
	}
	return fmt.Sprintf("%.2f%s", s.EffectiveAck, nominal(s.NominalAck))
}

func nominal(k float64) string {
	if k <= 0 {
		return ""
	}
	return fmt.Sprintf(" (nominal %g)", k)
}

func (r *renderer) criteria(list []Criterion) {
	if len(list) == 0 {
		return
	}
	rows := [][]string{{"criterion", "limit", "value", "result"}}
	for _, c := range list {
		value := NoData
		if c.Value != nil {
			value = c.figure(*c.Value)
		}
		rows = append(rows, []string{c.Metric, c.Op + " " + c.figure(c.Limit), value, c.Result})
	}
	r.head("Criteria")
	r.table(rows, "lrrl")
}

// figure is a value of the criterion with its unit. A share is in per cent, as scenarios write it.
func (c Criterion) figure(v float64) string {
	if share, of := strings.CutPrefix(c.Unit, "of "); of {
		return strconv.FormatFloat(math.Round(1e4*v)/100, 'f', -1, 64) + " % of " + share
	}
	return strings.TrimSpace(figure(v) + " " + c.Unit)
}

func (r *renderer) faults(list []Fault) {
	if len(list) == 0 {
		return
	}
	rows := [][]string{{"fault", "at, s", "took, s", "away", "back, s", "healed, s"}}
	for _, f := range list {
		rows = append(rows, []string{f.Fault, figure(f.AtS), optional(f.TookS, figure), grouped(f.Away), optional(f.BackS, figure),
			optional(f.HealedS, figure)})
	}
	r.head("Faults")
	if most := r.width - columns(rows) + widths(rows)[0]; columns(rows) > r.width && most > 8 {
		for _, row := range rows[1:] {
			if text := []rune(row[0]); len(text) > most {
				row[0] = string(text[:most-1]) + "…"
			}
		}
	}
	r.table(rows, "lrrrrr")
	for _, f := range list {
		switch {
		case f.Error != "":
			r.item(f.Fault + " was not done: " + f.Error)
		case f.Detail != "":
			r.item(f.Fault + ": " + f.Detail)
		}
	}
	if slices.ContainsFunc(list, func(f Fault) bool { return f.Error+f.Detail != "" }) {
		r.line("")
	}
	r.para("Away: most devices that were not connected at a time. Back and healed count from the beginning of the fault: until every device was connected again, and until all " +
		"that had been sent by then was confirmed and delivered to everyone.")
}

func (r *renderer) metrics(m map[string]Metric, notChecked Names) {
	rows := [][]string{{"latency, ms", "count", "p50", "p95", "p99", "p99.9", "max"}}
	for _, name := range Metrics() {
		x, ok := m[name]
		switch {
		case notChecked.Has(name):
			rows = append(rows, []string{name, NotCheckedText, "", "", "", "", ""})
		case !ok:
		case x.Count == 0:
			rows = append(rows, []string{name, "0", NoData, "", "", "", ""})
		default:
			rows = append(rows, []string{name, grouped(x.Count), figure(x.P50), figure(x.P95), figure(x.P99), figure(x.P999), figure(x.Max)})
		}
	}
	if len(rows) == 1 {
		return
	}
	r.head("Latencies")
	r.table(rows, "lrrrrrr")
	for _, name := range Metrics() {
		if x := m[name]; x.Negative+x.OverRange > 0 {
			r.para("%s: %d negative (not recorded), %d above the histogram's range.", name, x.Negative, x.OverRange)
		}
	}
}

func (r *renderer) ledger(l LedgerSummary, c *Counted) {
	r.head("Deliveries")
	r.para("%s messages, %s deliveries expected, %s delivered.", grouped(l.Messages), grouped(l.Expected), grouped(l.Delivered))
	is := func(name string, n int64) string {
		if l.NotChecked.Has(name) {
			return NotCheckedText
		}
		return grouped(n)
	}
	rows := [][]string{{"lost", "duplicated", "reordered", "leaked", "mismatched", "foreign", "unlogged"},
		{is("lost", l.Lost), is("duplicated", l.Duplicated), is("reordered", l.Reordered), is("leaked", l.Leaked),
			is("mismatched", l.Mismatched), is("foreign", l.Foreign), is("unlogged", l.Unlogged)}}
	r.table(rows, "rrrrrrr")
	for _, x := range []struct {
		name   string
		n      int64
		what   string
		always bool // a promise is shown also where it held
	}{
		{"logged_twice", l.LoggedTwice, "messages are in the log twice", true},
		{"log_gaps", l.LogGaps, "seqs are missing from the log", true},
		{"regressed", l.Regressed, "times a device was told less than had been confirmed as delivered to it", true},
		{"undelivered", l.Undelivered, "deliveries were still to come when the run ended: without a full settle they do not count as lost", false},
		{"unknown_unresolved", l.Unresolved, "sends have an outcome that could not be found out", false},
	} {
		switch {
		case l.NotChecked.Has(x.name):
			r.item("whether " + x.what + ": " + NotCheckedText)
		case x.n > 0 || x.always:
			r.item(grouped(x.n) + " " + x.what)
		}
	}
	repeats := is("wire_repeats", l.WireRepeats)
	how := "compared with an export of the log"
	if !l.Exported {
		how = "compared with the sent replies only: there was no export of the log"
	}
	r.item(fmt.Sprintf("%s; %s repeats on the wire, not applied; %s sends without an answer, %s of them committed", how,
		repeats, grouped(l.Unknown), grouped(l.Committed)))
	if c != nil {
		r.item(counted(*c))
	}
	r.line("")
}

// counted is the line that compares the server's count with ours.
func counted(c Counted) string {
	if c.Server == nil {
		return fmt.Sprintf("we counted %s messages; what the server counted is not known: %s", grouped(c.Ours), c.Note)
	}
	text := fmt.Sprintf("the server counted %s messages, we counted %s, all phases included", grouped(*c.Server), grouped(c.Ours))
	if c.Note != "" {
		text += ": " + c.Note
	}
	return text
}

func (r *renderer) predictions(list []Prediction) {
	if len(list) == 0 {
		return
	}
	rows := [][]string{{"figure", "unit", "predicted", "95 % interval", "planned", "measured", "error", "plan error"}}
	for _, p := range list {
		predicted, interval := p.predicted()
		rows = append(rows, []string{p.Name, p.Unit, predicted, interval,
			optional(p.Planned, figure), optional(p.Measured, figure), optional(p.Error, percent), optional(p.PlanError, percent)})
	}
	r.head("Predicted, measured, error")
	if columns(rows) <= r.width {
		r.table(rows, "llrrrrrr")
		return
	}
	// Too wide: the interval goes (summary.json has it).
	for i, row := range rows {
		rows[i] = slices.Concat(row[:3], row[4:])
	}
	if columns(rows) <= r.width {
		r.table(rows, "llrrrrr")
		return
	}
	// Still too wide: the unit is said where it is not 1/s and there is room.
	short := [][]string{{"figure", "predicted", "planned", "measured", "error %", "plan %"}}
	bare := func(v float64) string { return fmt.Sprintf("%+.2f", 100*v) }
	for _, p := range list {
		name := p.Name
		if long := name + " " + p.Unit; p.Unit != "1/s" && len(long) <= len("deliveries_per_message") {
			name = long
		}
		predicted := "–" // not predicted
		if !p.NotPredicted {
			predicted, _ = p.predicted()
		}
		short = append(short, []string{name, predicted, optional(p.Planned, figure), optional(p.Measured, figure),
			optional(p.Error, bare), optional(p.PlanError, bare)})
	}
	r.table(short, "lrrrrr")
}

// predicted is the prediction and its interval, as a person reads them.
func (p Prediction) predicted() (value, interval string) {
	if p.NotPredicted {
		return "not predicted", ""
	}
	return figure(p.Predicted), figure(p.Low) + "–" + figure(p.High)
}

// calibration says what the generator could do at most.
func (r *renderer) calibration(c *Calibration) {
	if c == nil {
		return
	}
	against := "against a null server"
	if n := len(c.Workers); n > 0 {
		against = fmt.Sprintf("%d workers at once, each against a null server of its own", n)
	}
	text := fmt.Sprintf("Before the run, %s: at most %s sends/s; with %d receivers each %s sends/s and %s frames/s received, on %s cores and the server's %s. "+
		"The run's rate is %.1f %% of that.", against, figure(c.SendsPerS), c.Fanout, figure(c.MixSendsPerS), figure(c.FramesPerS), figure(c.CPUCores), figure(c.ServerCores), 100*c.OfferedShare)
	if c.FloorSends > 0 {
		text += fmt.Sprintf(" Latency floor at %s sends/s: p50 %s ms, p99 %s ms.", figure(c.FloorRate), figure(c.FloorP50MS), figure(c.FloorP99MS))
	}
	r.para("%s", text)
}

func (r *renderer) health(s Summary, g Generator, list []ProcessUse) {
	r.head("Generator and processes")
	r.para("Sends started late: p50 %s ms, p99 %s ms, max %s ms; %.2f %% later than %s ms. Samples dropped: %d. "+
		"%s%s cores, longest GC pause %s ms, heap %s, %s goroutines.", figure(g.LateP50MS), figure(g.LateP99MS), figure(g.LateMaxMS),
		100*g.LateShare, figure(g.LateLimitMS), g.Dropped, limits(g), figure(g.CPUCores), figure(g.GCPauseMaxMS), size(g.HeapMaxBytes),
		grouped(g.Goroutines))
	r.calibration(s.Calibration)
	if len(list) == 0 {
		return
	}
	rows := [][]string{{"process", "pid", "CPU cores", "memory, max"}}
	for _, p := range list {
		rows = append(rows, []string{p.Role, fmt.Sprint(p.PID), figure(p.CPUCores), size(p.RSSMaxBytes)})
	}
	r.table(rows, "lrrr")
}

// limits says what is known of what could keep the generator from reading and sending.
func limits(g Generator) (s string) {
	if g.UnreadMeanMS != nil {
		s = fmt.Sprintf("Received bytes lay unread for %s ms on average, at most %s in a socket. ", figure(*g.UnreadMeanMS), grouped(g.UnreadMaxBytes))
	}
	if g.ThrottledShare > 0 {
		s += fmt.Sprintf("The CPU quota held it up for %.1f %% of the window. ", 100*g.ThrottledShare)
	}
	return s
}

// item writes a list entry, wrapped at the width.
func (r *renderer) item(text string) { r.wrap("- ", text) }

// para writes a paragraph, wrapped at the width.
func (r *renderer) para(format string, args ...any) {
	r.wrap("", fmt.Sprintf(format, args...))
	r.line("")
}

// wrap writes words in lines of the width, the first behind the mark and the others below it. Line breaks in the text
// are spaces like any other.
func (r *renderer) wrap(mark, text string) {
	r.b.WriteString(mark)
	column := len(mark)
	for i, word := range strings.Fields(r.escape(text)) {
		n := utf8.RuneCountInString(word)
		if i > 0 && column+1+n > r.width {
			r.b.WriteString("\n" + strings.Repeat(" ", len(mark)))
			column = len(mark)
		} else if i > 0 {
			r.b.WriteByte(' ')
			column++
		}
		r.b.WriteString(word)
		column += n
	}
	r.b.WriteByte('\n')
}

// Number writes a figure as the summary does: about four significant digits, thousands apart, millions as "1.234 M".
func Number(v float64) string { return figure(v) }

// figure gives about four significant digits without an exponent.
func figure(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return "?"
	case a >= 1e6:
		return fmt.Sprintf("%.3f M", v/1e6)
	case v == math.Trunc(v) || a >= 1000:
		return grouped(int64(math.Round(v)))
	case a >= 100:
		return fmt.Sprintf("%.1f", v)
	case a >= 10:
		return fmt.Sprintf("%.2f", v)
	default:
		return fmt.Sprintf("%.3f", v)
	}
}

func percent(v float64) string { return fmt.Sprintf("%+.2f %%", 100*v) }

func optional(v *float64, format func(float64) string) string {
	if v == nil {
		return "–"
	}
	return format(*v)
}

// grouped writes 1234567 as "1 234 567".
func grouped(n int64) string {
	s := fmt.Sprint(n)
	sign := ""
	if n < 0 {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + " " + s[i:]
	}
	return sign + s
}

func size(bytes int64) string { return figure(float64(bytes)/(1<<20)) + " MiB" }

func total(m map[string]int64) (n int64) {
	for _, v := range m {
		n += v
	}
	return n
}

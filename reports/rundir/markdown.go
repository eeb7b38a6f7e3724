package rundir

import (
	"io"
	"strings"
)

// RenderMarkdown writes the summary in GitHub-flavoured Markdown for a comment in a pull request: verdict, criteria,
// latencies and deliveries at once, all else folded away. Unlike RenderSummary's text it has no line breaks within a
// paragraph, which GitHub would show, and names cannot be taken for markup.
func RenderMarkdown(w io.Writer, s Summary) error {
	r := renderer{width: 1 << 30, github: true}
	r.line("### %s: %s\n", r.escape(s.Run), strings.ToUpper(string(s.Verdict)))
	r.outcome(s)
	r.criteria(s.Criteria)
	r.faults(s.Faults)
	r.metrics(s.Metrics, s.NotChecked)
	r.ledger(s.Ledger, s.Counted)
	r.line("<details><summary>Predictions, generator and processes, notes</summary>\n")
	r.predictions(s.Predictions)
	r.health(s, s.Generator, s.Processes)
	r.server(s.Server)
	r.notes(s.Notes)
	r.line("\n</details>")
	_, err := w.Write(r.b.Bytes())
	return err
}

// markup is what GitHub would take for formatting; a sign behind a backslash stands for itself.
var markup = strings.NewReplacer(`\`, `\\`, "<", `\<`, ">", `\>`, "*", `\*`, "_", `\_`, "`", "\\`", "[", `\[`, "]", `\]`, "~", `\~`, "#", `\#`,
	"$", `\$`, "@", "@\u200b") // a zero-width space keeps a name from being called

// escape takes the markup out of text for GitHub; other text is read as it is.
func (r *renderer) escape(text string) string {
	if !r.github {
		return text
	}
	return markup.Replace(text)
}

package rundir

import "io"

// RenderSummary writes the summary as text that is Markdown and reads well on a terminal, too; no line of a table is
// longer than width columns (at least 80).
func RenderSummary(w io.Writer, s Summary, width int) error {
	r := renderer{width: max(width, 80)}
	r.summary(s)
	_, err := w.Write(r.b.Bytes())
	return err
}

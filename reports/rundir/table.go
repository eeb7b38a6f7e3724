package rundir

import (
	"strings"
	"unicode/utf8"
)

// columns is how wide a table becomes.
func columns(rows [][]string) int {
	n := 1
	for _, w := range widths(rows) {
		n += w + 3
	}
	return n
}

func widths(rows [][]string) []int {
	w := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			w[i] = max(w[i], utf8.RuneCountInString(cell), 3)
		}
	}
	return w
}

// table writes a Markdown table whose first row is the head; align has l or r for each column. Names from files cannot
// break it: bars and line breaks are taken out.
func (r *renderer) table(rows [][]string, align string) {
	for _, row := range rows {
		for i := range row {
			cell := r.escape(strings.ReplaceAll(row[i], "|", "/"))
			row[i] = strings.Join(strings.Fields(cell), " ")
		}
	}
	w := widths(rows)
	for n, row := range rows {
		for i, cell := range row {
			pad := strings.Repeat(" ", w[i]-utf8.RuneCountInString(cell))
			if align[i] == 'r' {
				cell = pad + cell
			} else {
				cell += pad
			}
			r.b.WriteString("| " + cell + " ")
		}
		r.line("|")
		if n > 0 {
			continue
		}
		for i := range row {
			if align[i] == 'r' {
				r.b.WriteString("|" + strings.Repeat("-", w[i]+1) + ":")
			} else {
				r.b.WriteString("|" + strings.Repeat("-", w[i]+2))
			}
		}
		r.line("|")
	}
	r.line("")
}

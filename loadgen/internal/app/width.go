package app

import (
	"io"
	"os"

	"golang.org/x/term"
)

// Text for people is as wide as the terminal, within these bounds; where there is none it is mostColumns wide.
const (
	leastColumns = 80
	mostColumns  = 100
)

// textWidth is how wide the lines of what is printed to w may be, in columns.
func textWidth(w io.Writer) int {
	if f, ok := terminal(w); ok {
		if columns, _, err := term.GetSize(int(f.Fd())); err == nil && columns > 0 {
			return min(max(columns, leastColumns), mostColumns)
		}
	}
	return mostColumns
}

// terminal is the terminal behind w, if one is.
func terminal(w io.Writer) (*os.File, bool) {
	f, ok := w.(*os.File)
	return f, ok && term.IsTerminal(int(f.Fd()))
}

package scenario

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is one thing that is wrong with a scenario.
type Problem struct {
	Where   string // the file's name, or the -set argument
	Line    int    // 1-based; 0 = not in the file (a default or a -set)
	Column  int    // 1-based, in characters
	Message string
	text    string // the line
}

// Error is every problem of a scenario at once; it is what Load and Set return for a scenario that is wrong.
type Error struct{ Problems []Problem }

// Error has a line for each problem, and below it the source line with a caret. What is long is cut, so that a name of
// 300 kB does not fill the screen, and after twenty problems only the number of the rest is said.
func (e *Error) Error() string {
	const most = 20
	var b strings.Builder
	for i, p := range e.Problems {
		if i > 0 {
			b.WriteByte('\n')
		}
		if i == most {
			fmt.Fprintf(&b, "and %d more", len(e.Problems)-most)
			break
		}
		p = p.short()
		if p.Line == 0 {
			fmt.Fprintf(&b, "%s: %s", p.Where, p.Message)
			continue
		}
		fmt.Fprintf(&b, "%s:%d:%d: %s\n", p.Where, p.Line, e.Problems[i].Column, p.Message)
		fmt.Fprintf(&b, "%5d | %s\n", p.Line, p.text)
		fmt.Fprintf(&b, "      | %s^", indentTo(p.text, p.Column))
	}
	return b.String()
}

// Lengths of what is shown, in characters.
const (
	maxWhere   = 120
	maxMessage = 500
	maxLine    = 160
)

// short cuts what is long. Of a line it keeps what is around the column, which then counts in what is kept.
func (p Problem) short() Problem {
	p.Where, p.Message = clip(p.Where, maxWhere), clip(p.Message, maxMessage)
	if line := []rune(p.text); len(line) > maxLine {
		from := max(0, min(p.Column-1-maxLine/2, len(line)-maxLine))
		p.text = string(line[from : from+maxLine])
		p.Column -= from
	}
	return p
}

// clip keeps the beginning and the end of a text that is longer than n characters.
func clip(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:n*2/3]) + " … " + string(r[len(r)-n/3:])
}

// indentTo is blank as wide as the line's first column−1 characters: tabs stay tabs.
func indentTo(line string, column int) string {
	var b strings.Builder
	for i, r := range []rune(line) {
		if i >= column-1 {
			break
		}
		if r != '\t' {
			r = ' '
		}
		b.WriteRune(r)
	}
	return b.String()
}

// sort puts the problems into the order of the files; those that are in none come last.
func (e *Error) sort() {
	slices.SortStableFunc(e.Problems, func(a, b Problem) int {
		if (a.Line == 0) != (b.Line == 0) {
			return b.Line - a.Line
		}
		return cmp.Or(cmp.Compare(a.Where, b.Where), a.Line-b.Line, a.Column-b.Column)
	})
}

// orNil is e as an error, or nil if nothing is wrong.
func (e *Error) orNil() error {
	if len(e.Problems) == 0 {
		return nil
	}
	return e
}

// nearest is the known name most like the given one, as a hint to append to a message; empty if none is like it.
func nearest(name string, known []string) string {
	best, distance := "", 1+len(name)/2
	for _, k := range known {
		if d := editDistance(name, k); d < distance {
			best, distance = k, d
		}
	}
	if best == "" {
		return "known: " + strings.Join(known, ", ")
	}
	return fmt.Sprintf("did you mean %q?", best)
}

// editDistance counts inserted, deleted, replaced and exchanged neighbouring characters (optimal string alignment).
func editDistance(a, b string) int {
	before, prev, cur := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], before[j-2]+1)
			}
		}
		before, prev, cur = prev, cur, before
	}
	return prev[len(b)]
}

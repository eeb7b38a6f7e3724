package view

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"unicode/utf8"
)

// Terminal draws frames over each other. Each frame goes out in one write and clears each line behind its text, so that
// nothing flickers; the cursor stays at the end of the last line, and is never hidden, so that a program that is killed
// leaves a usable terminal.
type Terminal struct {
	w      io.Writer
	size   func() (width, height int)
	colour bool

	mu    sync.Mutex
	lines []int // columns of the lines that are on the screen
}

// NewTerminal takes where to draw and how large that is, which is asked at each frame: it may change.
func NewTerminal(w io.Writer, size func() (width, height int), colour bool) *Terminal {
	return &Terminal{w: w, size: size, colour: colour}
}

// Draw shows the state in place of what was shown before: a frame, or one line if there is no room for it.
func (t *Terminal) Draw(s State) {
	t.mu.Lock()
	defer t.mu.Unlock()
	width, height := t.size()
	lines := Frame(s, width, t.colour)
	if width < minWidth || height <= len(lines) {
		lines = []string{cut(Line(s), max(width-1, 2))}
	}
	var b bytes.Buffer
	t.home(&b, width, height)
	t.lines = t.lines[:0]
	for i, l := range lines {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(l + "\x1b[K")
		t.lines = append(t.lines, columns(l))
	}
	b.WriteString("\x1b[J") // of a longer frame before
	_, _ = t.w.Write(b.Bytes())
}

// home brings the cursor to the first line of the frame on the screen. A terminal that became narrower has broken longer
// lines into several.
func (t *Terminal) home(b *bytes.Buffer, width, height int) {
	b.WriteByte('\r')
	up := -1
	for _, n := range t.lines {
		up += max(1, (n+width-1)/max(width, 1))
	}
	if up = min(up, height-1); up > 0 {
		fmt.Fprintf(b, "\x1b[%dA", up)
	}
}

// Clear takes the frame away; the cursor is where it began.
func (t *Terminal) Clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	var b bytes.Buffer
	t.clear(&b)
	_, _ = t.w.Write(b.Bytes())
}

func (t *Terminal) clear(b *bytes.Buffer) {
	if len(t.lines) == 0 {
		return
	}
	width, height := t.size()
	t.home(b, width, height)
	b.WriteString("\x1b[J")
	t.lines = t.lines[:0]
}

// Write puts text for good where the frame is; the next Draw comes below it.
func (t *Terminal) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var b bytes.Buffer
	t.clear(&b)
	b.Write(p)
	if _, err := t.w.Write(b.Bytes()); err != nil {
		return 0, err
	}
	return len(p), nil
}

// columns are those that a line takes, colours apart.
func columns(l string) int {
	n := 0
	for len(l) > 0 {
		if l[0] == 0x1b {
			for len(l) > 0 && l[0] != 'm' {
				l = l[1:]
			}
			l = l[min(1, len(l)):]
			continue
		}
		_, size := utf8.DecodeRuneInString(l)
		l, n = l[size:], n+1
	}
	return n
}

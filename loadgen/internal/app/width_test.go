package app

import (
	"bufio"
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/creack/pty"
)

// Text fits the terminal that it is printed on; what a program reads has a line for each scenario.
func TestTextIsAsWideAsTheTerminal(t *testing.T) {
	var plain bytes.Buffer
	if err := printScenarios(&plain); err != nil || textWidth(&plain) != mostColumns {
		t.Fatalf("%d columns, %v", textWidth(&plain), err)
	}
	for columns, want := range map[uint16]int{60: 80, 80: 80, 90: 90, 250: 100} {
		near, far, err := pty.Open()
		if err != nil {
			t.Skipf("there are no pseudo-terminals here: %v", err)
		}
		defer near.Close()
		defer far.Close()
		if err := pty.Setsize(far, &pty.Winsize{Rows: 24, Cols: columns}); err != nil {
			t.Fatal(err)
		}
		if got := textWidth(far); got != want {
			t.Errorf("%d columns: text of %d, want %d", columns, got, want)
		}
		printed := make(chan error, 1)
		go func() {
			err := printScenarios(far)
			_, _ = far.WriteString("end\n")
			printed <- err
		}()
		words := 0
		for lines := bufio.NewScanner(near); lines.Scan() && strings.TrimSpace(lines.Text()) != "end"; {
			words += len(strings.Fields(lines.Text()))
			if n := utf8.RuneCountInString(strings.TrimRight(lines.Text(), "\r")); n > want {
				t.Errorf("%d columns: a line of %d", columns, n)
			}
		}
		if err := <-printed; err != nil || words != len(strings.Fields(plain.String())) {
			t.Errorf("%d columns: %d words, %v", columns, words, err)
		}
	}
}

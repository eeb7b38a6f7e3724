package view

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "write the golden files anew")

func measuring() State {
	return State{Phase: "measure", ElapsedS: 31.4, OfS: 60, Devices: 5040, Connected: 5038, Ready: 5038, OfferedRate: 1250, DoneRate: 1248.7,
		Offered: 38211, Started: 38210, Done: 38150, InFlight: 57, Failed: 3, FailedBy: map[string]int64{"RATE_LIMITED": 2, "NOT_MEMBER": 1}, Reconnects: 2,
		SendP50: 11.13, SendP99: 60.88, DeliverP50: 15.6, DeliverP99: 191.4, LateP99: 6.3,
		Processes: []Process{{"loadgen", 0.433, 1 << 27}, {"gateway-1", 0.268, 1 << 26}, {"gateway-2", 0.269, 1 << 26}, {"postgres", 0.671, 1 << 28}}}
}

func states() map[string]State {
	settle := measuring()
	settle.Phase, settle.ElapsedS, settle.OfS, settle.Failed, settle.FailedBy = "settle", 2, 15, 0, nil
	return map[string]State{"measure": measuring(), "settle": settle,
		"connect": {Phase: "connect", ElapsedS: 2, Devices: 5040, Connected: 2600, Ready: 2520, OfferedRate: 1250}}
}

func TestFramesGolden(t *testing.T) {
	var b bytes.Buffer
	for _, name := range []string{"connect", "measure", "settle"} {
		for _, width := range []int{70, 80, 200} {
			fmt.Fprintf(&b, "%s, %d columns\n%s\n", name, width, strings.Join(Frame(states()[name], width, false), "\n"))
		}
	}
	path := filepath.Join("testdata", "frames.golden")
	if *update {
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(b.Bytes(), want) {
		t.Errorf("%v; frames differ:\n%s", err, b.String())
	}
}

// However odd the figures and the names, no line is too wide, none steers the terminal, and colour changes nothing else.
func TestFrameFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := State{Phase: rapid.SampledFrom([]string{"connect", "warmup", "measure", "settle"}).Draw(t, "phase"), ElapsedS: rapid.Float64Range(0, 1e9).Draw(t, "s"),
			OfS: rapid.Float64Range(0, 1e9).Draw(t, "of"), Devices: rapid.IntRange(0, 1e9).Draw(t, "n"), Ready: rapid.Int64Range(0, 1<<60).Draw(t, "ready"),
			Done: rapid.Int64Range(0, 1<<60).Draw(t, "done"), Failed: rapid.Int64Range(0, 9).Draw(t, "failed"),
			FailedBy: rapid.MapOfN(rapid.String(), rapid.Int64Range(1, 1e12), 0, 9).Draw(t, "by")}
		for range rapid.IntRange(0, 12).Draw(t, "procs") {
			s.Processes = append(s.Processes, Process{Role: rapid.String().Draw(t, "role")})
		}
		width := rapid.IntRange(minWidth, 200).Draw(t, "width")
		bare := Frame(s, width, false)
		for i, l := range Frame(s, width, true) {
			if columns(l) >= width || columns(l) != utf8.RuneCountInString(bare[i]) || strings.ContainsAny(bare[i], "\x1b\n\r\t") {
				t.Fatalf("%d columns of %d: %q", columns(l), width, l)
			}
		}
	})
}

// screen is a terminal of a size, as far as this package uses one. It breaks lines that are too long, as real ones do.
type screen struct {
	t     *testing.T
	w     int
	cells [][]rune
	x, y  int
}

func (s *screen) Write(p []byte) (int, error) {
	text := string(p)
	for len(text) > 0 {
		r, n := utf8.DecodeRuneInString(text)
		text = text[n:]
		for s.y >= len(s.cells) {
			s.cells = append(s.cells, nil)
		}
		switch r {
		case '\r':
			s.x = 0
		case '\n':
			s.x, s.y = 0, s.y+1 // as the terminal's driver does it
		case 0x1b:
			end := strings.IndexFunc(text, func(r rune) bool { return r >= 'A' && r <= 'z' && r != '[' })
			s.control(text[1:end], text[end])
			text = text[end+1:]
		default:
			if s.x == s.w {
				s.x, s.y = 0, s.y+1
				for s.y >= len(s.cells) {
					s.cells = append(s.cells, nil)
				}
			}
			for len(s.cells[s.y]) <= s.x {
				s.cells[s.y] = append(s.cells[s.y], ' ')
			}
			s.cells[s.y][s.x] = r
			s.x++
		}
	}
	return len(p), nil
}

func (s *screen) control(arg string, what byte) {
	switch what {
	case 'A':
		var n int
		fmt.Sscan(arg, &n)
		s.y = max(s.y-n, 0)
	case 'K':
		s.cells[s.y] = s.cells[s.y][:min(s.x, len(s.cells[s.y]))]
	case 'J':
		s.cells[s.y] = s.cells[s.y][:min(s.x, len(s.cells[s.y]))]
		s.cells = s.cells[:s.y+1]
	case 'm':
	default:
		s.t.Errorf("control sequence %q%c", arg, what)
	}
}

// resize breaks what is there anew, as most terminals do.
func (s *screen) resize(w int) {
	var cells [][]rune
	for y, row := range s.cells {
		last := y == s.y
		for len(row) > w {
			cells, row = append(cells, row[:w:w]), row[w:]
		}
		if cells = append(cells, row); last {
			s.y, s.x = len(cells)-1, len(row)
			last = false
		}
	}
	s.cells, s.w = cells, w
}

func (s *screen) lines() (list []string) {
	for _, row := range s.cells {
		list = append(list, strings.TrimRight(string(row), " "))
	}
	for len(list) > 0 && list[len(list)-1] == "" {
		list = list[:len(list)-1]
	}
	return list
}

// Frames replace each other whatever their size and the terminal's, text in between stays, and the end leaves nothing.
func TestTerminal(t *testing.T) {
	s := &screen{t: t, w: 80}
	height := 24
	fmt.Fprint(s, "creating users\n")
	term := NewTerminal(s, func() (int, int) { return s.w, height }, true)
	want := func(what string, lines ...string) {
		t.Helper()
		if got := s.lines(); !slices.Equal(got, lines) {
			t.Errorf("%s: the screen is\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(lines, "\n"))
		}
	}
	frame := func(name string) []string {
		var out []string
		for _, l := range Frame(states()[name], s.w, false) {
			out = append(out, strings.TrimRight(l, " "))
		}
		return out
	}
	kept := []string{"creating users"}
	for _, name := range []string{"connect", "measure", "settle", "measure", "connect"} {
		term.Draw(states()[name])
		want(name, append(slices.Clone(kept), frame(name)...)...)
	}
	fmt.Fprint(term, "a gateway is back\n")
	kept = append(kept, "a gateway is back")
	want("text", kept...)
	for _, w := range []int{80, 72, 120, 71} {
		s.resize(w)
		term.Draw(states()["measure"])
		want(fmt.Sprint(w, " columns"), append(slices.Clone(kept), frame("measure")...)...)
	}
	s.resize(40)
	term.Draw(states()["measure"])
	want("too narrow", append(slices.Clone(kept), cut(Line(states()["measure"]), 39))...)
	s.resize(80)
	height = 4
	term.Draw(states()["measure"])
	want("too low", append(slices.Clone(kept), cut(Line(states()["measure"]), 79))...)
	height = 24
	term.Draw(states()["measure"])
	term.Clear()
	term.Clear()
	want("the end", kept...)
	if s.x != 0 || s.y != len(kept) {
		t.Errorf("the cursor is at %d, %d", s.x, s.y)
	}
}

// A frame goes out in one write, so that none is seen half.
func TestOneWriteAFrame(t *testing.T) {
	n := counting(0)
	term := NewTerminal(&n, func() (int, int) { return 80, 24 }, false)
	for range 3 {
		term.Draw(measuring())
	}
	if n != 3 {
		t.Errorf("%d writes for 3 frames", n)
	}
}

type counting int

func (c *counting) Write(p []byte) (int, error) { *c++; return len(p), nil }

// The line of JSON has every field in every phase, also those at 0.
func TestJSONLine(t *testing.T) {
	b, err := json.Marshal(State{FailedBy: map[string]int64{}, Processes: []Process{}})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"failed":0`, `"failed_by":{}`, `"processes":[]`, `"deliver_p99_ms":0`, `"dropped":0`} {
		if !strings.Contains(string(b), want) {
			t.Errorf("no %s in %s", want, b)
		}
	}
}

package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"

	"imbench/loadgen/internal/app"
)

// onTerminal is loadgen with a terminal of 80 by 24 for its standard error.
type onTerminal struct {
	cmd  *exec.Cmd
	tty  *os.File
	mu   sync.Mutex
	text bytes.Buffer
	done chan struct{}
}

func startOnTerminal(t *testing.T, scenario string, env ...string) *onTerminal {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "tiny.yaml")
	if err := os.WriteFile(file, []byte(scenario), 0o644); err != nil {
		t.Fatal(err)
	}
	r := &onTerminal{cmd: exec.Command(os.Args[0], "-scenario", file, "-out", filepath.Join(dir, "runs")), done: make(chan struct{})}
	r.cmd.Env = append(append(os.Environ(), asLoadgen+"=1", "TERM=xterm"), env...)
	tty, err := pty.StartWithSize(r.cmd, &pty.Winsize{Rows: 24, Cols: 80})
	if err != nil {
		t.Fatal(err)
	}
	r.tty = tty
	t.Cleanup(func() { _ = r.cmd.Process.Kill(); <-r.done; _ = tty.Close() })
	go func() {
		defer close(r.done)
		b := make([]byte, 4096)
		for {
			n, err := tty.Read(b)
			r.mu.Lock()
			r.text.Write(b[:n])
			r.mu.Unlock()
			if err != nil { // EIO when the program has ended
				return
			}
		}
	}()
	return r
}

func (r *onTerminal) shown() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

func (r *onTerminal) until(t *testing.T, text string) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for limit := time.After(2 * time.Minute); ; {
		if strings.Contains(r.shown(), text) {
			return
		}
		select {
		case <-tick.C:
		case <-r.done:
			t.Fatalf("ended without showing %q:\n%s", text, r.shown())
		case <-limit:
			t.Fatalf("never showed %q:\n%s", text, r.shown())
		}
	}
}

// On a terminal there is a live view; Ctrl-C, typed, takes it away and the result stands below what was said before.
func TestLiveView(t *testing.T) {
	t.Parallel()
	r := startOnTerminal(t, strings.Replace(tiny, "measure: 2s", "measure: 10m", 1), "NO_COLOR=1")
	r.until(t, "deliver p50")
	r.until(t, "postgres ")
	if _, err := io.WriteString(r.tty, "\x03"); err != nil {
		t.Fatal(err)
	}
	<-r.done
	_ = r.cmd.Wait()
	text := r.shown()
	if code := r.cmd.ProcessState.ExitCode(); code != app.ExitInterrupted {
		t.Errorf("exit %d\n%s", code, text)
	}
	for _, bad := range []string{"\x1b[?25l", "\x1b[?1049h", "\x1b[3", "\x1b[1m"} {
		if strings.Contains(text, bad) {
			t.Errorf("%q: the cursor is hidden, another screen is used, or there is colour in spite of NO_COLOR", bad)
		}
	}
	// The last that is drawn is taken away before the result is printed.
	clear, result := strings.LastIndex(text, "\r\x1b["), strings.LastIndex(text, ": INTERRUPTED")
	if clear < 0 || result < clear || strings.Contains(text[result:], "\x1b") {
		t.Errorf("the result does not stand on a clean screen:\n%q", text[max(0, len(text)-2000):])
	}
}

// A terminal that knows no control sequences gets none.
func TestDumbTerminal(t *testing.T) {
	t.Parallel()
	r := startOnTerminal(t, strings.Replace(tiny, "measure: 2s", "measure: 6s", 1), "TERM=dumb")
	<-r.done
	_ = r.cmd.Wait()
	if text := r.shown(); strings.Contains(text, "\x1b") || !strings.Contains(text, "measure  ") {
		t.Errorf("%q", text)
	}
}

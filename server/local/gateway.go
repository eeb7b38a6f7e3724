package local

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// readyLimit bounds the time from starting a gateway to its readiness; the
// first one also creates the schema.
const readyLimit = 60 * time.Second

// gateway is one child process.
type gateway struct {
	role   string
	cmd    *exec.Cmd
	stdin  io.Closer // the child ends when this does
	stdout *os.File  // nothing is read after the first line, but a closed one would kill the writer
	stderr *os.File
	ready  listening
	ended  chan struct{} // closed when the process has ended
	err    error         // set before ended is closed
	// expected is set before this process ends the child on purpose.
	expected atomic.Bool
}

// listening is the line that a gateway prints when it accepts connections.
type listening struct {
	Listening string `json:"listening"` // host:port
	Admin     string `json:"admin"`     // host:port
	Gateway   string `json:"gateway"`
}

// recipe is how a gateway is started, the first time and again.
type recipe struct {
	role, logDir  string
	listen, admin string // host:port
	args, env     []string
}

// start starts the child and waits for its line. logMode says what becomes of an earlier log. Afterwards the caller owns
// the process and must call stop.
func (r recipe) start(ctx context.Context, logMode int) (*gateway, error) {
	g := &gateway{role: r.role, ended: make(chan struct{})}
	args := append([]string{"-listen", r.listen, "-admin-listen", r.admin}, r.args...)
	if err := g.launch(r.logDir, logMode, args, r.env); err != nil {
		return nil, fmt.Errorf("start %s: %w", r.role, err)
	}
	if err := g.awaitReady(ctx); err != nil {
		_ = g.stop(ctx, 0) // err says why
		return nil, fmt.Errorf("%s: %w", r.role, err)
	}
	return g, nil
}

// launch starts the process and the goroutine that waits for it.
func (g *gateway) launch(logDir string, logMode int, args, env []string) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	stderr, err := stderrFile(logDir, g.role, logMode)
	if err != nil {
		return err
	}
	stdout, childOut, err := os.Pipe()
	if err != nil {
		return errors.Join(err, stderr.Close())
	}
	// Not exec.CommandContext: the child outlives the start. Its limit on open
	// files needs no raising: a Go program raises its own soft limit.
	g.cmd = exec.Command(exe, args...)
	g.cmd.Env = env
	g.cmd.Stdout, g.cmd.Stderr = childOut, stderr
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if g.stdin, err = g.cmd.StdinPipe(); err == nil {
		err = g.cmd.Start() // closes the pipe if it fails
	}
	childOut.Close()
	if err != nil {
		return errors.Join(err, stdout.Close(), stderr.Close())
	}
	g.stdout, g.stderr = stdout, stderr
	go func() { // ends with the process; stop waits for it
		g.err = g.cmd.Wait()
		close(g.ended)
	}()
	return nil
}

// awaitReady reads the child's line.
func (g *gateway) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyLimit, fmt.Errorf("was not ready after %v", readyLimit))
	defer cancel()
	defer context.AfterFunc(ctx, func() { g.stdout.Close() })() // ends the read
	line, err := bufio.NewReader(io.LimitReader(g.stdout, 1<<12)).ReadBytes('\n')
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if errors.Is(err, io.EOF) { // it ended, or closed its output, which no gateway does
		return errors.New("ended before it was ready: " + g.said())
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(line, &g.ready); err != nil || g.ready.Listening == "" || g.ready.Admin == "" {
		return fmt.Errorf("did not say where it listens but %q", line)
	}
	return nil
}

// stop ends the child: SIGTERM and the end of its input, then SIGKILL when
// ctx ends or after limit. It waits for the process.
func (g *gateway) stop(ctx context.Context, limit time.Duration) error {
	g.expected.Store(true)
	defer g.stderr.Close()
	defer g.stdout.Close()
	_ = g.cmd.Process.Signal(syscall.SIGTERM) // it may have ended already
	_ = g.cmd.Process.Signal(syscall.SIGCONT) // a paused one hears nothing
	_ = g.stdin.Close()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	select {
	case <-g.ended:
		return nil
	case <-ctx.Done():
	}
	select {
	case <-g.ended: // both were ready
		return nil
	default:
	}
	_ = g.cmd.Process.Kill()
	<-g.ended
	return fmt.Errorf("%s did not stop in time and was killed", g.role)
}

// said returns the end of what the child wrote to its standard error.
func (g *gateway) said() string {
	const most = 1 << 10
	fi, err := g.stderr.Stat()
	if err != nil {
		return err.Error()
	}
	buf := make([]byte, min(fi.Size(), most))
	if _, err := g.stderr.ReadAt(buf, fi.Size()-int64(len(buf))); err != nil && !errors.Is(err, io.EOF) {
		return err.Error()
	}
	if text := strings.TrimSpace(string(buf)); text != "" {
		return text
	}
	return "(it wrote nothing to standard error)"
}

// stderrFile returns dir/role.log, or without dir a file that has no name and
// goes with its last user.
func stderrFile(dir, role string, mode int) (*os.File, error) {
	if dir != "" {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
		return os.OpenFile(filepath.Join(dir, role+".log"), os.O_CREATE|mode|os.O_RDWR|os.O_APPEND, 0o644)
	}
	f, err := os.CreateTemp("", role+"-*.log")
	if err != nil {
		return nil, err
	}
	return f, os.Remove(f.Name())
}

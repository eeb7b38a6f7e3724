// Package child starts this binary again as a helper process, whose CPU and memory are then told apart from the
// generator's. Parent and child speak in lines of JSON over the child's standard input and output; the child ends when its
// input does, so also when its parent is killed.
//
// A Process may be used by many goroutines: one question is asked at a time.
package child

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// env names the role of a child; the embedded stack's gateways have a role there, too.
const env = "IMBENCH_CHILD"

const (
	startLimit = 10 * time.Second // for the first line
	endLimit   = 5 * time.Second  // from the end of its input to the child's
	maxLine    = 1 << 20          // bytes
	maxSaid    = 1 << 10          // bytes of its standard error that are kept
)

// Program is what a child runs: it reads lines from in until that ends, and answers on out.
type Program func(args []string, in io.Reader, out io.Writer) error

// Main runs the program that this process was started for, and then does not return. A process that is no child, or one of
// another package's, goes on. Call it early in main.
func Main(programs map[string]Program) {
	p := programs[os.Getenv(env)]
	if p == nil {
		return
	}
	if err := p(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Process is a running child.
type Process struct {
	role  string
	cmd   *exec.Cmd
	in    io.WriteCloser
	said  Tail
	ended chan struct{}

	mu  sync.Mutex
	out *bufio.Scanner
}

// Start starts a child of a role and reads its first line into ready. The caller must call Close.
func Start(ctx context.Context, role string, ready any, args ...string) (*Process, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", role, err)
	}
	p := &Process{role: role, cmd: exec.Command(exe, args...), said: Tail{Most: maxSaid}, ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env+"="+role)
	p.cmd.Stderr = &p.said
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C is for the parent, which ends its children in order
	in, err1 := p.cmd.StdinPipe()
	out, err2 := p.cmd.StdoutPipe()
	if err := errors.Join(err1, err2); err != nil {
		return nil, fmt.Errorf("start %s: %w", role, err)
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", role, err)
	}
	p.in, p.out = in, bufio.NewScanner(out)
	p.out.Buffer(nil, maxLine)
	read := make(chan error, 1)
	go func() { read <- p.line(ready) }()
	late := time.NewTimer(startLimit)
	defer late.Stop()
	select {
	case err = <-read:
	case <-ctx.Done():
		err = ctx.Err()
	case <-late.C:
		err = fmt.Errorf("it was not ready within %v", startLimit)
	}
	if err != nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
		return nil, fmt.Errorf("start %s: %w %s", role, err, p.said.String())
	}
	go func() { // ends with the process
		_ = p.cmd.Wait() // how it ended is in what it said
		close(p.ended)
	}()
	return p, nil
}

func (p *Process) line(v any) error {
	if !p.out.Scan() {
		if err := p.out.Err(); err != nil {
			return err
		}
		return io.ErrUnexpectedEOF
	}
	return json.Unmarshal(p.out.Bytes(), v)
}

// Ask sends a line and reads the answer, which the child gives at once or after what it was asked to do.
func (p *Process) Ask(question, answer any) error {
	b, err := json.Marshal(question)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err = p.in.Write(append(b, '\n')); err == nil {
		err = p.line(answer)
	}
	if err != nil {
		return fmt.Errorf("the %s process: %w %s", p.role, err, p.said.String())
	}
	return nil
}

// PID is its process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Ended is closed when the process has ended, for whatever reason.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Said is the end of what it wrote to its standard error.
func (p *Process) Said() string { return p.said.String() }

// Close ends the process and waits for it. It may be called more than once, and by one goroutine at a time.
func (p *Process) Close() {
	_ = p.in.Close()
	t := time.NewTimer(endLimit)
	defer t.Stop()
	select {
	case <-p.ended:
	case <-t.C:
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

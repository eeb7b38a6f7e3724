package fleet

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	helper "imbench/loadgen/internal/child"
)

// childEnv tells a worker that it is a child: when its standard input ends, its coordinator is gone.
const childEnv = "IMBENCH_WORKER_CHILD"

// Bounds of a child.
const (
	childTail  = 2 << 10 // bytes of what it says that are kept
	childGrace = 5 * time.Second
)

// child is a worker that the coordinator has started on this machine.
type child struct {
	cmd   *exec.Cmd
	stdin io.Closer
	said  helper.Tail
	ended chan struct{}
	err   error // after ended
}

// startChild starts a worker outside the terminal's process group: Ctrl-C is the coordinator's business, which then ends its
// workers in order. When the coordinator is gone, however it ended, the child sees its standard input end.
func startChild(cmd *exec.Cmd, exits chan<- *child) (*child, error) {
	c := &child{cmd: cmd, said: helper.Tail{Most: childTail}, ended: make(chan struct{})}
	cmd.Env = append(cmd.Env, childEnv+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Stdout, cmd.Stderr = io.Discard, &c.said
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	c.stdin = stdin
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		c.err = cmd.Wait()
		close(c.ended)
		exits <- c
	}()
	return c, nil
}

// why says how the child ended, and what it said last.
func (c *child) why() string {
	state := "it ended by itself"
	if c.err != nil {
		state = "it ended: " + c.err.Error()
	}
	if s := c.said.String(); s != "" {
		state += "; it said: " + s
	}
	return state
}

// end closes its standard input, and kills it if that is not enough.
func (c *child) end() {
	_ = c.stdin.Close()
	select {
	case <-c.ended:
	case <-time.After(childGrace):
		_ = c.cmd.Process.Kill()
		<-c.ended
	}
}

// WatchParent ends a child's context when its coordinator is gone, and the process if that takes longer than limit. In a
// process that is no child it does nothing and returns false. The goroutine lives as long as the process.
func WatchParent(cancel context.CancelCauseFunc, limit time.Duration) (child bool) {
	if os.Getenv(childEnv) == "" {
		return false
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel(ErrCoordinatorGone)
		time.Sleep(limit)
		fmt.Fprintln(os.Stderr, "loadgen: the coordinator is gone, and this worker did not end in time")
		os.Exit(1)
	}()
	return true
}

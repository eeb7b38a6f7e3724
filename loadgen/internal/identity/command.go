package identity

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"imbench/loadgen/internal/child"
)

// How a command for tokens is called.
const (
	batch        = 100 // devices a call: a command that needs 100 ms for each has its time
	atOnce       = 4   // calls at a time
	commandLimit = time.Minute
	saidBytes    = 2 << 10 // kept of what it writes to standard error
	maxToken     = 8 << 10 // bytes; a gateway takes 16 KiB of all headers
)

// CommandError is a call that gave no tokens.
type CommandError struct {
	Why  string
	Said string // the end of what it wrote to standard error
}

// Error says what went wrong. What the command said is left to who shows it to a person: it may hold a token or a key, and an
// error's text is kept with the run.
func (e *CommandError) Error() string { return "the command of -tokens " + e.Why }

// Aloud is an error as the person at the terminal is told of it: with what a command for tokens said.
func Aloud(err error) string {
	var ce *CommandError
	if errors.As(err, &ce) && ce.Said != "" {
		return err.Error() + "; it said: " + ce.Said
	}
	return err.Error()
}

// withheld says whether a variable of the environment is none of a command's business: those with which loadgen itself
// reaches the admin API and the database.
func withheld(variable string) bool {
	return strings.HasPrefix(variable, "IM_ADMIN_TOKEN=") || strings.HasPrefix(variable, "DATABASE_URL=")
}

// command asks a line for sh for tokens: a line "user device" of standard input for each, and a line with the token of
// standard output, in the same order.
func command(ctx context.Context, line string, who []Identity) ([]string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, commandLimit, fmt.Errorf("took longer than %v for %d tokens, and was ended", commandLimit, len(who)))
	defer cancel()
	var in strings.Builder
	for _, x := range who {
		fmt.Fprintf(&in, "%s %s\n", x.User, x.Device)
	}
	cmd := exec.CommandContext(ctx, "sh", "-c", line)
	cmd.Env = slices.DeleteFunc(os.Environ(), withheld)
	cmd.Stdin = strings.NewReader(in.String())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that all that it started ends with it
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 2 * time.Second
	out := &limited{most: len(who)*(maxToken+2) + 1}
	said := child.Tail{Most: saidBytes}
	cmd.Stdout, cmd.Stderr = out, &said
	err := cmd.Run()
	switch {
	case ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled):
		return nil, ctx.Err()
	case ctx.Err() != nil:
		return nil, &CommandError{context.Cause(ctx).Error(), said.String()}
	case out.over:
		return nil, &CommandError{fmt.Sprintf("printed more than %d bytes for %d tokens: want a line with a token for each line that it reads", out.most, len(who)), said.String()}
	case err != nil:
		return nil, &CommandError{"failed: " + err.Error(), said.String()}
	}
	tokens, err := lines(out.b.String(), who)
	if err != nil {
		return nil, &CommandError{err.Error(), said.String()}
	}
	return tokens, nil
}

// lines takes a command's output apart. Its errors never quote a token.
func lines(out string, who []Identity) ([]string, error) {
	out = strings.TrimSuffix(out, "\n")
	if strings.TrimSpace(out) == "" {
		return nil, fmt.Errorf("printed nothing: want a line with a token for each line \"user device\" that it reads, of which there were %d", len(who))
	}
	tokens := strings.Split(out, "\n")
	if len(tokens) != len(who) {
		return nil, fmt.Errorf("printed %d lines for %d devices: want one for each, in the order in which it reads them", len(tokens), len(who))
	}
	for i := range tokens {
		tokens[i] = strings.TrimSuffix(tokens[i], "\r")
		if err := wellFormed(tokens[i]); err != nil {
			return nil, fmt.Errorf("printed as line %d, for %s %s, what %w", i+1, who[i].User, who[i].Device, err)
		}
	}
	return tokens, nil
}

// wellFormed says why a text cannot be sent as a bearer token; the text is not quoted.
func wellFormed(token string) error {
	switch {
	case token == "":
		return errors.New("is empty")
	case len(token) > maxToken:
		return fmt.Errorf("is longer than %d bytes", maxToken)
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return errors.New("is no token: it holds a space, or what is not ASCII")
	}
	return nil
}

// limited keeps what is written to it up to a bound.
type limited struct {
	b    bytes.Buffer
	most int
	over bool
}

// Write implements io.Writer.
func (l *limited) Write(p []byte) (int, error) {
	if l.b.Len()+len(p) > l.most {
		l.over = true
		return 0, io.ErrShortBuffer
	}
	return l.b.Write(p)
}

package local

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"imbench/server/internal/app"
)

// The environment of a child. roleEnv is set in children only.
const (
	roleEnv     = "IMBENCH_CHILD"
	roleGateway = "gateway"
	revisionEnv = "IMBENCH_REVISION"
)

// orphanLimit is how long a child may take to end after its parent is gone.
const orphanLimit = 10 * time.Second

// Child turns this process into a gateway if a stack started it as one, and
// then does not return. Otherwise it does nothing. Call it first in main.
func Child() {
	if os.Getenv(roleEnv) == roleGateway {
		os.Exit(runChild(app.Run))
	}
}

// program has the signature of app.Run.
type program func(ctx context.Context, args, env []string, stdin io.Reader, stdout, stderr io.Writer) int

// runChild runs the gateway until SIGTERM or until the parent is gone.
func runChild(run program) int {
	if r := os.Getenv(revisionEnv); r != "" {
		app.Revision = r
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// The program's own standard input never ends, since this goroutine
	// watches the real one. It lives as long as the process.
	stdin, _ := io.Pipe()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // ends when the parent closes it or is gone
		cancel()
		time.Sleep(orphanLimit)
		os.Exit(1)
	}()
	return run(ctx, os.Args[1:], os.Environ(), stdin, os.Stdout, os.Stderr)
}

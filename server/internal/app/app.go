// Package app is the gateway as a program: configuration, wiring, and an ordered shutdown. Tests and the embedded stack
// start it as a value (Run), the command server only hands over its arguments, streams and exit code.
//
// Run may be called more than once at a time in one process; nothing is shared between calls.
package app

import (
	"context"
	"io"
)

// Revision is what /admin/v1/info tells as the build; main sets it before it calls Run.
var Revision = "dev"

// Exit codes of Run.
const (
	exitOK    = 0
	exitError = 1 // could not start, or stopped because of a failure
	exitUsage = 2 // flags or environment are wrong
)

// Run is the command server. args does not hold the program's name, env is in the form of os.Environ. It returns the exit
// code when ctx ends (a graceful shutdown follows), when a subcommand is done, or at the first failure; everything that
// it started has ended by then.
func Run(ctx context.Context, args, env []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return exitOK
}

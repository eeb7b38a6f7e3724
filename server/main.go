// Command server is one gateway with its store; any number of them may share a database. See server/PROTOCOL.md for the
// wire, and `server -help` for the flags.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"imbench/server/internal/app"
)

var revision = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	app.Revision = revision
	os.Exit(app.Run(ctx, os.Args[1:], os.Environ(), os.Stdin, os.Stdout, os.Stderr))
}

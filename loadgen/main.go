// Command loadgen drives a scenario against an instant-messaging gateway and writes a run directory.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"imbench/loadgen/internal/app"
	"imbench/server/local"
)

var revision = "dev" // set by the linker

func main() {
	local.Child() // a gateway of the embedded stack is this binary started again
	app.Child()   // and so are the generator's helpers
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // a terminal that is closed; under nohup it is ignored
		signal.Notify(signals, syscall.SIGHUP)
	}
	// A reader of our output that goes away (| head -1) must not end a run with its stack or population left behind: with a
	// handler a write fails instead. Ignoring the signal would be inherited by the children and by users' commands.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	go func() {
		<-signals
		cancel() // the first asks for a clean end; the second does not wait: the children see that we are gone
		<-signals
		os.Exit(app.ExitInterrupted)
	}()
	os.Exit(app.Run(ctx, app.Program{Args: os.Args[1:], Env: os.Environ(), Stdout: os.Stdout, Stderr: os.Stderr, Revision: revision}))
}

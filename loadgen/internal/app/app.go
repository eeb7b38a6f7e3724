// Package app is the loadgen command as a value: flags in, a run directory, a table and an exit code out.
//
// Data flow of a run: scenario → population and plan → (embedded stack or target) → provisioning → driver ⇄ devices →
// samples → recorder and ledger → run directory. The only thing asked of the model is its prediction, before the run.
//
// Run may be called once per process at a time; everything it starts has ended when it returns.
package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"slices"
	"syscall"

	"imbench/loadgen/internal/identity"
	"imbench/loadgen/internal/scenario"
)

// Exit codes, as in the README. The first that applies is returned.
const (
	ExitPassed      = 0
	ExitError       = 1 // internal
	ExitUsage       = 2 // a flag or the scenario
	ExitTarget      = 3 // the target could not be reached, or was lost
	ExitBroken      = 4 // a delivery promise did not hold
	ExitInvalid     = 5 // the generator could not drive the load honestly
	ExitAborted     = 6 // an abort rule
	ExitMissed      = 99
	ExitInterrupted = 130
)

// Program is what main hands over.
type Program struct {
	Args           []string
	Env            []string
	Stdout, Stderr io.Writer
	Revision       string
}

// spareThreads are Go's threads beyond the cores. With as many as cores the goroutine that starts the sends queues behind
// those of all the devices that a burst has woken; with two more the kernel runs it, which knows who has waited. It halved
// the share of sends that start more than 10 ms late on two cores.
const spareThreads = 2

// exitError carries an exit code with a sentence for the user.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

func fail(code int, format string, args ...any) error {
	return &exitError{code, fmt.Errorf(format, args...)}
}

// Run is the whole command; it returns the exit code.
func Run(ctx context.Context, p Program) int {
	code, err := run(ctx, p)
	if readerGone(err) {
		return code
	}
	if err != nil {
		var ee *exitError
		if errors.As(err, &ee) {
			code = ee.code
		} else if code == ExitPassed {
			code = ExitError
		}
		fmt.Fprintln(p.Stderr, "loadgen:", identity.Aloud(err))
	}
	return code
}

// readerGone says whether all that went wrong is that nobody reads standard output any more, as behind | head -1.
func readerGone(err error) bool {
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		return !slices.ContainsFunc(several.Unwrap(), func(e error) bool { return !readerGone(e) })
	}
	pe, ok := err.(*os.PathError)
	return ok && pe.Path == os.Stdout.Name() && errors.Is(pe.Err, syscall.EPIPE)
}

func run(ctx context.Context, p Program) (int, error) {
	o, err := parseFlags(p)
	if errors.Is(err, errHelp) {
		return ExitPassed, nil
	}
	if err != nil {
		return ExitUsage, &exitError{ExitUsage, err}
	}
	if o.version {
		fmt.Fprintln(p.Stdout, p.Revision)
		return ExitPassed, nil
	}
	if o.list {
		return ExitPassed, printScenarios(p.Stdout)
	}
	if command := o.command(); command != nil {
		return command(ctx, p, o)
	}
	sc, err := loadScenario(ctx, o.scenario, o.set)
	if err != nil {
		return ExitUsage, err
	}
	if o.seed.set {
		sc.SetSeed(o.seed.value)
	}
	if err := checkFaults(sc, o); err != nil {
		return ExitUsage, &exitError{ExitUsage, err}
	}
	if err := errors.Join(spare(sc, o), checkShared(sc, o)); err != nil {
		return ExitUsage, &exitError{ExitUsage, err}
	}
	if o.explain {
		return ExitPassed, errors.Join(explain(p.Stdout, sc, o), explainSeries(p.Stdout, sc, o))
	}
	if envValue(p.Env, "GOMAXPROCS") == "" { // a user's own choice wins
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(runtime.NumCPU() + spareThreads))
	}
	if o.series.active() {
		return runSeries(ctx, p, o, sc)
	}
	r := &runner{program: p, options: o, scenario: sc}
	return r.run(ctx)
}

// loadScenario reads a scenario with the -set arguments. It ends with ctx: the file may be a pipe that nobody writes to.
func loadScenario(ctx context.Context, name string, set []string) (*scenario.Scenario, error) {
	sc, err := scenario.LoadContext(ctx, name, set...)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, fail(ExitInterrupted, "interrupted while the scenario was read; nothing was started")
	case err != nil:
		return nil, &exitError{ExitUsage, err}
	}
	return sc, nil
}

func printScenarios(w io.Writer) error {
	list, err := scenario.List()
	if err != nil {
		return err
	}
	t := &sheet{width: math.MaxInt} // a line each, for other programs
	if _, ok := terminal(w); ok {
		t.width = textWidth(w)
	}
	for _, s := range list {
		t.wrap(fmt.Sprintf("%-20s ", s.Name), s.Description)
	}
	_, err = io.WriteString(w, t.b.String())
	return err
}

// writable says in words why dir cannot take a run directory, before any load is made.
func writable(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fail(ExitUsage, "-out %s: %v", dir, err)
	}
	f, err := os.CreateTemp(dir, ".probe-*")
	if err != nil {
		return fail(ExitUsage, "-out %s cannot be written: %v", dir, err)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if _, err := f.Write(make([]byte, 1<<16)); err != nil {
		return fail(ExitUsage, "-out %s: no room to write: %v", dir, err)
	}
	return nil
}

package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"imbench/loadgen/internal/population"
)

// What -cleanup takes instead of a namespace.
const (
	cleanupList    = "list"
	cleanupExpired = "expired"
)

// cleanup removes populations from a target, or lists them. Nothing but what it says is touched, and nothing of another owner.
func cleanup(ctx context.Context, p Program, o options) (int, error) {
	a, err := openAdmin(o, split(o.admin)[0])
	if err != nil {
		return ExitUsage, err
	}
	defer a.Close()
	switch what := o.staging.cleanup; what {
	case cleanupList:
		list, err := a.Leftovers(ctx)
		if err != nil {
			return cleanupFailed(ctx, err)
		}
		return ExitPassed, printLeftovers(p.Stdout, list, o.staging.owner)
	case cleanupExpired:
		return removeExpired(ctx, p, a, o.staging.owner)
	default:
		return removeOne(ctx, p, a, what, o.staging.owner)
	}
}

func removeOne(ctx context.Context, p Program, a *population.Admin, namespace, owner string) (int, error) {
	stop := sayElapsed(p.Stderr, "asking for the removal of the population "+namespace)
	removed, err := a.RemoveOwned(ctx, namespace, owner)
	stop()
	if err != nil {
		return cleanupFailed(ctx, err)
	}
	fmt.Fprintf(p.Stdout, "removed %s: %s, %s, %s, %s, %s\n", namespace, many(int(removed.Users), "user"), many(int(removed.Devices), "device"),
		many(int(removed.Conversations), "conversation"), many(int(removed.Events), "event"), many(int(removed.Cursors), "cursor"))
	return ExitPassed, nil
}

// removeExpired removes this owner's populations whose lease is over.
func removeExpired(ctx context.Context, p Program, a *population.Admin, owner string) (int, error) {
	list, err := a.Leftovers(ctx)
	if err != nil {
		return cleanupFailed(ctx, err)
	}
	n := 0
	for _, l := range list {
		if !l.Expired || l.Owner != owner {
			continue
		}
		n++
		if code, err := removeOne(ctx, p, a, l.Namespace, owner); err != nil {
			return code, err
		}
	}
	if n == 0 {
		fmt.Fprintf(p.Stdout, "nothing of %s has outlived its lease\n", owner)
	}
	return ExitPassed, nil
}

func printLeftovers(w io.Writer, list []population.Leftover, owner string) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(w, "no test populations")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "namespace\towner\tcreated, UTC\tlease until, UTC\t")
	for _, l := range list {
		note := ""
		if l.Expired {
			note = "expired"
		}
		if l.Owner == owner {
			note += " yours"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", l.Namespace, l.Owner, l.CreatedAt.UTC().Format(time.DateTime), l.LeaseUntil.UTC().Format(time.DateTime), note)
	}
	return t.Flush()
}

// cleanupFailed gives the exit code of a failed call; what an interrupted removal has left, the next one removes.
func cleanupFailed(ctx context.Context, err error) (int, error) {
	if ctx.Err() != nil {
		return ExitInterrupted, fail(ExitInterrupted, "interrupted: what is left of the population, the same command removes")
	}
	code := adminExit(err)
	if errors.Is(err, population.ErrNoPopulation) || errors.Is(err, population.ErrOwner) {
		code = ExitUsage
	}
	return code, &exitError{code, err}
}

// sayEvery is how often something that takes long says that it goes on.
const sayEvery = 5 * time.Second

// sayElapsed says what begins, and every sayEvery how long it has taken, until the function that it returns is called.
func sayElapsed(w io.Writer, what string) (stop func()) {
	fmt.Fprintln(w, what)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(sayEvery)
		defer tick.Stop()
		for begun := time.Now(); ; {
			select {
			case <-done:
				return
			case <-tick.C:
				fmt.Fprintf(w, "%s: %.0f s\n", what, time.Since(begun).Seconds())
			}
		}
	}()
	return func() { close(done); <-ended }
}

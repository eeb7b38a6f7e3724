package app

import (
	"context"
	"fmt"
	"io"

	"imbench/loadgen/internal/selftest"
)

// selfTest shows that the generator finds what a gateway does wrong: exit code 0 if every kind was caught and of the honest
// gateway nothing was said, else 4.
func selfTest(ctx context.Context, p Program, _ options) (int, error) {
	fmt.Fprintf(p.Stderr, "eleven gateways in turn, ten of which do something wrong once in ten thousand deliveries\n")
	const head = "%-32s %9s  %8s  %6s  %s\n"
	fmt.Fprintf(p.Stdout, head, "a gateway that", "delivered", "injected", "caught", "named in")
	var failed []selftest.Result
	err := selftest.Run(ctx, selftest.Config{Progress: p.Stderr}, func(r selftest.Result) {
		injected, caught := fmt.Sprint(r.Injected), fmt.Sprint(r.Caught)
		if r.Honest {
			injected, caught = "-", "-"
		}
		fmt.Fprintf(p.Stdout, head, r.Kind, fmt.Sprint(r.Deliveries), injected, caught, r.Where)
		if r.Why != "" {
			failed = append(failed, r)
		}
	})
	switch {
	case ctx.Err() != nil:
		return ExitInterrupted, fail(ExitInterrupted, "interrupted; the table has what was done")
	case err != nil:
		return ExitError, err
	}
	return selfTestVerdict(p.Stdout, failed), nil
}

func selfTestVerdict(w io.Writer, failed []selftest.Result) int {
	if len(failed) == 0 {
		fmt.Fprintln(w, "\nevery kind is caught, each single one of them by name, and nothing is said of the honest gateway")
		return ExitPassed
	}
	fmt.Fprintln(w, "\nthe generator cannot be trusted here:")
	for _, r := range failed {
		fmt.Fprintf(w, "- %s: %s\n", r.Kind, r.Why)
	}
	return ExitBroken
}

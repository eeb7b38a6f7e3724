// Command verify runs all named checks (the tests TestCheck… of the server), merges what they observed into a file a
// chapter, and prints the table of the checks and the matrix of what they prove. `make verify` runs it.
//
// Its exit status is 1 if a check failed, if a control was not seen to fail, if a check that is built did not run, or if
// the tests could not be run at all; 130 after Ctrl-C. With -run only what ran decides, and that must be something.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"imbench/server/internal/evidence"
)

// everything is the pattern of all checks.
const everything = "^TestCheck"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	fs := flag.NewFlagSet("verify", flag.ContinueOnError)
	fs.SetOutput(stderr)
	out := fs.String("out", "evidence", "`directory` for the evidence, a file a chapter")
	revision := fs.String("revision", "dev", "`revision` that the evidence is of")
	match := fs.String("run", everything, "`regexp` of the tests to run; the exit status is then theirs alone")
	packages := fs.String("packages", "./server/...", "`packages` to test")
	if fs.Parse(args) != nil {
		return 2
	}
	records, err := test(ctx, *match, *packages, stdout, stderr)
	if records != nil && (len(records) > 0 || *match == everything) { // a pattern that matches nothing removes no evidence
		if err := evidence.Write(*out, records, *revision); err != nil {
			fmt.Fprintln(stderr, "verify:", err)
			return 1
		}
		fmt.Fprintln(stdout)
		evidence.PrintChecks(stdout, records)
		fmt.Fprintln(stdout)
		evidence.PrintMatrix(stdout, records)
		fmt.Fprintf(stdout, "\n%v\n", evidence.Judge(records))
	}
	if ctx.Err() != nil {
		fmt.Fprintln(stderr, "verify: interrupted")
		return 130
	}
	if err == nil && *match != everything && len(records) == 0 {
		err = fmt.Errorf("-run %s matches no check: want one of ^TestCheck04$ to ^TestCheck11$, or of ^TestCheckChat$", *match)
	}
	if err != nil {
		fmt.Fprintln(stderr, "verify:", err)
		return 1
	}
	return status(evidence.Judge(records), *match != everything)
}

// status is the exit status of a verdict. some: not all checks were asked for, so that those that did not run say nothing.
func status(v evidence.Verdict, some bool) int {
	if some {
		v.Missing = 0
	}
	if !v.Good() {
		return 1
	}
	return 0
}

// test runs the tests and returns the records that they left. The error says that a test failed, or none could run.
func test(ctx context.Context, match, packages string, stdout, stderr io.Writer) (map[string]*evidence.Record, error) {
	dir, err := os.MkdirTemp("", "evidence-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-p", "1", "-json", "-run", match, packages)
	cmd.Env = append(os.Environ(), evidence.DirVar+"="+dir)
	// The tests end what they started when they are asked to end.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	cmd.Stderr = stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	failed, err := follow(pipe, stdout)
	if err := errors.Join(err, ignoreExit(cmd.Wait())); err != nil {
		return nil, err
	}
	records, err := evidence.Load(dir)
	if failed {
		err = errors.Join(err, errors.New("tests failed"))
	}
	return records, err
}

// ignoreExit leaves it to the events of the tests to say what failed.
func ignoreExit(err error) error {
	var status *exec.ExitError
	if errors.As(err, &status) {
		return nil
	}
	return err
}

// event is one of those that `go test -json` prints.
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
	Elapsed float64
}

// maxOutput bounds what is kept of the output of one test; its end is the part to show.
const maxOutput = 64 << 10

// follow prints a line for each check that has ended, and the output of what failed.
func follow(r io.Reader, w io.Writer) (failed bool, err error) {
	type test struct{ pkg, name string }
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 16<<20)
	output := map[test][]byte{}
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			fmt.Fprintln(w, lines.Text())
			continue
		}
		key := test{e.Package, e.Test}
		switch e.Action {
		case "output":
			text := append(output[key], e.Output...)
			output[key] = text[max(0, len(text)-maxOutput):]
		case "build-output":
			fmt.Fprint(w, e.Output)
		case "pass", "fail", "skip":
			if _, id, _ := strings.Cut(e.Test, "/"); id != "" && evidence.Known(id) {
				fmt.Fprintf(w, "%s  %6.1f s  %s\n", e.Action, e.Elapsed, e.Test)
			}
			if e.Action == "fail" {
				failed = true
				fmt.Fprintf(w, "%s", output[key])
			}
			delete(output, key)
		}
	}
	return failed, lines.Err()
}

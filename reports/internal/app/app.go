// Package app is the reports command as a value: flags in, a page and its figures out. It reads one run directory, which
// must be finished, and asks the model.
//
// The package holds no state; Run may be called from many goroutines with different output directories.
package app

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"imbench/model/capacity"
	"imbench/reports/internal/page"
	"imbench/reports/rundir"
)

// Exit codes.
const (
	ExitOK    = 0
	ExitError = 1 // no run, one that cannot be read, or output that cannot be written
	ExitUsage = 2 // a flag
)

// Program is what main hands over.
type Program struct {
	Args           []string
	Stdout, Stderr io.Writer
	Revision       string

	build func(*page.Run, capacity.Inputs, string) (page.Page, error) // page.Build, or a test's
}

type options struct {
	run       string
	out       string
	modelOnly bool
	version   bool
}

const usage = `reports makes one offline HTML page from a run directory and the capacity model.

  reports                         of runs/latest, or else of the newest finished run under runs/
  reports -run runs/baseline-…    of this run
  reports -model-only             of the model alone

`

// preset is whose capacity the page shows; a run with another load gets its own column beside it.
const preset = "im-baseline"

// runs is where loadgen leaves run directories.
const runs = "runs"

// Run is the whole command; it returns the exit code. What is wrong is one line on Stderr.
func Run(p Program) int {
	var o options
	fs := flag.NewFlagSet("reports", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Func("run", "run `DIR`ectory (default: runs/latest, or else the newest finished run under runs/)", func(dir string) error {
		if dir == "" {
			return errors.New("names no directory; leave -run out for the newest run")
		}
		if o.run != "" {
			return errors.New("a page is of one run; loadgen -repeat and -ab compare several")
		}
		o.run = dir
		return nil
	})
	fs.StringVar(&o.out, "out", filepath.Join("reports", "out"), "`DIR` for index.html and figures/")
	fs.BoolVar(&o.modelOnly, "model-only", false, "show the model alone, without a run")
	fs.BoolVar(&o.version, "version", false, "print the revision")
	err := fs.Parse(p.Args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(p.Stdout, usage)
		fs.SetOutput(p.Stdout)
		fs.PrintDefaults()
		return ExitOK
	case err == nil && fs.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q: every option is a flag", fs.Arg(0))
	case err == nil && o.modelOnly && o.run != "":
		err = errors.New("-model-only and -run exclude each other")
	}
	if err != nil {
		fmt.Fprintf(p.Stderr, "reports: %v (reports -help lists the flags)\n", err)
		return ExitUsage
	}
	if o.version {
		fmt.Fprintln(p.Stdout, p.Revision)
		return ExitOK
	}
	if err := p.report(o); err != nil {
		fmt.Fprintln(p.Stderr, "reports:", err)
		return ExitError
	}
	return ExitOK
}

func (p Program) report(o options) error {
	var run *page.Run
	subject := "the model alone"
	if !o.modelOnly {
		r, err := choose(o.run)
		if err != nil {
			return err
		}
		if run, err = page.Read(r); err != nil {
			return err
		}
		subject = fmt.Sprintf("%s, verdict %s", run.Manifest.Run, run.Summary.Verdict)
	}
	in, err := capacity.Lookup(preset)
	if err != nil {
		return err
	}
	build := p.build
	if build == nil {
		build = page.Build
	}
	made, err := build(run, in, p.Revision)
	if err != nil {
		return err
	}
	index, err := write(o.out, made)
	if err != nil {
		return err
	}
	for _, problem := range made.Problems {
		fmt.Fprintln(p.Stderr, "reports:", problem)
	}
	_, err = fmt.Fprintf(p.Stdout, "report of %s: %s\n", subject, index)
	return err
}

// ofSeries gives the first run in the directory of a series; "" if dir is none.
func ofSeries(dir string) string {
	for _, f := range []string{rundir.RepeatFile, rundir.ComparisonFile, rundir.SearchFile} {
		if _, err := os.Stat(filepath.Join(dir, f)); err == nil {
			if runs, _ := filepath.Glob(filepath.Join(dir, "*", rundir.ManifestFile)); len(runs) > 0 {
				return filepath.Dir(runs[0])
			}
		}
	}
	return ""
}

// choose opens the run directory that was asked for, or the one that people mean by default. A run that is not finished is
// refused: it has no verdict, and a page would look as if it had.
func choose(dir string) (*rundir.Reader, error) {
	if dir != "" {
		r, err := rundir.Open(dir)
		if one := ofSeries(dir); err != nil && one != "" {
			return nil, fmt.Errorf("%s is a series of runs; give -run one of them, such as %s", dir, one)
		}
		if err != nil {
			return nil, err
		}
		if !r.Finished() {
			return nil, fmt.Errorf("%s: %w; wait for its end, or choose another with -run", dir, rundir.ErrUnfinished)
		}
		return r, nil
	}
	if r, err := rundir.Open(filepath.Join(runs, "latest")); err == nil && r.Finished() {
		return r, nil
	}
	return newest(runs)
}

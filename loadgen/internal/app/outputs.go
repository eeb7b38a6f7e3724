package app

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"imbench/reports/rundir"
)

// outputOptions are the files in the formats of other tools, written when a run ends, beside the run directory.
type outputOptions struct {
	junit, markdown, benchstat string
	metrics                    string        // address; "" = none
	runs                       *[]rundir.Run // those of this process so far, for the files that hold all of them
}

func (o *outputOptions) define(fs *flag.FlagSet) {
	fs.StringVar(&o.junit, "junit", "", "`FILE` for a JUnit report: a case each criterion and each promise; of a series, all its runs")
	fs.StringVar(&o.markdown, "markdown", "", "`FILE` for the summary in GitHub's Markdown, as a comment in a pull request takes it")
	fs.StringVar(&o.benchstat, "benchstat", "", "`FILE` to which the run is appended as Go benchmark lines, for benchstat")
	fs.StringVar(&o.metrics, "metrics", "", "`ADDRESS` on which the generator's own figures are served for Prometheus, at /metrics")
	o.runs = new([]rundir.Run)
}

// check finds out before the load whether the files can be written.
func (o *outputOptions) check() error {
	for _, f := range [][2]string{{"-junit", o.junit}, {"-markdown", o.markdown}, {"-benchstat", o.benchstat}} {
		if err := canWrite(f[1]); err != nil {
			return fmt.Errorf("%s %s: %w", f[0], f[1], err)
		}
	}
	l, err := listenMetrics(o.metrics)
	if l != nil {
		err = l.Close()
	}
	return err
}

// canWrite leaves nothing behind that was not there before.
func canWrite(name string) error {
	if name == "" {
		return nil
	}
	_, before := os.Stat(name)
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		var pe *os.PathError
		if errors.As(err, &pe) {
			err = pe.Err // the name is said anyway
		}
		return fmt.Errorf("cannot be written: %w", err)
	}
	err = f.Close()
	if errors.Is(before, os.ErrNotExist) {
		err = errors.Join(err, os.Remove(name))
	}
	return err
}

// write makes the files anew with one more run.
func (o *outputOptions) write(run rundir.Run) error {
	if o.runs == nil {
		return nil
	}
	*o.runs = append(*o.runs, run)
	return errors.Join(
		put(o.junit, true, func(w io.Writer) error { return rundir.JUnit(w, *o.runs...) }),
		put(o.markdown, true, func(w io.Writer) error {
			for _, r := range *o.runs {
				if err := rundir.RenderMarkdown(w, r.Summary); err != nil {
					return err
				}
			}
			return nil
		}),
		put(o.benchstat, false, func(w io.Writer) error { return rundir.Benchstat(w, run) }))
}

// put writes a file in one go, in place of what was there or behind it; "" is no file. A file that is replaced is replaced
// whole or not at all, unless it is a device or a pipe.
func put(name string, replace bool, render func(io.Writer) error) error {
	if name == "" {
		return nil
	}
	var b bytes.Buffer
	if err := render(&b); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	st, err := os.Stat(name)
	if replace && (err != nil || st.Mode().IsRegular()) {
		aside := filepath.Join(filepath.Dir(name), "."+filepath.Base(name)+".part")
		if err := os.WriteFile(aside, b.Bytes(), 0o644); err != nil {
			_ = os.Remove(aside) // the first error is the one that matters
			return err
		}
		return os.Rename(aside, name)
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(b.Bytes())
	return errors.Join(err, f.Close())
}

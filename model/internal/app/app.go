// Package app is the model command as a value: flags in, a capacity table and an exit code out. It starts nothing and
// holds no state; Run may be called from many goroutines.
package app

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"

	"imbench/model/capacity"
)

// Exit codes.
const (
	ExitOK    = 0
	ExitError = 1 // output could not be written
	ExitUsage = 2 // a flag or a value
)

// Program is what main hands over.
type Program struct {
	Args           []string
	Stdout, Stderr io.Writer
	Revision       string
}

type options struct {
	preset  string
	set     settings
	json    bool
	list    bool
	version bool
}

// settings are the values of a flag that may be repeated.
type settings []string

func (s *settings) String() string     { return strings.Join(*s, ",") }
func (s *settings) Set(v string) error { *s = append(*s, v); return nil }

const usage = `model prints the capacity table of a load: which resource runs out first, and by how much.

  model                                  the documents' baseline
  model -preset chat-10m                 another preset
  model -set ack_every=1 -set N=1000     with inputs changed, by name or symbol
  model -list                            presets and inputs

`

// Run is the whole command; it returns the exit code. What is wrong with the flags is one line on Stderr.
func Run(p Program) int {
	var o options
	fs := flag.NewFlagSet("model", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.StringVar(&o.preset, "preset", "im-baseline", "`NAME` of the inputs to begin with")
	fs.Var(&o.set, "set", "`name=value` changes an input; may be repeated")
	fs.BoolVar(&o.json, "json", false, "print the table as JSON, and nothing else")
	fs.BoolVar(&o.list, "list", false, "list presets and inputs")
	fs.BoolVar(&o.version, "version", false, "print the revision")
	err := fs.Parse(p.Args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(p.Stdout, usage)
		fs.SetOutput(p.Stdout)
		fs.PrintDefaults()
		return ExitOK
	}
	if err == nil && fs.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q: every option is a flag", fs.Arg(0))
	}
	if err != nil {
		return usageError(p, fmt.Errorf("%w (model -help lists the flags)", err))
	}
	return p.answer(o)
}

func (p Program) answer(o options) int {
	if o.version {
		return p.written(fmt.Fprintln(p.Stdout, p.Revision))
	}
	in, err := inputs(o)
	if err != nil {
		return usageError(p, err)
	}
	var answer any = capacity.Predict(in)
	print := func() (int, error) { return p.Stdout.Write(renderTable(capacity.Predict(in))) }
	if o.list {
		answer = struct {
			Presets []capacity.Preset `json:"presets"`
			Inputs  []capacity.Input  `json:"inputs"`
		}{capacity.Presets(), in.All()}
		print = func() (int, error) { return p.Stdout.Write(renderList(in)) }
	}
	if !o.json {
		return p.written(print())
	}
	text, err := json.MarshalIndent(answer, "", "  ")
	if err != nil {
		return p.written(0, err)
	}
	return p.written(p.Stdout.Write(append(text, '\n')))
}

func (p Program) written(_ int, err error) int {
	if err != nil {
		fmt.Fprintln(p.Stderr, "model:", err)
		return ExitError
	}
	return ExitOK
}

func usageError(p Program, err error) int {
	fmt.Fprintln(p.Stderr, "model:", err)
	return ExitUsage
}

// inputs are the preset's with all settings applied, in order.
func inputs(o options) (capacity.Inputs, error) {
	in, err := capacity.Lookup(o.preset)
	if errors.Is(err, capacity.ErrUnknown) {
		var names []string
		for _, preset := range capacity.Presets() {
			names = append(names, preset.Name)
		}
		return in, fmt.Errorf("-preset %s: unknown%s (there are %s)", o.preset, nearest(o.preset, names), strings.Join(names, ", "))
	}
	for _, setting := range o.set {
		name, text, ok := strings.Cut(setting, "=")
		if !ok {
			return in, fmt.Errorf("-set %s: want name=value, as in -set ack_every=1", setting)
		}
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return in, fmt.Errorf("-set %s: %q is not a number", setting, text)
		}
		in, err = in.Set(name, value)
		if errors.Is(err, capacity.ErrUnknown) {
			return in, fmt.Errorf("-set %s: unknown input%s (model -list shows all)", setting, nearest(name, inputNames(in)))
		}
		if err != nil {
			return in, fmt.Errorf("-set %s: %w", setting, err)
		}
	}
	return in, nil
}

func inputNames(in capacity.Inputs) []string {
	var names []string
	for _, i := range in.All() {
		names = append(names, i.Name)
	}
	return names
}

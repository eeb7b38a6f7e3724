package app

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
)

// usageError is all that is wrong with flags and environment, a line each.
type usageError []string

func (e usageError) Error() string { return strings.Join(e, "\n") }

var errHelp = errors.New("help asked for")

// flagSet is a flag.FlagSet that reports all that is wrong at once instead of the first.
type flagSet struct {
	*flag.FlagSet
	problems usageError
}

func newFlagSet(name string) *flagSet {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	return &flagSet{FlagSet: fs}
}

func (f *flagSet) badf(format string, args ...any) {
	f.problems = append(f.problems, fmt.Sprintf(format, args...))
}

// need notes that a flag's value must be as said unless ok.
func (f *flagSet) need(ok bool, name, must string) {
	switch value := f.Lookup(name).Value.String(); {
	case ok:
	case value == "":
		f.badf("-%s has no value: must be %s", name, must)
	default:
		f.badf("-%s %s: must be %s", name, value, must)
	}
}

// parse reads args with the rules of package flag; errHelp if -help is among them.
func (f *flagSet) parse(args []string) error {
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		name, isFlag := strings.CutPrefix(strings.TrimPrefix(arg, "-"), "-")
		if !isFlag {
			name, isFlag = strings.CutPrefix(arg, "-")
		}
		if !isFlag || name == "" {
			f.badf("%q: unexpected argument, flags start with -", arg)
			continue
		}
		name, value, given := strings.Cut(name, "=")
		if name == "help" || name == "h" {
			return errHelp
		}
		fl := f.Lookup(name)
		switch {
		case fl == nil:
			f.badf("-%s: there is no such flag%s", name, f.nearest(name))
			if !given && len(args) > 0 && !strings.HasPrefix(args[0], "-") {
				args = args[1:] // most likely its value
			}
			continue
		case given:
		case isBool(fl):
			value = "true"
		case len(args) == 0:
			f.badf("-%s: a value must follow", name)
			continue
		default:
			value, args = args[0], args[1:]
		}
		if err := f.Set(name, value); err != nil {
			f.badf("-%s %s: must be %s", name, value, kindOf(fl))
			_ = fl.Value.Set(fl.DefValue) // so that no second complaint is about what Set left behind
		}
	}
	return nil
}

func isBool(fl *flag.Flag) bool {
	b, ok := fl.Value.(interface{ IsBoolFlag() bool })
	return ok && b.IsBoolFlag()
}

// kindOf says in words what a flag's value looks like.
func kindOf(fl *flag.Flag) string {
	if isBool(fl) {
		return "true or false"
	}
	if fl.Name == "log-level" {
		return "debug, info, warn or error"
	}
	if fl.DefValue != "" && strings.Trim(fl.DefValue, "0123456789") == "" {
		return "a whole number, such as " + fl.DefValue
	}
	return "a duration with its unit, such as " + fl.DefValue
}

// nearest suggests the flag that begins alike or differs in at most two letters.
func (f *flagSet) nearest(name string) string {
	best, bestDist := "", 3
	f.VisitAll(func(fl *flag.Flag) {
		if d := distance(name, fl.Name); d < bestDist {
			best, bestDist = fl.Name, d
		}
	})
	if best == "" {
		return ""
	}
	return ", did you mean -" + best + "?"
}

// distance is the Levenshtein distance.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diag := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			next := min(row[j]+1, row[j+1]+1, diag+cost)
			diag, row[j+1] = row[j+1], next
		}
	}
	return row[len(b)]
}

// help prints what the flags mean.
func (f *flagSet) help(w io.Writer, intro string) {
	fmt.Fprint(w, intro)
	f.SetOutput(w)
	f.PrintDefaults()
}

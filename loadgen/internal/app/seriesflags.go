package app

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"time"
)

// seriesOptions are the flags that ask for more than one run.
type seriesOptions struct {
	repeat   int
	sameSeed bool
	ab       string
	variants []variant // two with -ab, else none
	search   bool
	probes   probeOptions
}

// probeOptions say how -search tries.
type probeOptions struct {
	resolution, highest float64
	warmup, measure     time.Duration // of the short probes
	retries             int
}

// variant is one side of -ab.
type variant struct {
	name   string
	set    []string // as -set
	target *options // the command's options with the variant's own targets; nil = as the command's
}

func (s *seriesOptions) register(fs *flag.FlagSet) {
	fs.IntVar(&s.repeat, "repeat", 0, "make `N` runs and say how far they lie apart; with -ab, N pairs (default 4); an interval needs 3")
	fs.BoolVar(&s.sameSeed, "same-seed", false, "with -repeat and -ab: the same population and arrivals in all runs (default: seed, seed+1, …)")
	fs.StringVar(&s.ab, "ab", "", "compare two variants in pairs: `path=a,b`, or 'NAME: path=x path=y | NAME: path=z', or NAME=URL,NAME=URL (then -admin NAME=URL,NAME=URL)")
	fs.BoolVar(&s.search, "search", false, "find the highest multiple of the scenario's rates that meets its criteria")
	fs.Float64Var(&s.probes.resolution, "search-resolution", 0.05, "how far apart the ends of the answer may be, as a share of its `PART`")
	fs.Float64Var(&s.probes.highest, "search-highest", 64, "no higher `MULTIPLE` of the scenario's rates is tried")
	fs.DurationVar(&s.probes.warmup, "search-warmup", 5*time.Second, "warm-up of the short probes")
	fs.DurationVar(&s.probes.measure, "search-measure", 15*time.Second, "measured window of the short probes")
	fs.IntVar(&s.probes.retries, "search-retries", 1, "a short probe that did not hold is tried again `N` times before it counts")
}

func (s *seriesOptions) active() bool { return s.repeat != 0 || s.ab != "" || s.search }

// defaultPairs is an even number: drift cancels in ABBA.
const defaultPairs = 4

// check completes the flags of a series. complete does for a variant's options what a run's target flags need.
func (s *seriesOptions) check(o options, complete func(*options) error) error {
	switch {
	case !s.active():
		if s.sameSeed {
			return errors.New("-same-seed goes with -repeat or -ab")
		}
		return nil
	case o.cpuProfile != "":
		return errors.New("-cpuprofile is for a single run: leave it out, or leave out -repeat, -ab and -search")
	case s.search && (s.ab != "" || s.repeat != 0 || s.sameSeed):
		return errors.New("-search makes its own runs, all with one seed: it does not go with -repeat, -same-seed or -ab")
	case s.search:
		return s.probes.check()
	case s.repeat < 0 || s.repeat > 1000:
		return fmt.Errorf("-repeat %d: want 1 to 1000 runs", s.repeat)
	case s.ab == "":
		return nil
	case s.repeat == 1:
		return errors.New("-repeat 1: one pair says nothing of noise; -ab needs at least 2")
	}
	if s.repeat == 0 {
		s.repeat = defaultPairs
	}
	return s.parseVariants(o, complete)
}

func (p probeOptions) check() error {
	switch {
	case !(p.resolution >= 0.005 && p.resolution <= 1):
		return fmt.Errorf("-search-resolution %v: want a share from 0.005 to 1, as 0.05 for 5 %%", p.resolution)
	case !(p.highest >= 1 && p.highest <= 1e6):
		return fmt.Errorf("-search-highest %v: want a multiple from 1 to a million", p.highest)
	case p.warmup < 0 || p.measure <= 0:
		return fmt.Errorf("-search-warmup %v and -search-measure %v: want a length, and a window above 0s", p.warmup, p.measure)
	case p.retries < 0 || p.retries > 10:
		return fmt.Errorf("-search-retries %d: want 0 to 10", p.retries)
	}
	return nil
}

// parseVariants reads -ab in its three forms.
func (s *seriesOptions) parseVariants(o options, complete func(*options) error) error {
	var err error
	switch {
	case strings.Contains(s.ab, "://"):
		s.variants, err = targetVariants(s.ab, o, complete)
	case strings.Contains(s.ab, "|"):
		s.variants, err = namedVariants(s.ab)
	default:
		s.variants, err = valueVariants(s.ab)
	}
	if err != nil {
		return fmt.Errorf("-ab %q: %w", s.ab, err)
	}
	if a, b := s.variants[0], s.variants[1]; a.name == b.name {
		return fmt.Errorf("-ab %q: both variants are called %q; to compare a variant with itself give them names: 'one: | two:'", s.ab, a.name)
	}
	return nil
}

// valueVariants: path=a,b.
func valueVariants(text string) ([]variant, error) {
	path, values, ok := strings.Cut(text, "=")
	both := strings.Split(values, ",")
	if path = strings.TrimSpace(path); !ok || path == "" || len(both) != 2 {
		return nil, errors.New("want two values of one field, as delivery.mode=push,pull; for more: 'NAME: path=x path=y | NAME: path=z'")
	}
	var list []variant
	for _, v := range both {
		v = strings.TrimSpace(v)
		list = append(list, variant{name: v, set: []string{path + "=" + v}})
	}
	return list, nil
}

// namedVariants: NAME: path=x path=y | NAME: path=z.
func namedVariants(text string) ([]variant, error) {
	sides := strings.Split(text, "|")
	if len(sides) != 2 {
		return nil, fmt.Errorf("has %d sides: want two, with one | between them", len(sides))
	}
	var list []variant
	for _, side := range sides {
		name, set, ok := strings.Cut(side, ":")
		name = strings.TrimSpace(name)
		if !ok || name == "" || strings.ContainsAny(name, "= ") {
			return nil, fmt.Errorf("%q does not begin with a name and a colon", strings.TrimSpace(side))
		}
		list = append(list, variant{name: name, set: strings.Fields(set)})
	}
	return list, nil
}

// targetVariants: NAME=URL,NAME=URL, each side one gateway or several with + between them, and -admin likewise.
func targetVariants(text string, o options, complete func(*options) error) ([]variant, error) {
	if len(o.targets) > 0 {
		return nil, errors.New("names the targets: leave -target out")
	}
	names, urls, err := namedURLs(text)
	if err != nil {
		return nil, err
	}
	adminNames, admins, err := namedURLs(o.admin)
	if err != nil || !slices.Equal(names, adminNames) || len(admins[0]) == 0 || len(admins[1]) == 0 {
		return nil, fmt.Errorf("needs -admin %s=URL,%s=URL: the population is created through each target's admin listener", names[0], names[1])
	}
	var list []variant
	for i, name := range names {
		own := o
		own.targets, own.admin = urls[i], strings.Join(admins[i], ",")
		if err := complete(&own); err != nil {
			return nil, err
		}
		list = append(list, variant{name: name, target: &own})
	}
	return list, nil
}

func namedURLs(text string) (names []string, urls [][]string, err error) {
	for _, part := range split(text) {
		name, list, ok := strings.Cut(part, "=")
		if !ok || name == "" || strings.Contains(name, ":") {
			return nil, nil, fmt.Errorf("%q: want NAME=URL", part)
		}
		names = append(names, name)
		urls = append(urls, split(strings.ReplaceAll(list, "+", ",")))
	}
	if len(names) != 2 {
		return nil, nil, fmt.Errorf("has %d sides: want NAME=URL,NAME=URL", len(names))
	}
	return names, urls, nil
}

// ownTargets says whether -ab names the targets, which are then checked by variant.
func (s *seriesOptions) ownTargets() bool { return len(s.variants) > 0 && s.variants[0].target != nil }

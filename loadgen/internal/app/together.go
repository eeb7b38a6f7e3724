package app

import (
	"flag"
	"fmt"
	"slices"
	"strings"
)

// alone are the flags that ask for something other than a run, each with those that mean something beside it. What means
// nothing there is refused: who gave it expects that it does something.
var alone = []struct{ name, with string }{
	{"list", ""},
	{"version", ""},
	{"selftest", ""},
	{"stop", "out scenario target cleanup"}, // standalone says why not the last three
	{"check", "target admin admin-token-file scenario set allow-environment allow-commands check-idle owner ca cert key server-name header population tokens"},
	{"cleanup", "admin admin-token-file owner ca cert key server-name header scenario target"}, // standalone says why not the last two
	{"worker", "fleet ca cert key server-name header scenario target admin"},                   // of the last three checkFleet says where they go,
}

// sayMore are flags that say more about another one.
var sayMore = map[string]string{
	"search-resolution": "search", "search-highest": "search", "search-warmup": "search", "search-measure": "search", "search-retries": "search",
	"check-idle": "check", "quiet": "prometheus", "tokens": "population",
}

// never go together: the first has no say in what the second does.
var never = [][2]string{{"json", "explain"}, {"db", "target"}, {"keep", "population"}, {"owner", "population"}}

// filled are the flags that say what is done, and to whom. An empty one, as of a variable that is not set, is refused: without
// it something else would be done.
var filled = []string{"stop", "cleanup", "target", "population", "ab"}

// together refuses flags of the command line that do not belong together. What the environment gives is not looked at.
func together(fs *flag.FlagSet) error {
	given := map[string]bool{}
	fs.Visit(func(f *flag.Flag) {
		if f.Value.String() != "false" {
			given[f.Name] = true
		}
	})
	names := []string{} // sorted, as Visit is
	fs.Visit(func(f *flag.Flag) {
		if given[f.Name] {
			names = append(names, f.Name)
		}
	})
	for _, n := range names {
		if slices.Contains(filled, n) && fs.Lookup(n).Value.String() == "" {
			return fmt.Errorf("-%s is empty: give its value, or leave the flag out", n)
		}
	}
	for _, a := range alone {
		if !given[a.name] {
			continue
		}
		for _, n := range names {
			if n != a.name && !slices.Contains(strings.Fields(a.with), n) {
				return fmt.Errorf("-%s does not go with -%s, which makes no run of that kind: leave one of them out", n, a.name)
			}
		}
	}
	for _, n := range names {
		if other, ok := sayMore[n]; ok && !given[other] {
			return fmt.Errorf("-%s says something of -%s, which is not given", n, other)
		}
	}
	for _, pair := range never {
		if given[pair[0]] && given[pair[1]] {
			return fmt.Errorf("-%s does not go with -%s: leave one of them out", pair[0], pair[1])
		}
	}
	return nil
}

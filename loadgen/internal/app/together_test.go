package app

import (
	"bytes"
	"strings"
	"testing"
)

// What would be ignored is refused, with the name of the flag.
func TestFlagsThatDoNotGoTogether(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"-list -scenario smoke", "-scenario does not go with -list"},
		{"-list -selftest", "-selftest does not go with -list"},
		{"-selftest -repeat 3", "-repeat does not go with -selftest"},
		{"-stop r -explain", "-explain does not go with -stop"},
		{"-check -target http://127.0.0.1:1 -admin http://127.0.0.1:1 -search", "-search does not go with -check"},
		{"-check -target http://127.0.0.1:1 -cleanup n", "-cleanup does not go with -check"},
		{"-cleanup n -admin http://127.0.0.1:1 -explain", "-explain does not go with -cleanup"},
		{"-worker -fleet nats://127.0.0.1:1 -repeat 3", "-repeat does not go with -worker"},
		{"-worker -fleet nats://127.0.0.1:1 -workers 4", "-workers does not go with -worker"},
		{"-scenario smoke -explain -search-highest 3", "-search-highest says something of -search"},
		{"-scenario smoke -explain -check-idle 1s", "-check-idle says something of -check"},
		{"-scenario smoke -explain -quiet 1s", "-quiet says something of -prometheus"},
		{"-scenario smoke -explain -json", "-json does not go with -explain"},
		{"-stop  -out runs", "-stop is empty: give its value"},
		{"-cleanup  -admin http://127.0.0.1:1", "-cleanup is empty"},
		{"-scenario smoke -target  -explain", "-target is empty"},
		{"-scenario smoke -explain -population ", "-population is empty"},
		{"-scenario smoke -explain -db postgres://h/d -target http://127.0.0.1:1", "-db does not go with -target"},
	} {
		var out, say bytes.Buffer
		args := strings.Split(c.args, " ") // two spaces: an empty value
		code := Run(t.Context(), Program{Args: args, Env: []string{"IM_ADMIN_TOKEN=t"}, Stdout: &out, Stderr: &say})
		if code != ExitUsage || !strings.Contains(say.String(), c.want) || strings.Count(say.String(), "\n") != 1 || out.Len() > 0 {
			t.Errorf("%s: exit %d, %q, want %q", c.args, code, say.String(), c.want)
		}
	}
}

// A flag that is switched off and what the environment gives are in nobody's way.
func TestFlagsThatGoTogether(t *testing.T) {
	for _, args := range []string{
		"-list -search=false",
		"-scenario smoke -explain -json=false -keep",
		"-scenario smoke -explain -target http://127.0.0.1:1",
		"-scenario smoke -explain -search -search-highest 3",
	} {
		var out, say bytes.Buffer
		code := Run(t.Context(), Program{Args: strings.Fields(args), Env: []string{"DATABASE_URL=postgres://h/d"}, Stdout: &out, Stderr: &say})
		if code != ExitPassed {
			t.Errorf("%s: exit %d, %q", args, code, say.String())
		}
	}
}

package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// A database that cannot be one is a mistake of the caller: a single sentence, before anything is started.
func TestABadDatabaseIsRefused(t *testing.T) {
	for _, url := range []string{"nonsense", "mysql://h/db", "postgres://u:geheim@[::1/db", "postgres://u:geheim@h:port/db", "postgres://h/db?sslmode=bad"} {
		for source, p := range map[string]Program{
			"flag":        {Args: []string{"-scenario", "smoke", "-out", t.TempDir(), "-db", url}},
			"environment": {Args: []string{"-scenario", "smoke", "-out", t.TempDir()}, Env: []string{"DATABASE_URL=" + url}},
		} {
			var out, say bytes.Buffer
			p.Stdout, p.Stderr = &out, &say
			if code := Run(context.Background(), p); code != ExitUsage {
				t.Errorf("%s %s: exit %d, want %d", source, url, code, ExitUsage)
			}
			if s := say.String(); strings.Count(s, "\n") != 1 || !strings.Contains(s, "-db") || strings.Contains(s, "geheim") || out.Len() > 0 {
				t.Errorf("%s %s: %q", source, url, s)
			}
		}
	}
}

// Gateways that fail alike are told once.
func TestFirst(t *testing.T) {
	one := errors.New("one")
	for _, err := range []error{one, errors.Join(one, errors.New("two")), errors.Join(errors.Join(one, nil), errors.New("three"))} {
		if got := first(err); got != one {
			t.Errorf("first of %q is %q", err, got)
		}
	}
	wrapped := fmt.Errorf("gateway-1: %w", one)
	if got := first(errors.Join(wrapped, one)); got != wrapped {
		t.Errorf("first is %q", got)
	}
}

// Two commands in one line are refused: what one of them needs has not been checked for the other.
func TestOneCommandAtATime(t *testing.T) {
	commands := [][]string{{"-list"}, {"-version"}, {"-selftest"}, {"-explain"}, {"-worker", "-fleet", "nats://127.0.0.1:1"}, {"-stop", "run"}, {"-check"}, {"-cleanup", "x"}}
	for i, a := range commands {
		for _, b := range commands[i+1:] {
			var out, say strings.Builder
			code := Run(t.Context(), Program{Args: append(slices.Clone(a), b...), Stdout: &out, Stderr: &say})
			if code != ExitUsage || strings.Count(say.String(), "\n") != 1 || out.Len() > 0 {
				t.Errorf("%v %v: exit %d, %q", a, b, code, say.String())
			}
		}
	}
}

// A value that its flag does not take: which flag, what was given, and what would be right, in one line.
func TestBadValues(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	for _, c := range []struct{ arg, says string }{
		{"-repeat=x", `invalid value "x" for flag -repeat: want a whole number, as 3`},
		{"-repeat=1e3", `invalid value "1e3" for flag -repeat: want a whole number, as 3`},
		{"-workers=1.5", `invalid value "1.5" for flag -workers: want a whole number, as 3`},
		{"-workers=99999999999999999999", `for flag -workers: want a whole number, as 3`},
		{"-search-retries=", `invalid value "" for flag -search-retries: want a whole number, as 3`},
		{"-search-resolution=5%", `invalid value "5%" for flag -search-resolution: want a number, as 0.5`},
		{"-search-measure=15", `invalid value "15" for flag -search-measure: want a duration with its unit, as 500ms, 30s or 2m`},
		{"-quiet=soon", `invalid value "soon" for flag -quiet: want a duration with its unit`},
		{"-check-idle=30", `invalid value "30" for flag -check-idle: want a duration such as 10s`},
		{"-ramp=-1s", `invalid value "-1s" for flag -ramp: want a duration such as 10s`},
		{"-seed=-1", `invalid value "-1" for flag -seed: want a whole number from 0 on`},
		{"-json=maybe", `invalid boolean value "maybe" for -json: want true or false`},
		{"-calibrate=maybe", `"maybe" for -calibrate: want true or false`},
		{"-repeat=" + long, `for flag -repeat: want a whole number, as 3`},
		{long, "unexpected argument"},
	} {
		var out, say strings.Builder
		code := Run(t.Context(), Program{Args: []string{c.arg}, Stdout: &out, Stderr: &say})
		if code != ExitUsage || !strings.Contains(say.String(), c.says) || strings.Count(say.String(), "\n") != 1 || say.Len() > 1000 || out.Len() > 0 {
			t.Errorf("%.40s: exit %d, %.1000q; want %q", c.arg, code, say.String(), c.says)
		}
	}
}

// The help is made from the flags' own types.
func TestHelp(t *testing.T) {
	var out, say strings.Builder
	if code := Run(t.Context(), Program{Args: []string{"-help"}, Stdout: &out, Stderr: &say}); code != ExitPassed || say.Len() > 0 {
		t.Errorf("exit %d, %s", code, say.String())
	}
	for _, want := range []string{"-search-measure duration\n", "(default 15s)", "-search-retries N\n", "-json\n    \tprint", "-no-abort\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the help lacks %q:\n%s", want, out.String())
		}
	}
}

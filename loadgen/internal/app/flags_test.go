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
	commands := [][]string{{"-list"}, {"-selftest"}, {"-explain"}, {"-worker", "-fleet", "nats://127.0.0.1:1"}, {"-stop", "run"}, {"-check"}, {"-cleanup", "x"}}
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

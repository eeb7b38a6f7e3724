package main

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"imbench/loadgen/internal/app"
)

// Every loadgen command of the documents is one that loadgen accepts: each is run as it stands, with -explain.
func TestCommandsOfTheDocuments(t *testing.T) {
	command := regexp.MustCompile(`(?m)^(?:IM_ADMIN_TOKEN=\S+ )?(?:bin/)?loadgen (-(?:.*\\\n)*.*)$`)
	found := 0
	for _, file := range []string{"../README.md", "../scenarios/README.md"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range command.FindAllStringSubmatch(string(text), -1) {
			args := m[1]
			if strings.Contains(args, "…") || strings.HasPrefix(args, "-worker ") {
				continue // not the whole command; one that waits for a coordinator (TestFleet has it)
			}
			found++
			var out, errs strings.Builder
			code := app.Run(t.Context(), app.Program{Args: append(words(t, args), "-explain"), Stdout: &out, Stderr: &errs})
			if code != app.ExitPassed {
				t.Errorf("%s: loadgen %s\nexit %d: %s", file, args, code, errs.String())
			}
		}
	}
	if found < 3 {
		t.Errorf("only %d commands found: the pattern does not fit the documents any more", found)
	}
}

// words are a command's arguments as the shell takes them.
func words(t *testing.T, args string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "sh", "-c", `printf '%s\n' `+args).Output()
	if err != nil {
		t.Fatalf("%s: %v", args, err)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
}

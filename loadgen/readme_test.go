package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"imbench/loadgen/internal/app"
)

// Every loadgen command of the documents is one that loadgen accepts: each is run as it stands, with -explain.
func TestCommandsOfTheDocuments(t *testing.T) {
	command := regexp.MustCompile(`(?m)^(?:IM_ADMIN_TOKEN=\S+ )?(?:bin/)?loadgen (-.*)$`)
	found := 0
	for _, file := range []string{"../README.md", "../scenarios/README.md"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range command.FindAllStringSubmatch(string(text), -1) {
			args, _, _ := strings.Cut(m[1], "#")
			found++
			var out, errs strings.Builder
			fields := strings.Fields(strings.ReplaceAll(args, "'", ""))
			code := app.Run(t.Context(), app.Program{Args: append(fields, "-explain"), Stdout: &out, Stderr: &errs})
			if code != app.ExitPassed {
				t.Errorf("%s: loadgen %s\nexit %d: %s", file, args, code, errs.String())
			}
		}
	}
	if found < 3 {
		t.Errorf("only %d commands found: the pattern does not fit the documents any more", found)
	}
}

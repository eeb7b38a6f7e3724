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
	var texts []string
	files := []string{"../README.md", "../scenarios/README.md"}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(text))
	}
	t.Chdir(t.TempDir())
	if err := os.WriteFile("users.csv", []byte("user,device\nana,ana-phone\n"), 0o600); err != nil { // that the documents speak of
		t.Fatal(err)
	}
	for i, text := range texts {
		for _, m := range command.FindAllStringSubmatch(text, -1) {
			args := m[1]
			if strings.Contains(args, "…") || strings.HasPrefix(args, "-worker ") {
				continue // not the whole command; one that waits for a coordinator (TestFleet has it)
			}
			found++
			var out, errs strings.Builder
			code := app.Run(t.Context(), app.Program{Args: append(words(t, args), "-explain"), Stdout: &out, Stderr: &errs})
			if code != app.ExitPassed {
				t.Errorf("%s: loadgen %s\nexit %d: %s", files[i], args, code, errs.String())
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

package main

import (
	"os"
	"strings"
	"testing"

	"imbench/model/internal/app"
)

// The README's capacity table is what the command prints.
func TestReadmeShowsTheTable(t *testing.T) {
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, ok := strings.Cut(string(text), "$ bin/model\n")
	block, _, ok2 := strings.Cut(block, "```")
	if !ok || !ok2 {
		t.Fatal("the README shows no output of bin/model")
	}
	var out, errs strings.Builder
	if code := app.Run(app.Program{Stdout: &out, Stderr: &errs}); code != 0 {
		t.Fatalf("exit %d: %s", code, errs.String())
	}
	if !strings.HasPrefix(out.String(), strings.TrimRight(block, "\n")) {
		t.Errorf("the README's table is not what the command prints:\n%s\nprints\n%s", block, out.String())
	}
}

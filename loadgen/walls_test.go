package main

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// leaves import nothing of the module; the value lists what they may import besides the standard library.
var leaves = map[string][]string{
	"imbench/server/wire":    nil,
	"imbench/model/capacity": nil,
	"imbench/reports/rundir": {"github.com/HdrHistogram/hdrhistogram-go"},
}

// startsStack are the files that start the embedded stack: one turns the process into a gateway of it when it is asked
// to, the other starts it. No other file outside server knows server/local.
var startsStack = []string{"loadgen/main.go", "loadgen/main_test.go", "loadgen/brought_test.go", "loadgen/faults_test.go", "loadgen/shipped_test.go", "loadgen/staging_test.go", "loadgen/internal/app/environment.go"}

// breach says which wall between the rooms an import of a file breaks; "" is none. The file is its slashed path from
// the module's root. Tests of leaves may import what they compare themselves with, as long as it stands behind no other
// wall.
func breach(file, imp string) string {
	pkg := path.Join("imbench", path.Dir(file))
	own := imp == "imbench" || strings.HasPrefix(imp, "imbench/")
	if allowed, leaf := leaves[pkg]; leaf && !strings.HasSuffix(file, "_test.go") {
		standard := !own && !strings.Contains(strings.Split(imp, "/")[0], ".")
		if !standard && !slices.Contains(allowed, imp) {
			return "a leaf imports the standard library"
		}
	}
	switch {
	case !under(pkg, "imbench/server") && under(imp, "imbench/server"):
		local := imp == "imbench/server/local" && slices.Contains(startsStack, file)
		if !local && imp != "imbench/server/wire" && imp != "imbench/server/wire/rawsock" {
			return "outside server only server/wire is known of it"
		}
	case under(imp, "imbench/loadgen") && !under(pkg, "imbench/loadgen"):
		return "what loadgen knows is read from run directories"
	}
	return ""
}

func under(pkg, room string) bool { return pkg == room || strings.HasPrefix(pkg, room+"/") }

// TestWalls holds the walls between the rooms. It parses the files itself, so that it also sees those of other
// systems, and so that a cached result is dropped when any of them changes.
func TestWalls(t *testing.T) {
	seen := map[string]bool{}
	for _, room := range []string{"server", "loadgen", "model", "reports", "scenarios"} {
		err := filepath.WalkDir(filepath.Join("..", room), func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(name) != ".go" {
				return err
			}
			parsed, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
			if err != nil {
				return err
			}
			file := strings.TrimPrefix(filepath.ToSlash(name), "../")
			seen[path.Join("imbench", path.Dir(file))] = true
			for _, spec := range parsed.Imports {
				imp, err := strconv.Unquote(spec.Path.Value)
				if err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				if wall := breach(file, imp); wall != "" {
					t.Errorf("%s imports %s: %s", file, imp, wall)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, leaf := range slices.Sorted(maps.Keys(leaves)) {
		if !seen[leaf] {
			t.Errorf("%s is gone: its wall holds nothing", leaf)
		}
	}
}

// TestWallsCanBreak: each wall is seen when it is broken, and only then.
func TestWallsCanBreak(t *testing.T) {
	for _, c := range []struct {
		file, imports string
		broken        bool
	}{
		{"server/internal/app/gateway.go", "imbench/server/internal/im", false},
		{"loadgen/protocol/conn.go", "imbench/server/wire", false},
		{"loadgen/protocol/conn.go", "imbench/server/wire/rawsock", false},
		{"loadgen/main.go", "imbench/server/local", false},
		{"loadgen/internal/app/runner.go", "imbench/server/local", true},
		{"loadgen/internal/driver/driver_test.go", "imbench/server/internal/im", true},
		{"model/main.go", "imbench/server", true},
		{"reports/main.go", "imbench/server/local", true},
		{"reports/internal/page/run.go", "imbench/loadgen/internal/sample", true},
		{"reports/internal/page/run_test.go", "imbench/loadgen", true},
		{"model/internal/app/app.go", "imbench/loadgen/protocol", true},
		{"server/local/local.go", "imbench/loadgen/protocol", true},
		{"loadgen/internal/record/recorder.go", "imbench/reports/rundir", false},
		{"server/wire/scan.go", "unicode/utf8", false},
		{"server/wire/scan.go", "imbench/server/wire/rawsock", true},
		{"server/wire/scan.go", "github.com/google/uuid", true},
		{"server/wire/scan_test.go", "pgregory.net/rapid", false},
		{"model/capacity/run.go", "imbench/server/wire", true},
		{"model/capacity/run_test.go", "imbench/server/wire", false},
		{"reports/rundir/writer.go", "github.com/HdrHistogram/hdrhistogram-go", false},
		{"reports/rundir/writer.go", "imbench/model/capacity", true},
	} {
		if wall := breach(c.file, c.imports); (wall != "") != c.broken {
			t.Errorf("%s importing %s: %q, broken should be %v", c.file, c.imports, wall, c.broken)
		}
	}
}

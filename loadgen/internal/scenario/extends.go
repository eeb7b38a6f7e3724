package scenario

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"imbench/scenarios"
)

// maxDepth bounds how many files stand behind one another by extends.
const maxDepth = 8

// source is a scenario file. Its name is what messages call it.
type source struct {
	name    string
	bytes   []byte
	shipped bool
}

// same says whether two sources are one file.
func (a source) same(b source) bool { return a.shipped == b.shipped && a.name == b.name }

// find looks up what stands behind extends: a shipped scenario, or a file beside the one that says so. Files beside are
// named without a folder, so that a scenario and what it extends travel together.
func (a source) find(name string) (source, error) {
	if strings.ContainsAny(name, `/\`) {
		return source{}, fmt.Errorf("%q is a path; extends takes the name of a shipped scenario or of a file beside this one", name)
	}
	if b, err := scenarios.FS.ReadFile(name + ".yaml"); err == nil {
		return source{name + ".yaml", b, true}, nil
	}
	unknown := fmt.Errorf("no shipped scenario and no file beside this one is called %q; %s", name, nearest(name, Names()))
	if a.shipped {
		return source{}, unknown
	}
	for _, file := range []string{name, name + ".yaml"} {
		file = filepath.Join(filepath.Dir(a.name), file)
		b, err := readFile(file)
		if err == nil {
			return source{file, b, false}, nil
		}
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrInvalid) {
			return source{}, err
		}
	}
	return source{}, unknown
}

// extend fills the scenario with what the file extends, if it extends anything. What is wrong there is told with that
// file's lines, and what is wrong with extends itself with this one's.
func (d *decoder) extend(root ast.Node, s *Scenario) {
	entries, _ := entriesOf(root)
	for _, e := range entries {
		if e.Key.GetToken().Value != "extends" {
			continue
		}
		name, ok := scalar(e.Value)
		if !ok || name == "" {
			return // section says what is wrong with it
		}
		chain := append(slices.Clone(d.chain), d.from)
		base, err := d.from.find(name)
		switch {
		case err != nil:
			d.problem(start(e.Value), "extends: %v", err)
		case slices.ContainsFunc(chain, base.same):
			d.problem(start(e.Value), "extends: %s goes back to itself: %s", chain[0].name, route(append(chain, base)))
		case len(chain) > maxDepth:
			d.problem(start(e.Value), "extends: more than %d files stand behind one another: %s", maxDepth, route(chain))
		default:
			b := &decoder{from: base, at: d.at, chain: chain}
			b.decode(base.bytes, s)
			d.Problems = append(d.Problems, b.Problems...)
			s.bases = append(s.bases, strings.TrimSuffix(filepath.Base(base.name), ".yaml"))
			s.Name, s.Description = "", "" // these are each file's own
		}
		return
	}
}

func route(chain []source) string {
	var all []string
	for _, c := range chain {
		all = append(all, c.name)
	}
	return strings.Join(all, " → ")
}

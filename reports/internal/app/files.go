package app

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"imbench/reports/internal/figure"
	"imbench/reports/internal/page"
	"imbench/reports/rundir"
)

// errNoRun is what a first-time user sees.
var errNoRun = errors.New("no finished run; `make baseline` (or `make smoke`) makes one, and -model-only does without")

// newest is the finished run under dir that started last.
func newest(dir string) (*rundir.Reader, error) {
	list, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var best *rundir.Reader
	for _, e := range list {
		r, err := rundir.Open(filepath.Join(dir, e.Name()))
		if err != nil || !r.Finished() {
			continue // another program's directory, a version of tomorrow, a run that died
		}
		if best == nil || r.Manifest().Started.After(best.Manifest().Started) {
			best = r
		}
	}
	if best == nil {
		return nil, fmt.Errorf("%s: %w", dir, errNoRun)
	}
	return best, nil
}

// write puts the page and its figures under dir, and says where the page is. Figures that an earlier report
// left and this one does not have are removed, so that nobody takes them for its own.
func write(dir string, p page.Page) (index string, err error) {
	figures := filepath.Join(dir, "figures")
	if err := os.MkdirAll(figures, 0o755); err != nil {
		return "", err
	}
	for _, name := range figure.Names() {
		if err := os.Remove(filepath.Join(figures, name+".png")); err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", err
		}
	}
	for _, f := range p.Figures {
		if err := replace(filepath.Join(figures, f.Name+".png"), f.PNG); err != nil {
			return "", err
		}
	}
	index = filepath.Join(dir, "index.html")
	return index, replace(index, p.HTML)
}

// replace writes aside and renames, so that a browser never loads half a file.
func replace(path string, b []byte) error {
	aside := path + ".part"
	err := os.WriteFile(aside, b, 0o644)
	if err == nil {
		err = os.Rename(aside, path)
	}
	if err != nil {
		os.Remove(aside) // best effort: the error that matters is the first
	}
	return err
}

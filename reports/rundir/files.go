package rundir

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// stream is a file that grows by whole lines.
type stream struct {
	f     file
	size  int64
	lines int64
}

// append adds whole lines to a line file in one write, and cuts the file back if that fails. w.mu must be held.
func (w *Writer) append(name string, b []byte) error {
	if err := w.usable(); err != nil {
		return err
	}
	s := w.streams[name]
	if s == nil {
		f, err := w.open(filepath.Join(w.dir, name))
		if err != nil {
			return w.fail(name, 0, err)
		}
		s = &stream{f: f}
		w.streams[name] = s
	}
	if _, err := s.f.Write(b); err != nil {
		if cut := s.f.Truncate(s.size); cut != nil {
			err = fmt.Errorf("%w (and its last line may be torn: %w)", err, cut)
		}
		return w.fail(name, s.lines, err)
	}
	s.size += int64(len(b))
	s.lines += int64(bytes.Count(b, []byte{'\n'}))
	return nil
}

// document writes a JSON document by rename. w.mu must be held.
func (w *Writer) document(name string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return w.replace(name, append(b, '\n'))
}

// replace writes a file aside, flushes it to the disk and renames it, so that readers see all of it or nothing.
// w.mu must be held.
func (w *Writer) replace(name string, b []byte) error {
	if err := w.usable(); err != nil {
		return err
	}
	aside := filepath.Join(w.dir, "."+name+".part")
	f, err := w.open(aside)
	if err != nil {
		return w.fail(name, 0, err)
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(aside, filepath.Join(w.dir, name))
	}
	if err != nil {
		os.Remove(aside) // best effort: the error that matters is the first
		return w.fail(name, 0, err)
	}
	return w.syncDir()
}

// syncDir makes renames durable.
func (w *Writer) syncDir() error {
	d, err := os.Open(w.dir)
	if err != nil {
		return w.fail(".", 0, err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return w.fail(".", 0, err)
	}
	return nil
}

func (w *Writer) usable() error {
	if w.failed != nil {
		return w.failed
	}
	if w.closed {
		return fmt.Errorf("%s: %w", w.dir, os.ErrClosed)
	}
	return nil
}

func (w *Writer) fail(name string, lines int64, err error) error {
	w.failed = &WriteError{Dir: w.dir, File: name, Lines: lines, Err: err}
	return w.failed
}

// close flushes and closes the line files. w.mu must be held.
func (w *Writer) close() error {
	if w.closed {
		return nil
	}
	w.closed = true
	for name, s := range w.streams {
		err := s.f.Sync()
		if cerr := s.f.Close(); err == nil {
			err = cerr
		}
		if err != nil && w.failed == nil {
			w.fail(name, s.lines, err)
		}
	}
	if w.failed != nil {
		return w.failed
	}
	return nil
}

package pgembed

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// unpackLimit bounds what a package may unpack to, in bytes; the pinned ones
// need 60 to 150 MB.
const unpackLimit = 1 << 30

// unpack writes the regular files below package/native of the .tgz at path
// below root, and makes the library links that package/native/pg-symlinks.json
// lists, because package files hold no links.
func unpack(path, root string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	zr, err := gzip.NewReader(file)
	if err != nil {
		return err
	}
	budget := int64(unpackLimit)
	for tr := tar.NewReader(zr); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		name, ok := strings.CutPrefix(h.Name, "package/native/")
		if !ok || h.Typeflag != tar.TypeReg {
			continue
		}
		if budget -= h.Size; budget < 0 {
			return fmt.Errorf("holds more than %d bytes", int64(unpackLimit))
		}
		if !filepath.IsLocal(name) {
			return fmt.Errorf("entry %q leaves the directory", h.Name)
		}
		// npm's modes are kept only as far as "may be executed".
		if err := writeFile(filepath.Join(root, "native", name), tr, 0o644|os.FileMode(h.Mode)&0o111); err != nil {
			return err
		}
	}
	return link(root)
}

func writeFile(path string, r io.Reader, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close(), os.Chmod(path, mode)) // Chmod: whatever the umask
}

// link makes the symbolic links of root/native/pg-symlinks.json: each target
// points to its source, both given from root.
func link(root string) error {
	data, err := os.ReadFile(filepath.Join(root, "native", "pg-symlinks.json"))
	if err != nil {
		return err
	}
	var links []struct{ Source, Target string }
	if err := json.Unmarshal(data, &links); err != nil {
		return fmt.Errorf("pg-symlinks.json: %w", err)
	}
	for _, l := range links {
		if !filepath.IsLocal(l.Source) || !filepath.IsLocal(l.Target) {
			return fmt.Errorf("pg-symlinks.json: link %q to %q leaves the directory", l.Target, l.Source)
		}
		to, err := filepath.Rel(filepath.Dir(l.Target), l.Source)
		if err != nil {
			return err
		}
		if err := os.Symlink(to, filepath.Join(root, l.Target)); err != nil {
			return err
		}
	}
	return nil
}

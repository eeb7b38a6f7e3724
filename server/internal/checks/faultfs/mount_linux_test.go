package faultfs

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

// mounted runs f with the disk mounted, and unmounts it. false: there is no FUSE here.
func mounted(t *testing.T, d *Disk, f func(dir string)) bool {
	t.Helper()
	dir := t.TempDir()
	m, err := d.Mount(dir)
	if errors.Is(err, ErrNoFUSE) && os.Geteuid() != 0 {
		t.Logf("nothing is tested: %v", err)
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	f(dir)
	for range 2 {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
	return true
}

// put writes a file, by the rules of POSIX or without flushing.
func put(t *testing.T, path, text string, flag int, flush bool) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|flag, 0o600)
	if err == nil {
		_, err = f.WriteString(text)
	}
	if err == nil && flush {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

func syncDir(t *testing.T, path string) {
	t.Helper()
	dir, err := os.Open(path)
	if err == nil {
		err = errors.Join(dir.Sync(), dir.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

func tree(t *testing.T, dir string) (list []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, e.Name()+"="+string(text))
	}
	return list
}

func TestMountAndCut(t *testing.T) {
	defer goleak.VerifyNone(t)
	d := New(uint32(os.Geteuid()), uint32(os.Getegid()), 64<<20)
	ok := mounted(t, d, func(dir string) {
		at := func(name string) string { return filepath.Join(dir, name) }
		put(t, at("flushed"), "1", 0, true)
		put(t, at("overwritten"), "1", 0, true)
		put(t, at("dsync"), "1", syscall.O_DSYNC, false)
		put(t, at("unflushed"), "1", 0, false)
		put(t, at("removed"), "1", 0, true)
		syncDir(t, dir)
		put(t, at("nameless"), "1", 0, true)
		put(t, at("overwritten"), "2", 0, false)
		err := errors.Join(os.Remove(at("removed")), os.Rename(at("flushed"), at("renamed")), os.Chmod(at("dsync"), 0o640))
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"dsync=1", "nameless=1", "overwritten=2", "renamed=1", "unflushed=1"}
		if got := tree(t, dir); !slices.Equal(got, want) {
			t.Errorf("before the cut: %v", got)
		}
		open, err := os.OpenFile(at("overwritten"), os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer open.Close()
		d.Cut(nil)
		if _, err := open.WriteString("3"); !errors.Is(err, syscall.EIO) {
			t.Errorf("a write after the cut: %v", err)
		}
	})
	if !ok {
		return
	}
	mounted(t, d, func(dir string) {
		want := []string{"dsync=1", "flushed=1", "overwritten=1", "removed=1", "unflushed="}
		if got := tree(t, dir); !slices.Equal(got, want) {
			t.Errorf("after the cut: %v", got)
		}
		fi, err := os.Stat(filepath.Join(dir, "dsync"))
		if err != nil || fi.Mode() != 0o640 {
			t.Errorf("%v, %v", fi, err)
		}
		checkErrors(t, d, filepath.Join(dir, "flushed"))
	})
}

// A child that lives on holds no mount: it has not inherited the descriptor.
func TestChildrenInheritNothing(t *testing.T) {
	mounted(t, New(uint32(os.Geteuid()), uint32(os.Getegid()), 1<<20), func(string) {
		out, err := exec.Command("sh", "-c", "ls -l /proc/self/fd").Output()
		if err != nil || strings.Contains(string(out), "/dev/fuse") {
			t.Errorf("%v\n%s", err, out)
		}
	})
}

// checkErrors has the system calls fail as the disk says.
func checkErrors(t *testing.T, d *Disk, path string) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	d.SetLimit(d.Used() + BlockSize)
	if _, err := f.WriteAt(bytes.Repeat([]byte{1}, 8*BlockSize), BlockSize); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("on a full disk: %v", err)
	}
	var fs syscall.Statfs_t
	if err := syscall.Statfs(path, &fs); err != nil || fs.Bfree != 1 {
		t.Errorf("%d blocks are free, %v", fs.Bfree, err)
	}
	d.Interfere(func(op Op, path string) Outcome {
		if op == Flush && path == "flushed" {
			return Fail
		}
		return Good
	})
	if err := f.Sync(); !errors.Is(err, syscall.EIO) {
		t.Errorf("fsync: %v", err)
	}
	if err := errors.Join(f.Truncate(0), os.Remove(path)); err != nil {
		t.Error(err)
	}
}

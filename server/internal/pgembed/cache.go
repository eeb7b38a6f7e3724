package pgembed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// cacheDir returns the directory for fetched builds, templates and run
// directories, made if need be: $IMBENCH_CACHE, else the user's cache
// directory, else one below the temporary directory. Root's own cache
// directory cannot be entered by the uid that PostgreSQL runs as, so root uses
// /var/cache or /var/tmp.
func cacheDir(ctx context.Context, env func(string) string, id identity) (string, error) {
	if dir := env("IMBENCH_CACHE"); dir != "" {
		dir, err := filepath.Abs(dir)
		if err != nil {
			return "", err
		}
		if err := usable(ctx, dir, id); err != nil {
			return "", fmt.Errorf("IMBENCH_CACHE: %w", err)
		}
		return dir, nil
	}
	var tries []string
	if id.drop {
		tries = []string{"/var/cache/imbench", "/var/tmp/imbench"}
	} else if dir, err := os.UserCacheDir(); err == nil {
		tries = []string{filepath.Join(dir, "imbench")}
	}
	tries = append(tries, filepath.Join(os.TempDir(), "imbench-"+strconv.Itoa(os.Geteuid())))
	var errs []error
	for _, dir := range tries {
		err := usable(ctx, dir, id)
		if err == nil {
			return dir, nil
		}
		errs = append(errs, err)
	}
	return "", fmt.Errorf("no usable cache directory (set IMBENCH_CACHE): %w", errors.Join(errs...))
}

// usable makes dir and checks that it is ours, that no one else writes to it
// (it will hold programs that we run), and that id can enter it.
func usable(ctx context.Context, dir string, id identity) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	fi, err := os.Stat(dir)
	if err != nil {
		return err
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok || int(st.Uid) != os.Geteuid() || fi.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s belongs to, or can be written by, someone else", dir)
	}
	probe, err := os.CreateTemp(dir, ".probe-")
	if err != nil {
		return err
	}
	if err := errors.Join(probe.Close(), os.Remove(probe.Name())); err != nil {
		return err
	}
	if !id.canEnter(ctx, dir) {
		return fmt.Errorf("%s cannot be entered by uid %d, which PostgreSQL runs as", dir, id.uid)
	}
	return nil
}

// errLocked is tryLock's answer when another open file holds the lock.
var errLocked = errors.New("locked")

// tryLock opens path and takes its lock, or returns errLocked. The lock goes
// with the file's Close, or with the process.
func tryLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return f, nil
	}
	f.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, errLocked
	}
	return nil, &os.PathError{Op: "flock", Path: path, Err: err}
}

// withLock runs do while it holds path's lock, waiting for it until ctx ends.
func withLock(ctx context.Context, path string, do func() error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	for {
		f, err := tryLock(path)
		if err == nil {
			defer f.Close()
			return do()
		}
		if !errors.Is(err, errLocked) {
			return err
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return fmt.Errorf("waiting for %s: %w", path, err)
		}
	}
}

// pause waits for d, or returns ctx's error.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

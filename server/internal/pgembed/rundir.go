package pgembed

import (
	"context"
	"errors"
	"os"
	"path/filepath"
)

// rundir is the directory of one server: owner (a file locked as long as the
// process that started it lives), data, s (the socket's directory) and
// postgres.log.
type rundir struct {
	path   string
	socket string // path/s, or a shorter one if that is too long for a socket
	owner  *os.File
}

// ownerFile holds no text; its lock says whether the directory is in use.
const ownerFile = "owner"

// socketLimit is how long a socket's directory may be: sun_path holds 104
// bytes on some systems, "/.s.PGSQL.65535" is 15 of them.
const socketLimit = 104 - 15 - 1

// newRundir removes the directories below base whose owner is gone, then makes
// a new one. One lock covers both, so that a new directory is never taken for
// a leftover between its making and its locking. One to be kept has another
// name: it is never a leftover.
func newRundir(ctx context.Context, base string, id identity, keep bool) (rd rundir, err error) {
	if err := os.MkdirAll(base, 0o755); err != nil {
		return rundir{}, err
	}
	err = withLock(ctx, filepath.Join(base, ".lock"), func() error {
		removeStale(base)
		pattern := "pg-"
		if keep {
			pattern = "kept-"
		}
		if rd.path, err = os.MkdirTemp(base, pattern); err != nil {
			return err
		}
		rd.owner, err = tryLock(filepath.Join(rd.path, ownerFile))
		return err
	})
	if err == nil {
		err = rd.prepare(id)
	}
	if err != nil {
		rd.remove()
	}
	return rd, err
}

func (rd *rundir) prepare(id identity) (err error) {
	if id.drop {
		// The other uid passes through; what it owns inside is private.
		if err := os.Chmod(rd.path, 0o711); err != nil {
			return err
		}
	}
	rd.socket = filepath.Join(rd.path, "s")
	if len(rd.socket) > socketLimit {
		rd.socket, err = os.MkdirTemp("/tmp", "pg-")
	} else {
		err = os.Mkdir(rd.socket, 0o700)
	}
	if err != nil {
		return err
	}
	return id.own(rd.socket)
}

func (rd *rundir) data() string { return filepath.Join(rd.path, "data") }

// remove deletes everything and gives up ownership.
func (rd *rundir) remove() error {
	var errs []error
	for _, dir := range []string{rd.socket, rd.path} {
		if dir != "" {
			errs = append(errs, os.RemoveAll(dir))
		}
	}
	if rd.owner != nil {
		errs = append(errs, rd.owner.Close())
	}
	return errors.Join(errs...)
}

// removeStale removes the run directories whose owner's lock is free: their
// process is gone, and so is its watchdog or it would have removed them. A
// postmaster that is still alive exits by itself when it finds its pid file
// gone.
func removeStale(base string) {
	dirs, _ := filepath.Glob(filepath.Join(base, "pg-*")) // the only error is a bad pattern
	for _, dir := range dirs {
		lock, err := tryLock(filepath.Join(dir, ownerFile))
		if err != nil {
			continue // in use, or no longer there
		}
		os.RemoveAll(dir) // what cannot be removed is tried again next time
		lock.Close()
	}
}

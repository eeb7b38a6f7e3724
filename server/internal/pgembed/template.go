package pgembed

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// initArgs are initdb's arguments besides the directory. The C locale sorts
// and compares bytes, the same on every machine. The socket lies in a private
// directory, so it needs no password; the port can be reached by everyone on
// the machine, so it does.
var initArgs = []string{"--username=postgres", "--encoding=UTF8", "--locale=C", "--auth-local=trust", "--auth-host=scram-sha-256"}

// template returns a directory with an initialised cluster ("data") and its
// superuser's password ("password"), made by in's initdb under id and kept in
// the cache: initdb takes seconds, a copy a fraction of one.
func template(ctx context.Context, cache string, in install, id identity, log io.Writer) (dir string, err error) {
	key := sha256.Sum256([]byte(strings.Join(append([]string{in.bin, in.version, fmt.Sprint(id.uid)}, initArgs...), "\x00")))
	dir = filepath.Join(cache, fmt.Sprintf("template-%s-%x", in.version, key[:6]))
	if exists(dir) {
		return dir, nil
	}
	err = withLock(ctx, dir+".lock", func() error {
		if exists(dir) {
			return nil
		}
		return makeTemplate(ctx, dir, in, id, log)
	})
	return dir, err
}

// makeTemplate runs initdb and renames the result to dir, whose lock the
// caller holds.
func makeTemplate(ctx context.Context, dir string, in install, id identity, log io.Writer) error {
	tmp := dir + ".new" // a leftover is from a process that died: the lock is ours
	if err := errors.Join(os.RemoveAll(tmp), os.Mkdir(tmp, 0o700), id.own(tmp)); err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	password := filepath.Join(tmp, "password")
	if err := errors.Join(os.WriteFile(password, []byte(rand.Text()), 0o600), id.own(password)); err != nil {
		return err
	}
	started := time.Now()
	cmd := id.command(ctx, tmp, filepath.Join(in.bin, "initdb"),
		append([]string{"--pgdata=" + filepath.Join(tmp, "data"), "--pwfile=" + password}, initArgs...)...)
	if _, err := cmd.Output(); err != nil {
		return fmt.Errorf("initdb: %w", exitDetail(err))
	}
	fmt.Fprintf(log, "postgresql: initialised a data directory of version %s in %.1f s, kept for later starts\n", in.version, time.Since(started).Seconds())
	return os.Rename(tmp, dir)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

package pgembed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// install is a PostgreSQL that can be started.
type install struct {
	bin     string // directory with postgres and initdb
	version string // as "16.14"
	major   int
	source  string // "installed", "fetched" or "given"
}

// finder looks for a PostgreSQL. Its fields are what it asks the outside, so
// that tests can answer.
type finder struct {
	id       identity
	glob     func(pattern string) ([]string, error)
	lookPath func(file string) (string, error)
	cache    string
	pin      pin
	log      io.Writer
}

// find returns the PostgreSQL to use: an installation of version 16 or newer,
// else the pinned build, else an installation of version 14 or 15.
//
// Errors: ErrNoPostgres with what was tried, ErrChecksum.
func (f *finder) find(ctx context.Context) (install, error) {
	best, found := f.installed(ctx)
	if found && best.major >= wantedMajor {
		return best, nil
	}
	fetched, err := f.fetched(ctx)
	if err == nil {
		return fetched, nil
	}
	if errors.Is(err, ErrChecksum) || ctx.Err() != nil {
		return install{}, err
	}
	if found && best.major >= oldestMajor {
		fmt.Fprintf(f.log, "postgresql: using the installed version %s (%d or newer would be better; the pinned build cannot be had: %v)\n", best.version, wantedMajor, err)
		return best, nil
	}
	have := "none is installed"
	if found {
		have = fmt.Sprintf("the newest installed one, %s in %s, is older than %d", best.version, best.bin, oldestMajor)
	}
	return install{}, fmt.Errorf("%w: %s, and the pinned build cannot be had (%v). "+
		"Install PostgreSQL %d or newer (Debian, Ubuntu: apt-get install postgresql; macOS: brew install postgresql@%d), "+
		"or npm with access to its registry, or name a running database with -db or DATABASE_URL",
		ErrNoPostgres, have, err, wantedMajor, wantedMajor)
}

// usualDirs are the places where packages put PostgreSQL's server programs,
// which most of them keep off PATH.
var usualDirs = []string{
	"/usr/lib/postgresql/*/bin",          // Debian, Ubuntu
	"/usr/pgsql-*/bin",                   // the PostgreSQL project's RPMs
	"/usr/libexec/postgresql*",           // Alpine
	"/usr/local/pgsql/bin",               // built from source
	"/opt/homebrew/opt/postgresql@*/bin", // Homebrew on Apple silicon
	"/usr/local/opt/postgresql@*/bin",    // Homebrew on Intel
	"/usr/local/bin",                     // FreeBSD
	"/Applications/Postgres.app/Contents/Versions/*/bin",
}

// installed returns the newest installation that its user can run.
func (f *finder) installed(ctx context.Context) (best install, found bool) {
	var dirs []string
	if path, err := f.lookPath("pg_config"); err == nil {
		if out, err := f.id.command(ctx, "/", path, "--bindir").Output(); err == nil {
			dirs = append(dirs, strings.TrimSpace(string(out)))
		}
	}
	for _, pattern := range usualDirs {
		matches, err := f.glob(pattern)
		if err == nil { // the only error is a bad pattern
			dirs = append(dirs, matches...)
		}
	}
	if path, err := f.lookPath("postgres"); err == nil {
		dirs = append(dirs, filepath.Dir(path))
	}
	for _, dir := range dirs {
		in, err := inspect(ctx, dir, f.id)
		if err == nil && newer(in.version, best.version) {
			in.source = "installed"
			best, found = in, true
		}
	}
	return best, found
}

// versionLine matches what `postgres --version` prints, "postgres
// (PostgreSQL) 16.14 (Debian 16.14-1)" or "… 18beta1".
var versionLine = regexp.MustCompile(`^postgres \(PostgreSQL\) ((\d+)[0-9A-Za-z.]*)`)

// inspect runs the postgres in dir as id and returns its version. It is an
// error if initdb is not beside it.
func inspect(ctx context.Context, dir string, id identity) (install, error) {
	if _, err := os.Stat(filepath.Join(dir, "initdb")); err != nil {
		return install{}, err
	}
	out, err := id.command(ctx, "/", filepath.Join(dir, "postgres"), "--version").Output()
	if err != nil {
		return install{}, fmt.Errorf("%s/postgres --version: %w", dir, exitDetail(err))
	}
	m := versionLine.FindStringSubmatch(string(out))
	if m == nil {
		return install{}, fmt.Errorf("%s/postgres --version says %q", dir, strings.TrimSpace(string(out)))
	}
	major, err := strconv.Atoi(m[2])
	if err != nil {
		return install{}, err
	}
	return install{bin: dir, version: m[1], major: major}, nil
}

// newer compares versions such as "16.14" and "9.6" by their numbers.
func newer(a, b string) bool {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i := range as {
		if i >= len(bs) {
			return true
		}
		// A suffix such as "18beta1" makes Atoi fail; its digits still count.
		an, bn := leadingInt(as[i]), leadingInt(bs[i])
		if an != bn {
			return an > bn
		}
	}
	return false
}

func leadingInt(s string) int {
	n := 0
	for _, c := range s {
		if c < '0' || c > '9' {
			break
		}
		n = n*10 + int(c-'0')
	}
	return n
}

// exitDetail adds the last line that a failed command wrote to its error.
func exitDetail(err error) error {
	var exit *exec.ExitError
	if !errors.As(err, &exit) || len(exit.Stderr) == 0 {
		return err
	}
	return fmt.Errorf("%w: %s", err, lastLine(exit.Stderr))
}

// lastLine returns the last line of out that is not empty.
func lastLine(out []byte) string {
	s := strings.TrimSpace(string(out))
	return s[strings.LastIndexByte(s, '\n')+1:]
}

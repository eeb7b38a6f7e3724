package pgembed

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"
)

// ownerEnv makes the test binary start a server in the named directory and
// wait to be killed.
const ownerEnv = "PGEMBED_TEST_OWNER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(ownerEnv); dir != "" {
		s, err := Start(context.Background(), Config{Dir: dir})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(s.Port, s.rd.socket)
		select {}
	}
	goleak.VerifyTestMain(m)
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

// query returns one text value from the database at url.
func query(t *testing.T, url, sql string) string {
	t.Helper()
	var out string
	if err := connect(t, url).QueryRow(t.Context(), sql).Scan(&out); err != nil {
		t.Fatal(err)
	}
	return out
}

// runBase returns a directory for run directories that every uid may enter, as
// t.TempDir is not when the test runs as root.
func runBase(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "pgtest-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func start(t *testing.T, cfg Config) *Server {
	t.Helper()
	cfg.Log = t.Output()
	s, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Errorf("Stop: %v", err)
		}
	})
	return s
}

// listening reports whether someone accepts connections on the port.
func listening(port int) bool {
	conn, err := net.Dial("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	return conn.Close() == nil
}

// await polls until done is true; the limit only ends a test that has failed.
func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(time.Minute)
	for !done() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("still waiting until %s", what)
		}
	}
}

// serverDirs returns the run directories in base.
func serverDirs(t *testing.T, base string) []string {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(base, "[pk]*-*"))
	if err != nil {
		t.Fatal(err)
	}
	return dirs
}

func TestStartAndStop(t *testing.T) {
	base := runBase(t)
	s := start(t, Config{Dir: base, Settings: map[string]string{"work_mem": "5MB", "application_name": "it's"}})
	for name, want := range map[string]string{
		"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "jit": "off", "autovacuum": "on",
		"server_encoding": "UTF8", "lc_collate": "C", "shared_buffers": "256MB", "max_connections": "100",
		"listen_addresses": "127.0.0.1", "port": strconv.Itoa(s.Port), "work_mem": "5MB",
	} {
		if name == "lc_collate" { // no longer a setting in newer versions
			if got := query(t, s.URL(""), "select datcollate from pg_database where datname = 'postgres'"); got != want {
				t.Errorf("collation is %q, want %q", got, want)
			}
			continue
		}
		if got := query(t, s.URL(""), "select current_setting('"+name+"')"); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if got := query(t, s.TCPURL("template1"), "select current_database()"); got != "template1" {
		t.Errorf("TCPURL leads to %q", got)
	}
	wrong := strings.Replace(s.TCPURL(""), s.password, "guess", 1)
	if conn, err := pgx.Connect(t.Context(), wrong); err == nil {
		conn.Close(t.Context())
		t.Error("a wrong password was accepted over TCP")
	}
	if !strings.HasPrefix(query(t, s.URL(""), "show server_version"), s.Version) {
		t.Errorf("Version is %q", s.Version)
	}

	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(); err != nil {
		t.Errorf("the second Stop: %v", err)
	}
	<-s.Exited()
	if listening(s.Port) {
		t.Error("the port still answers after Stop")
	}
	if dirs := serverDirs(t, base); len(dirs) != 0 {
		t.Errorf("Stop left %v", dirs)
	}
}

func TestTwoSideBySide(t *testing.T) {
	base := runBase(t)
	servers := make(chan *Server, 2)
	for range 2 {
		go func() {
			s, err := Start(t.Context(), Config{Dir: base})
			if err != nil {
				t.Error(err)
			}
			servers <- s
		}()
	}
	a, b := <-servers, <-servers
	for _, s := range []*Server{a, b} {
		if s != nil {
			t.Cleanup(func() { s.Stop() })
		}
	}
	if t.Failed() {
		return
	}
	if _, err := connect(t, a.URL("")).Exec(t.Context(), "create table mine ()"); err != nil {
		t.Fatal(err)
	}
	if got := query(t, b.URL(""), "select coalesce(to_regclass('mine')::text, 'none')"); got != "none" {
		t.Errorf("the second server has the first one's table: %s", got)
	}
	if err := a.Stop(); err != nil {
		t.Fatal(err)
	}
	if got := query(t, b.URL(""), "select 'alive'"); got != "alive" {
		t.Errorf("got %q", got)
	}
}

func TestTakenPortIsTriedAgain(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := l.Addr().(*net.TCPAddr).Port
	calls := 0
	s := start(t, Config{Dir: runBase(t), port: func() (int, error) {
		if calls++; calls == 1 {
			return taken, nil
		}
		return freePort()
	}})
	if calls != 2 || s.Port == taken {
		t.Errorf("port %d after %d tries, taken was %d", s.Port, calls, taken)
	}
	query(t, s.TCPURL(""), "select 'ok'")
}

func TestBadSettingSaysWhatPostgresSaid(t *testing.T) {
	base := runBase(t)
	_, err := Start(t.Context(), Config{Dir: base, Settings: map[string]string{"shared_buffers": "much"}})
	if err == nil || !strings.Contains(err.Error(), "configuration file") {
		t.Errorf("got %v", err)
	}
	if dirs := serverDirs(t, base); len(dirs) != 0 {
		t.Errorf("the failed start left %v", dirs)
	}
}

func TestCancelledStartLeavesNothing(t *testing.T) {
	base := runBase(t)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := Start(ctx, Config{Dir: base, port: func() (int, error) {
		cancel()
		return freePort()
	}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if dirs := serverDirs(t, base); len(dirs) != 0 {
		t.Errorf("the cancelled start left %v", dirs)
	}
}

func TestKeep(t *testing.T) {
	base := runBase(t)
	s := start(t, Config{Dir: base, Keep: true})
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	start(t, Config{Dir: base}) // clears what is left over, which this is not
	if !exists(filepath.Join(s.DataDir, "PG_VERSION")) {
		t.Error("the data directory is gone")
	}
	if log, err := os.ReadFile(s.LogFile); err != nil || !strings.Contains(string(log), "fast shutdown") {
		t.Errorf("it was not shut down in order: %v\n%s", err, log)
	}
}

func TestExitedWhenPostgresDies(t *testing.T) {
	base := runBase(t)
	s := start(t, Config{Dir: base})
	if err := syscall.Kill(s.PID(), syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	<-s.Exited()
	if err := s.Err(); !strings.Contains(err.Error(), "shut down") {
		t.Errorf("Err is %v", err)
	}
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
	if dirs := serverDirs(t, base); len(dirs) != 0 {
		t.Errorf("Stop left %v", dirs)
	}
}

// owner starts this test binary as a process that owns a server in base. It
// leads a process group, which kill ends as a whole.
func owner(t *testing.T, base string) (cmd *exec.Cmd, says *bufio.Reader) {
	t.Helper()
	cmd = exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), ownerEnv+"="+base)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return cmd, bufio.NewReader(out)
}

// kill ends the owner and all that a terminal's signal would reach with it.
func kill(t *testing.T, owner *exec.Cmd) {
	t.Helper()
	if err := syscall.Kill(-owner.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

func TestKilledOwnerLeavesNothing(t *testing.T) {
	base := runBase(t)
	cmd, says := owner(t, base)
	var port int
	var socket string
	if _, err := fmt.Fscanln(says, &port, &socket); err != nil {
		t.Fatal(err)
	}
	if !listening(port) || len(serverDirs(t, base)) != 1 {
		t.Fatal("the owner's server does not run")
	}
	kill(t, cmd)
	await(t, "the postmaster has gone", func() bool { return !listening(port) })
	await(t, "its directories are removed", func() bool { return len(serverDirs(t, base)) == 0 && !exists(socket) })
}

func TestOwnerKilledInMidStartLeavesNothing(t *testing.T) {
	for _, file := range []string{"data", "data/base", "data/postgresql.auto.conf", "data/postmaster.pid"} {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			base := runBase(t)
			cmd, _ := owner(t, base)
			await(t, "the start has come to "+file, func() bool {
				dirs := serverDirs(t, base)
				return len(dirs) == 1 && exists(filepath.Join(dirs[0], file))
			})
			kill(t, cmd)
			await(t, "its directory is removed", func() bool { return len(serverDirs(t, base)) == 0 })
		})
	}
}

func TestLeftoversAreRemoved(t *testing.T) {
	base := runBase(t)
	for _, name := range []string{"pg-crashed", "pg-bare", "pg-used", "kept-1"} {
		if err := os.MkdirAll(filepath.Join(base, name, "data"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(base, "pg-crashed", ownerFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	lock, err := tryLock(filepath.Join(base, "pg-used", ownerFile))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	id, err := runAs()
	if err != nil {
		t.Fatal(err)
	}
	rd, err := newRundir(t.Context(), base, id, false)
	if err != nil {
		t.Fatal(err)
	}
	defer rd.remove()
	for name, want := range map[string]bool{"pg-crashed": false, "pg-bare": false, "pg-used": true, "kept-1": true} {
		if got := exists(filepath.Join(base, name)); got != want {
			t.Errorf("%s exists: %v, want %v", name, got, want)
		}
	}
}

func TestLongDirectoryGetsAShortSocket(t *testing.T) {
	base := filepath.Join(runBase(t), strings.Repeat("x", 90))
	s := start(t, Config{Dir: base})
	query(t, s.URL(""), "select 'ok'")
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if exists(s.rd.socket) {
		t.Errorf("Stop left %s", s.rd.socket)
	}
}

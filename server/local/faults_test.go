package local

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
)

// A gateway that was killed or drained comes back on its addresses, and only then.
func TestGatewayEndsAndComesBack(t *testing.T) {
	cfg := fakes("")
	cfg.LogDir = t.TempDir()
	s := start(t, cfg)
	before := s.Processes()[0].PID
	first, err := get(t, s.AdminURLs[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := s.StartGateway(t.Context(), 0); !errors.Is(err, ErrRunning) {
		t.Errorf("a running gateway was started: %v", err)
	}
	for name, end := range map[string]func() error{
		"kill":  func() error { return s.KillGateway(0) },
		"drain": func() error { return s.DrainGateway(t.Context(), 0, 0) },
	} {
		if err := end(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := get(t, s.Targets[0]); err == nil {
			t.Errorf("%s: it still answers", name)
		}
		for _, err := range []error{s.KillGateway(0), s.DrainGateway(t.Context(), 0, 0)} {
			if !errors.Is(err, ErrNotRunning) {
				t.Errorf("%s: ended twice: %v", name, err)
			}
		}
		if err := s.StartGateway(t.Context(), 0); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got, err := get(t, s.AdminURLs[0]); err != nil || got["id"] != first["id"] {
			t.Errorf("%s: after its return it says %v, %v", name, got, err)
		}
	}
	if pid := s.Processes()[0].PID; pid == before {
		t.Error("Processes names the process that was killed")
	}
	if err := s.KillGateway(2); err == nil {
		t.Error("a gateway that is not there was killed")
	}
	// The new process is watched as the first one was.
	_, _ = get(t, s.Targets[0]+"/die")
	if e := <-s.Exited(); e.Role != "gateway-1" || !strings.Contains(e.Err.Error(), "asked to die") {
		t.Errorf("reported %+v", e)
	}
	if log, err := os.ReadFile(filepath.Join(cfg.LogDir, "gateway-1.log")); err != nil || len(log) == 0 {
		t.Errorf("its log is %q, %v", log, err)
	}
}

// closing is a gateway's standard input whose end is noted.
type closing struct {
	io.Closer
	note func()
}

func (c closing) Close() error {
	c.note()
	return c.Closer.Close()
}

// A gateway that drains has a parent until it has ended: without one it would take ten seconds at most.
func TestDrainKeepsTheParent(t *testing.T) {
	s := start(t, fakes(""))
	g, err := s.gateway(0)
	if err != nil {
		t.Fatal(err)
	}
	g.stdin = closing{g.stdin, func() {
		select {
		case <-g.ended:
		default:
			t.Error("its standard input was closed while it drained")
		}
	}}
	if err := s.DrainGateway(t.Context(), 0, 0); err != nil {
		t.Fatal(err)
	}
	if err := s.StartGateway(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
}

// A paused gateway does not keep the stack from stopping in time, and one that goes on answers again.
func TestPausedGateway(t *testing.T) {
	s := start(t, fakes(""))
	for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
		if err := s.Kill(0, sig); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := get(t, s.Targets[0]); err != nil {
		t.Error(err)
	}
	if err := s.Kill(1, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Errorf("Stop: %v", err)
	}
	if err := s.StartGateway(t.Context(), 0); err == nil {
		t.Error("a stopped stack started a gateway")
	}
}

// PostgreSQL keeps what was committed over both kinds of end, and its end is no report.
func TestDatabaseEndsAndComesBack(t *testing.T) {
	cfg := fakes("")
	cfg.DatabaseURL = ""
	s := start(t, cfg)
	exec := func(sql string) (err error) {
		conn, err := pgx.Connect(t.Context(), s.DatabaseURL)
		if err != nil {
			return err
		}
		defer conn.Close(context.Background())
		_, err = conn.Exec(t.Context(), sql)
		return err
	}
	if err := exec("CREATE TABLE kept (n int)"); err != nil {
		t.Fatal(err)
	}
	if err := s.StartDatabase(t.Context()); !errors.Is(err, ErrRunning) {
		t.Errorf("a running database was started: %v", err)
	}
	for _, crash := range []bool{false, true} {
		if err := s.StopDatabase(crash); err != nil {
			t.Fatal(err)
		}
		if err := exec("SELECT 1"); err == nil {
			t.Error("a stopped database answers")
		}
		if err := s.StopDatabase(crash); !errors.Is(err, ErrNotRunning) {
			t.Errorf("stopped twice: %v", err)
		}
		twice := make(chan error, 2)
		for range cap(twice) {
			go func() { twice <- s.StartDatabase(t.Context()) }()
		}
		for _, err := range []error{<-twice, <-twice} {
			if err != nil && !errors.Is(err, ErrRunning) {
				t.Errorf("started by two at once: %v", err)
			}
		}
		if err := exec("INSERT INTO kept VALUES (1)"); err != nil {
			t.Errorf("after its return (crash %v): %v", crash, err)
		}
	}
	select {
	case e := <-s.Exited():
		t.Errorf("reported %+v", e)
	default:
	}
	if err := syscall.Kill(s.Processes()[2].PID, syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	if e := <-s.Exited(); e.Role != "postgres" {
		t.Errorf("reported %+v", e)
	}
	given := start(t, fakes(""))
	for _, err := range []error{given.StopDatabase(true), given.StartDatabase(t.Context())} {
		if !errors.Is(err, ErrNotOurs) {
			t.Errorf("a database that was given: %v", err)
		}
	}
}

// Each real gateway has one connection to cut, and a new one after that.
func TestCutListeners(t *testing.T) {
	s := start(t, Config{Gateways: 2})
	for range 2 {
		await(t, "both listen", func() bool { n, err := s.CutListeners(t.Context()); return err == nil && n == 2 })
	}
	await(t, "the gateway is ready again", func() bool {
		status, _ := adminGet(t, s, s.AdminURLs[0]+"/readyz")
		return status == http.StatusOK
	})
}

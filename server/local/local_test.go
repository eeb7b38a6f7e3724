package local

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"
)

// fakeEnv makes a child a fake gateway, and ownerEnv makes the test binary
// start a real stack and wait to be killed.
const (
	fakeEnv  = "LOCAL_TEST_FAKE=1"
	ownerEnv = "LOCAL_TEST_OWNER"
)

func TestMain(m *testing.M) {
	if name, _, _ := strings.Cut(fakeEnv, "="); os.Getenv(roleEnv) == roleGateway && os.Getenv(name) != "" {
		os.Exit(runChild(fakeGateway))
	}
	Child()
	if dir := os.Getenv(ownerEnv); dir != "" {
		s, err := Start(context.Background(), Config{Gateways: 2, PG: PGConfig{Dir: dir}})
		if err != nil {
			fmt.Println("ERROR", err)
			os.Exit(1)
		}
		fmt.Println(s.Targets[0], s.Targets[1])
		select {}
	}
	goleak.VerifyTestMain(m)
}

// fakeGateway keeps a gateway's contract with its parent and serves what it
// was given. -behave chooses a way to break the contract.
func fakeGateway(ctx context.Context, args, env []string, _ io.Reader, stdout, stderr io.Writer) int {
	fs := flag.NewFlagSet("gateway", flag.ContinueOnError)
	listen, admin := fs.String("listen", "", ""), fs.String("admin-listen", "", "")
	environment, id := fs.String("environment", "", ""), fs.String("gateway-id", "", "")
	behave := fs.String("behave", "", "")
	if fs.Parse(args) != nil {
		return 2
	}
	switch *behave {
	case "fail":
		fmt.Fprintln(stderr, "the database says no")
		return 1
	case "silent":
		<-ctx.Done()
		return 0
	case "babble":
		fmt.Fprintln(stdout, "hello")
	case "stubborn":
		ctx = context.WithoutCancel(ctx)
	}
	l1, err1 := net.Listen("tcp", *listen)
	l2, err2 := net.Listen("tcp", *admin)
	if errors.Join(err1, err2) != nil {
		return 1
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/die" {
			fmt.Fprintln(stderr, "asked to die")
			os.Exit(7)
		}
		json.NewEncoder(w).Encode(map[string]string{"environment": *environment, "id": *id,
			"db": os.Getenv("DATABASE_URL"), "key": os.Getenv("IM_TOKEN_KEY"), "token": os.Getenv("IM_ADMIN_TOKEN")})
	})}
	go srv.Serve(l1)
	go srv.Serve(l2)
	json.NewEncoder(stdout).Encode(listening{Listening: l1.Addr().String(), Admin: l2.Addr().String(), Gateway: *id})
	fmt.Fprintln(stdout, "a line that nobody reads")
	if *behave == "stubborn" {
		select {}
	}
	<-ctx.Done()
	return 0
}

// fakes is a stack's configuration with fake gateways and no database.
func fakes(behave string) Config {
	return Config{Gateways: 2, GatewayArgs: []string{"-behave", behave}, GatewayEnv: []string{fakeEnv}, DatabaseURL: "postgres://nowhere/db"}
}

func start(t *testing.T, cfg Config) *Stack {
	t.Helper()
	cfg.Log = t.Output()
	s, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(context.Background()); err != nil {
			t.Errorf("Stop: %v", err)
		}
	})
	return s
}

func get(t *testing.T, url string) (answer map[string]string, err error) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(url)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return answer, json.NewDecoder(resp.Body).Decode(&answer)
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

func TestGatewaysAreGivenWhatTheyNeed(t *testing.T) {
	s := start(t, fakes(""))
	if len(s.Targets) != 2 || len(s.AdminURLs) != 2 || s.Targets[0] == s.Targets[1] {
		t.Fatalf("targets %v, admin %v", s.Targets, s.AdminURLs)
	}
	var keys []string
	for i, url := range []string{s.Targets[0], s.Targets[1], s.AdminURLs[0], s.AdminURLs[1]} {
		got, err := get(t, url)
		if err != nil {
			t.Fatal(err)
		}
		if want := regexp.MustCompile(fmt.Sprintf("^g[0-9a-f]{8}-%d$", i%2+1)); !want.MatchString(got["id"]) || got["environment"] != "embedded" || got["db"] != s.DatabaseURL || got["token"] != s.AdminToken {
			t.Errorf("%s is given %v", url, got)
		}
		if key, err := hex.DecodeString(got["key"]); err != nil || len(key) != 32 {
			t.Errorf("the token key is %q", got["key"])
		}
		keys = append(keys, got["key"])
	}
	if keys[0] != keys[1] {
		t.Error("the gateways have different keys")
	}
	if len(s.AdminToken) < 20 {
		t.Errorf("the admin token is %q", s.AdminToken)
	}
}

func TestStopEndsEverything(t *testing.T) {
	s := start(t, fakes(""))
	for range 2 {
		if err := s.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, url := range append(s.Targets, s.AdminURLs...) {
		if got, err := get(t, url); err == nil {
			t.Errorf("%s still answers: %v", url, got)
		}
	}
	select {
	case e := <-s.Exited():
		t.Errorf("reported %+v", e)
	default:
	}
}

func TestStubbornGatewayIsKilled(t *testing.T) {
	s, err := Start(t.Context(), fakes("stubborn"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Stop(ctx); err == nil || !strings.Contains(err.Error(), "gateway-1 did not stop in time") {
		t.Errorf("Stop says %v", err)
	}
	if _, err := get(t, s.Targets[0]); err == nil {
		t.Error("it still answers")
	}
}

func TestFailedStartSaysWhatTheGatewaySaid(t *testing.T) {
	for _, dir := range []string{"", t.TempDir()} {
		cfg := fakes("fail")
		cfg.LogDir = dir
		_, err := Start(t.Context(), cfg)
		for _, part := range []string{"gateway-1", "gateway-2", "the database says no"} {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("the error does not say %q: %v", part, err)
			}
		}
	}
	if _, err := Start(t.Context(), fakes("babble")); err == nil || !strings.Contains(err.Error(), "hello") {
		t.Errorf("got %v", err)
	}
	if _, err := Start(t.Context(), Config{}); err == nil {
		t.Error("a stack without gateways was started")
	}
}

func TestCancelledStart(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("no longer wanted")
	dir := t.TempDir()
	cfg := fakes("silent")
	cfg.LogDir = dir
	done := make(chan error)
	go func() {
		_, err := Start(ctx, cfg)
		done <- err
	}()
	await(t, "the gateways are being started", func() bool {
		logs, _ := filepath.Glob(filepath.Join(dir, "gateway-*.log"))
		return len(logs) == 2
	})
	cancel(why)
	if err := <-done; !errors.Is(err, why) {
		t.Errorf("got %v", err)
	}
}

func TestExited(t *testing.T) {
	cfg := fakes("")
	cfg.LogDir = t.TempDir()
	s := start(t, cfg)
	if err := s.Kill(0, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await(t, "gateway-1 is gone", func() bool { _, err := get(t, s.Targets[0]); return err != nil })
	_, _ = get(t, s.Targets[1]+"/die") // it cannot answer
	e := <-s.Exited()
	if e.Role != "gateway-2" || !strings.Contains(e.Err.Error(), "exit status 7") || !strings.Contains(e.Err.Error(), "asked to die") {
		t.Errorf("reported %+v", e)
	}
	if log, err := os.ReadFile(filepath.Join(cfg.LogDir, "gateway-2.log")); err != nil || !strings.Contains(string(log), "asked to die") {
		t.Errorf("its log is %q, %v", log, err)
	}
	if err := s.Kill(2, syscall.SIGKILL); err == nil {
		t.Error("a gateway that is not there was killed")
	}
}

func TestRealGateways(t *testing.T) {
	logs := t.TempDir()
	s := start(t, Config{Gateways: 2, Revision: "abc123", LogDir: logs})
	for i := range s.Targets {
		for _, url := range []string{s.Targets[i] + "/healthz", s.Targets[i] + "/readyz", s.AdminURLs[i] + "/readyz"} {
			if status, _ := adminGet(t, s, url); status != http.StatusOK {
				t.Errorf("%s answers %d", url, status)
			}
		}
		var info struct {
			Environment, Gateway, Revision string
			Postgres                       struct{ Version string }
		}
		_, body := adminGet(t, s, s.AdminURLs[i]+"/admin/v1/info")
		if err := json.Unmarshal(body, &info); err != nil {
			t.Fatalf("%v: %s", err, body)
		}
		if info.Environment != "embedded" || info.Gateway != fmt.Sprintf("g%d", i+1) || info.Revision != "abc123" ||
			!strings.Contains(info.Postgres.Version, s.DatabaseVersion) {
			t.Errorf("%s", body)
		}
	}
	quietens(t, s)
	if err := s.Kill(1, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(t.Context()); err != nil {
		log, _ := os.ReadFile(filepath.Join(logs, "gateway-1.log"))
		t.Errorf("Stop: %v\n%s", err, log)
	}
}

// quietens: all tables are vacuumed and analyzed after it, and a checkpoint has been made.
func quietens(t *testing.T, s *Stack) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.DatabaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	left := func() (tables int, checkpoint string) {
		err := conn.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM pg_stat_user_tables WHERE last_vacuum IS NULL OR last_analyze IS NULL),
			(SELECT checkpoint_lsn::text FROM pg_control_checkpoint())`).Scan(&tables, &checkpoint)
		if err != nil {
			t.Fatal(err)
		}
		return tables, checkpoint
	}
	tables, before := left()
	if err := s.Quieten(t.Context()); err != nil {
		t.Fatal(err)
	}
	if not, now := left(); tables == 0 || not != 0 || now == before {
		t.Errorf("%d of %d tables are left, the last checkpoint is at %s after %s", not, tables, now, before)
	}
}

// adminGet asks with the stack's admin token.
func adminGet(t *testing.T, s *Stack, url string) (status int, body []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.AdminToken)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err = io.ReadAll(resp.Body); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, body
}

func TestDatabaseDies(t *testing.T) {
	cfg := fakes("")
	cfg.DatabaseURL = ""
	s := start(t, cfg)
	if s.DatabaseVersion == "" || s.DatabaseSource == "" || s.DatabaseURL == "" {
		t.Errorf("the database is %q, %q, %q", s.DatabaseVersion, s.DatabaseSource, s.DatabaseURL)
	}
	ps := s.Processes()
	if len(ps) != 3 || ps[0].Role != "gateway-1" || ps[1].Role != "gateway-2" || ps[2].Role != "postgres" || !ps[2].Tree || ps[0].Tree {
		t.Fatalf("processes are %+v", ps)
	}
	for _, p := range ps {
		if err := syscall.Kill(p.PID, 0); err != nil {
			t.Errorf("%s: %v", p.Role, err)
		}
	}
	if err := syscall.Kill(ps[2].PID, syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	if e := <-s.Exited(); e.Role != "postgres" || e.Err == nil {
		t.Errorf("reported %+v", e)
	}
}

func TestKilledOwnerLeavesNothing(t *testing.T) {
	base, err := os.MkdirTemp("/tmp", "localtest-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(base)
	if err := os.Chmod(base, 0o755); err != nil { // PostgreSQL's user must enter it
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), ownerEnv+"="+base)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	var targets [2]string
	if _, err := fmt.Fscanln(bufio.NewReader(out), &targets[0], &targets[1]); err != nil {
		t.Fatal(err)
	}
	answers := func(url string) bool {
		conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		return err == nil && conn.Close() == nil
	}
	for _, url := range targets {
		if !answers(url) {
			t.Fatalf("%s does not answer", url)
		}
	}
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); err != nil { // all that a terminal would reach
		t.Fatal(err)
	}
	for _, url := range targets {
		await(t, url+" is gone", func() bool { return !answers(url) })
	}
	await(t, "PostgreSQL's directory is gone", func() bool {
		dirs, _ := filepath.Glob(filepath.Join(base, "pg-*"))
		return len(dirs) == 0
	})
}

package app

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"imbench/server/internal/pgembed"
	"imbench/server/wire"
)

const (
	testKey   = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
	testAdmin = "admin-token-of-the-tests"
)

var testEnv = []string{"IM_TOKEN_KEY=" + testKey, "IM_ADMIN_TOKEN=" + testAdmin}

var databaseURL string

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

// runTests gives the tests a PostgreSQL: that of DATABASE_URL, else a private one.
func runTests(m *testing.M) int {
	if databaseURL = os.Getenv("DATABASE_URL"); databaseURL == "" {
		server, err := pgembed.Start(context.Background(), pgembed.Config{Log: os.Stderr})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer server.Stop()
		databaseURL = server.URL("postgres")
	}
	ours := goleak.IgnoreCurrent() // that which waits for the private PostgreSQL
	code := m.Run()
	if err := goleak.Find(ours); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// newDatabase is an empty database of the test's own, as a connection string and taken apart.
func newDatabase(t *testing.T) (url string, cfg *pgx.ConnConfig) {
	t.Helper()
	ctx := context.Background()
	admin, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("app_%d_%d", os.Getpid(), time.Now().UnixNano())
	if _, err := admin.Exec(ctx, "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := admin.Exec(ctx, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Error(err)
		}
		admin.Close(ctx)
	})
	cfg = admin.Config().Copy()
	cfg.Database = name
	return dsn(cfg, cfg.Host, cfg.Port), cfg
}

func dsn(cfg *pgx.ConnConfig, host string, port uint16) string {
	s := fmt.Sprintf("host=%s port=%d user=%s dbname=%s sslmode=disable", host, port, cfg.User, cfg.Database)
	if cfg.Password != "" {
		s += " password=" + cfg.Password
	}
	return s
}

// running is a gateway started by start.
type running struct {
	t       *testing.T
	Listen  string `json:"listening"`
	Admin   string `json:"admin"`
	Gateway string `json:"gateway"`
	log     *syncBuffer
	stop    context.CancelFunc
	done    chan int
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// start runs the program on free ports, until the test ends or stop is called.
func start(t *testing.T, env []string, stdin io.Reader, args ...string) *running {
	t.Helper()
	r, ready := launch(t, env, stdin, args...)
	ready()
	return r
}

// launch is start for a program that need not serve at once: ready waits until it does.
func launch(t *testing.T, env []string, stdin io.Reader, args ...string) (r *running, ready func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r = &running{t: t, log: &syncBuffer{}, stop: cancel, done: make(chan int, 1)}
	out, in := io.Pipe()
	go func() {
		code := Run(ctx, append([]string{"-listen", "127.0.0.1:0", "-admin-listen", "127.0.0.1:0", "-drain", "50ms"}, args...), env, stdin, in, r.log)
		in.Close()
		r.done <- code
	}()
	t.Cleanup(func() {
		cancel()
		r.wait(-1)
		if t.Failed() {
			t.Logf("log of %s:\n%s", r.Gateway, r.log)
		}
	})
	return r, func() {
		t.Helper()
		line, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			t.Fatalf("did not start: %v\n%s", err, r.log)
		}
		if err := json.Unmarshal([]byte(line), r); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
	}
}

// wait waits for the program's end and holds the exit code against want (-1 = any).
func (r *running) wait(want int) {
	r.t.Helper()
	select {
	case code := <-r.done:
		r.done <- code
		if want >= 0 && code != want {
			r.t.Fatalf("exit code %d, want %d\n%s", code, want, r.log)
		}
	case <-time.After(time.Minute):
		r.t.Fatalf("did not end\n%s", r.log)
	}
}

// call sends an admin request and decodes the JSON reply into v (nil = not wanted).
func (r *running) call(method, path, body string, wantStatus int, v any) string {
	r.t.Helper()
	req, err := http.NewRequest(method, "http://"+r.Admin+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+testAdmin)
	return do(r.t, req, wantStatus, v)
}

func do(t *testing.T, req *http.Request, wantStatus int, v any) string {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != wantStatus {
		t.Fatalf("%s %s: status %d, want %d: %s %v", req.Method, req.URL, resp.StatusCode, wantStatus, text, err)
	}
	if v != nil {
		if err := json.Unmarshal(text, v); err != nil {
			t.Fatalf("%s %s: %v in %s", req.Method, req.URL, err, text)
		}
	}
	return string(text)
}

const population = `{"namespace":"t","owner":"test","lease_s":600}
{"user":"t-u1","devices":["t-u1-d1","t-u1-d2"]}
{"user":"t-u2","devices":["t-u2-d1"]}
{"user":"t-u3","devices":["t-u3-d1"]}
{"conv":"t-g1","kind":"group","mode":"push","members":["t-u1","t-u2"]}
{"conv":"t-p1","kind":"direct","mode":"push","members":["t-u1","t-u3"]}`

// device is a WebSocket client that has said hello and subscribed.
type device struct {
	t    *testing.T
	ws   *websocket.Conn
	name string

	early []wire.Frame // came before the reply that was waited for
}

// connect brings a device of the population online at the gateway.
func (r *running) connect(name string, dialer *websocket.Dialer, scheme string) *device {
	r.t.Helper()
	var tokens struct{ Tokens map[string]string }
	r.call("POST", "/admin/v1/tokens", fmt.Sprintf(`{"devices":[%q]}`, name), 200, &tokens)
	ws, _, err := dialer.Dial(scheme+"://"+r.Listen+"/v1/ws", http.Header{"Authorization": {"Bearer " + tokens.Tokens[name]}})
	if err != nil {
		r.t.Fatal(err)
	}
	d := &device{t: r.t, ws: ws, name: name}
	r.t.Cleanup(func() { ws.Close() })
	if f := d.ask(wire.Request{T: wire.THello, Device: name, Install: 1}); f.T != wire.TWelcome || f.Gateway != r.Gateway {
		r.t.Fatalf("hello: %+v", f)
	}
	if f := d.ask(wire.Request{T: wire.TSub, RID: "s"}); f.T != wire.TSubbed {
		r.t.Fatalf("sub: %+v", f)
	}
	return d
}

func (d *device) send(r wire.Request) {
	d.t.Helper()
	if err := d.ws.WriteMessage(websocket.TextMessage, wire.AppendRequest(nil, &r)); err != nil {
		d.t.Fatal(err)
	}
}

// next is the next frame that no ask has taken.
func (d *device) next() wire.Frame {
	d.t.Helper()
	if len(d.early) > 0 {
		f := d.early[0]
		d.early = d.early[1:]
		return f
	}
	return d.read()
}

func (d *device) read() wire.Frame {
	d.t.Helper()
	if err := d.ws.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		d.t.Fatal(err)
	}
	_, text, err := d.ws.ReadMessage()
	if err != nil {
		d.t.Fatalf("%s: %v", d.name, err)
	}
	var f wire.Frame
	if err := wire.DecodeFrame(text, &f); err != nil {
		d.t.Fatalf("%s: %v in %s", d.name, err, text)
	}
	return f
}

// ask waits for the reply to a request. If that has an id, what the gateway sends by itself may come before it, and
// stays for next.
func (d *device) ask(r wire.Request) wire.Frame {
	d.t.Helper()
	d.send(r)
	for {
		f := d.read()
		if f.RID == r.RID {
			return f
		}
		d.early = append(d.early, f)
	}
}

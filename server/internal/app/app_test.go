package app

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"imbench/server/internal/token"
	"imbench/server/wire"
)

func TestHealthMetricsAndGracefulEnd(t *testing.T) {
	t.Parallel()
	url, _ := newDatabase(t)
	r := start(t, testEnv, nil, "-db", url, "-gateway-id", "g7", "-environment", "staging")
	if r.Gateway != "g7" {
		t.Errorf("gateway %q", r.Gateway)
	}
	for _, addr := range []string{r.Listen, r.Admin} {
		for _, path := range []string{"/healthz", "/readyz"} {
			req, _ := http.NewRequest("GET", "http://"+addr+path, nil)
			do(t, req, 200, nil)
		}
	}
	metrics := r.call("GET", "/metrics", "", 200, nil)
	for _, want := range []string{"im_ready 1", "im_database_up 1", `im_info{environment="staging",gateway="g7",revision="dev"} 1`,
		"im_events_committed_total 0", `im_batch_size_count{batcher="send"} 0`, `im_db_pool_conns{pool="send",state="acquired"} 0`,
		"im_connections 0", "process_cpu_seconds_total", "go_goroutines"} {
		if !strings.Contains(metrics, want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
	var info struct {
		Environment, Gateway, Revision string
		Postgres                       struct {
			Version  string
			Settings map[string]string
		}
		Limits map[string]float64
	}
	r.call("GET", "/admin/v1/info", "", 200, &info)
	if info.Environment != "staging" || info.Gateway != "g7" || info.Postgres.Version == "" || info.Postgres.Settings["fsync"] == "" || info.Limits["grace_ms"] != 4000 {
		t.Errorf("info %+v", info)
	}
	r.stop()
	r.wait(exitOK)
}

func TestPopulationRoundTrip(t *testing.T) {
	t.Parallel()
	url, _ := newDatabase(t)
	r := start(t, testEnv, nil, "-db", url)
	var created struct {
		Namespace                                      string
		Users, Devices, Conversations, Events, Cursors int64
	}
	r.call("POST", "/admin/v1/populations", population, 201, &created)
	if created.Namespace != "t" || created.Users != 3 || created.Devices != 4 || created.Conversations != 2 || created.Events != 4 || created.Cursors != 6 {
		t.Errorf("created %+v", created)
	}
	r.call("POST", "/admin/v1/populations", population, 409, nil)
	if list := r.call("GET", "/admin/v1/populations", "", 200, nil); !strings.Contains(list, `"namespace":"t","owner":"test"`) {
		t.Errorf("list %s", list)
	}
	if log := r.call("GET", "/admin/v1/populations/t/log", "", 200, nil); log != `{"end":true,"events":0}`+"\n" {
		t.Errorf("log %s", log)
	}
	r.call("GET", "/admin/v1/populations/other/log", "", 404, nil)
	r.call("POST", "/admin/v1/tokens", `{"devices":["t-u9-d1"]}`, 404, nil)
	var removed struct {
		Removed struct{ Users, Devices, Conversations, Events, Cursors int64 }
	}
	r.call("DELETE", "/admin/v1/populations/t", "", 200, &removed)
	if n := removed.Removed; n.Users != 3 || n.Devices != 4 || n.Conversations != 2 || n.Events != 4 || n.Cursors != 6 {
		t.Errorf("removed %+v", removed)
	}
	r.call("DELETE", "/admin/v1/populations/t", "", 404, nil)
	if list := r.call("GET", "/admin/v1/populations", "", 200, nil); list != `{"populations":[]}`+"\n" {
		t.Errorf("list %s", list)
	}
	r.call("POST", "/admin/v1/populations", population, 201, nil)
}

// A message goes from a device at one gateway to the sender's other device there and to a device at another gateway.
func TestSendOverTwoGateways(t *testing.T) {
	t.Parallel()
	url, _ := newDatabase(t)
	r1 := start(t, testEnv, nil, "-db", url, "-gateway-id", "g1")
	r2 := start(t, testEnv, nil, "-db", url, "-gateway-id", "g2")
	r1.call("POST", "/admin/v1/populations", population, 201, nil)
	sender := r1.connect("t-u1-d1", websocket.DefaultDialer, "ws")
	same := r1.connect("t-u1-d2", websocket.DefaultDialer, "ws")
	other := r2.connect("t-u2-d1", websocket.DefaultDialer, "ws")
	outsider := r2.connect("t-u3-d1", websocket.DefaultDialer, "ws")

	sent := sender.ask(wire.Request{T: wire.TSend, RID: "1", Conv: "t-g1", CMID: "c-1", Body: "hello"})
	if sent.T != wire.TSent || sent.RID != "1" || sent.Seq != 3 || sent.Dup {
		t.Fatalf("sent %+v", sent)
	}
	for _, d := range []*device{same, other} {
		if f := d.next(); f.T != wire.TEvent || f.Ev.Conv != "t-g1" || f.Ev.Seq != 3 || f.Ev.Body != "hello" || f.Ev.Sender != "t-u1" || f.Ev.MID != sent.MID {
			t.Errorf("%s got %+v", d.name, f)
		}
	}
	again := sender.ask(wire.Request{T: wire.TSend, RID: "2", Conv: "t-g1", CMID: "c-1", Body: "hello"})
	if again.T != wire.TSent || again.Seq != 3 || !again.Dup || again.MID != sent.MID {
		t.Errorf("sent again %+v", again)
	}
	if f := other.ask(wire.Request{T: wire.TAck, RID: "a", Conv: "t-g1", Seq: 3}); f.T != wire.TAcked || f.Delivered != 3 {
		t.Errorf("acked %+v", f)
	}
	// The outsider was told nothing: the reply to its ping is the first that it gets, and it may not read.
	if f := outsider.ask(wire.Request{T: wire.TPing, RID: "p"}); f.T != wire.TPong {
		t.Errorf("outsider got %+v", f)
	}
	if f := outsider.ask(wire.Request{T: wire.TSync, RID: "y", Conv: "t-g1"}); f.T != wire.TError || f.Code != wire.NotMember {
		t.Errorf("outsider read %+v", f)
	}
	log := r2.call("GET", "/admin/v1/populations/t/log", "", 200, nil)
	if want := fmt.Sprintf(`{"conv":"t-g1","seq":3,"mid":%q,"sender":"t-u1","cmid":"c-1","body_hash":"2cf24dba5fb0a30e","at":`, sent.MID); !strings.HasPrefix(log, want) ||
		!strings.HasSuffix(log, "}\n"+`{"end":true,"events":1}`+"\n") {
		t.Errorf("log %s", log)
	}
	var stats struct {
		Tables map[string]struct{ Inserted int64 }
	}
	r2.call("GET", "/admin/v1/dbstats", "", 200, &stats)
	if len(stats.Tables) == 0 {
		t.Error("dbstats names no tables")
	}
}

// A device that connects elsewhere is closed where it was (G1), told over the announcements.
func TestDeviceMovesToAnotherGateway(t *testing.T) {
	t.Parallel()
	url, _ := newDatabase(t)
	r1 := start(t, testEnv, nil, "-db", url, "-gateway-id", "g1")
	r2 := start(t, testEnv, nil, "-db", url, "-gateway-id", "g2")
	r1.call("POST", "/admin/v1/populations", population, 201, nil)
	before := r1.connect("t-u1-d1", websocket.DefaultDialer, "ws")
	r2.connect("t-u1-d1", websocket.DefaultDialer, "ws")
	if _, _, err := before.ws.ReadMessage(); !websocket.IsCloseError(err, wire.CloseReplaced.Code) {
		t.Errorf("the older connection ended with %v", err)
	}
}

func TestDrainByAdmin(t *testing.T) {
	t.Parallel()
	url, _ := newDatabase(t)
	r := start(t, testEnv, nil, "-db", url)
	r.call("POST", "/admin/v1/populations", population, 201, nil)
	d := r.connect("t-u1-d1", websocket.DefaultDialer, "ws")
	r.call("POST", "/admin/v1/drain", "", 202, nil)
	for {
		_, _, err := d.ws.ReadMessage()
		if err == nil {
			continue // the drain frame
		}
		if !websocket.IsCloseError(err, wire.CloseDraining.Code) {
			t.Errorf("the connection ended with %v", err)
		}
		break
	}
	r.wait(exitOK)
}

func TestEndsWithItsParent(t *testing.T) {
	t.Parallel()
	url, _ := newDatabase(t)
	stdin, parent := io.Pipe()
	r := start(t, append([]string{"IMBENCH_CHILD=gateway"}, testEnv...), stdin, "-db", url)
	parent.Close()
	r.wait(exitOK)
}

// run is a program that is expected to end on its own.
func run(t *testing.T, env []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var out, errs bytes.Buffer
	code = Run(ctx, args, env, nil, &out, &errs)
	return code, out.String(), errs.String()
}

func TestPortInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	addr := l.Addr().String()
	for flagName, args := range map[string][]string{
		"listen":       {"-listen", addr, "-admin-listen", "127.0.0.1:0"},
		"admin-listen": {"-listen", "127.0.0.1:0", "-admin-listen", addr},
	} {
		code, stdout, stderr := run(t, testEnv, append(args, "-db", "postgres://127.0.0.1:1/none")...)
		want := "server: " + addr + " is in use by another program: stop that one, or choose another address with -" + flagName + "\n"
		if code != exitError || stdout != "" || stderr != want {
			t.Errorf("%d %q %q, want %q", code, stdout, stderr, want)
		}
	}
}

func TestDatabaseAwayAtStart(t *testing.T) {
	code, stdout, stderr := run(t, testEnv, "-db", "postgres://u:secret@127.0.0.1:1/none?sslmode=disable", "-listen", "127.0.0.1:0", "-admin-listen", "127.0.0.1:0")
	if code != exitError || stdout != "" || !strings.HasPrefix(stderr, "server: the database cannot be used: ") || strings.Contains(stderr, "secret") {
		t.Errorf("%d %q %q", code, stdout, stderr)
	}
}

func TestTokenCommand(t *testing.T) {
	if code, _, stderr := run(t, testEnv, "token"); code != exitUsage || !strings.Contains(stderr, "server: -user has no value: must be 1 to 64 of") {
		t.Errorf("%d %q", code, stderr)
	}
	code, stdout, stderr := run(t, testEnv, "token", "-user", "u1", "-device", "d1", "-ttl", "90s")
	if code != exitOK || stderr != "" {
		t.Fatalf("%d %q", code, stderr)
	}
	key, err := token.ParseKey(testKey)
	if err != nil {
		t.Fatal(err)
	}
	user, dev, expires, err := key.Verify(strings.TrimSuffix(stdout, "\n"))
	if left := time.Until(expires); err != nil || user != "u1" || dev != "d1" || left > 90*time.Second || left < 30*time.Second {
		t.Errorf("%q %q %v %v", user, dev, left, err)
	}
}

func TestMigrateCommand(t *testing.T) {
	t.Parallel()
	url, _ := newDatabase(t)
	for range 2 {
		if code, stdout, stderr := run(t, []string{"DATABASE_URL=" + url}, "migrate"); code != exitOK || stdout != "the schema is up to date\n" {
			t.Fatalf("%d %q %q", code, stdout, stderr)
		}
	}
	start(t, testEnv, nil, "-db", url, "-migrate=false")
}

// TestMigratePartitions: a new database is partitioned as asked, and later only asked for the same; a gateway takes it as
// it is. Beside it, what a sharded gateway needs.
func TestMigratePartitions(t *testing.T) {
	t.Parallel()
	url, _ := newDatabase(t)
	for _, c := range []struct {
		partitions, says string
		code             int
	}{
		{"257", "from 0 to 256", exitUsage}, {"4", "", exitOK}, {"4", "", exitOK}, {"0", "", exitOK},
		{"1", "in 4 partitions", exitError}, {"8", "partitions are chosen when a database is made", exitError},
	} {
		code, _, stderr := run(t, nil, "migrate", "-db", url, "-partitions", c.partitions)
		if code != c.code || !strings.Contains(stderr, c.says) {
			t.Errorf("-partitions %s: %d %q, want %d and %q", c.partitions, code, stderr, c.code, c.says)
		}
	}
	start(t, testEnv, nil, "-db", url, "-shards", "2")
	if code, _, stderr := run(t, testEnv, "check-config", "-db", url, "-shards", "4"); code != exitUsage || !strings.Contains(stderr, "-send-workers times -shards") {
		t.Errorf("four shards on four connections: %d %q", code, stderr)
	}
}

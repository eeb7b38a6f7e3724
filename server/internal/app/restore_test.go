package app

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
	"github.com/jackc/pgx/v5"

	"imbench/server/wire"
)

func TestRestoreEpoch(t *testing.T) {
	t.Parallel()
	url, cfg := newDatabase(t)
	r := start(t, testEnv, nil, "-db", url, "-gateway-id", "g1")
	r.call("POST", "/admin/v1/populations", population, 201, nil)
	d := r.connect("t-u1-d1", websocket.DefaultDialer, "ws")
	if f := d.ask(wire.Request{T: wire.TSend, RID: "1", Conv: "t-g1", CMID: "k", Body: "x"}); f.T != wire.TSent || f.Epoch != 1 {
		t.Fatalf("sent %+v", f)
	}

	// One conversation, with the gateway running.
	code, stdout, stderr := run(t, nil, "restore-epoch", "-db", url, "-conv", "t-g1")
	if code != exitOK || stdout != "t-g1 has epoch 2\n" || stderr != "" {
		t.Fatalf("one conversation: %d %q %q", code, stdout, stderr)
	}
	if f := d.ask(wire.Request{T: wire.TAck, RID: "2", Conv: "t-g1", Seq: 3, Epoch: 1}); f.T != wire.TError || f.Code != wire.EpochChanged {
		t.Errorf("ack of the old epoch: %+v", f)
	}
	if f := d.ask(wire.Request{T: wire.TSync, RID: "3", Conv: "t-g1", Epoch: 2}); f.T != wire.TSynced || f.Epoch != 2 || len(f.Events) != 3 {
		t.Errorf("sync of the new epoch: %+v", f)
	}
	if f := d.ask(wire.Request{T: wire.TAck, RID: "4", Conv: "t-g1", Seq: 1, Epoch: 2}); f.T != wire.TAcked || f.Delivered != 1 {
		t.Errorf("ack of the new epoch: %+v", f)
	}

	// All of them only when no gateway runs.
	code, stdout, stderr = run(t, nil, "restore-epoch", "-db", url)
	if code != exitError || stdout != "" || !strings.HasPrefix(stderr, "server: gateways run on this database: g1. Stop them first") {
		t.Errorf("beside a gateway: %d %q %q", code, stdout, stderr)
	}
	r.stop()
	r.wait(exitOK)
	code, stdout, stderr = run(t, []string{"DATABASE_URL=" + url}, "restore-epoch")
	if code != exitOK || stdout != "done: 2 conversations have a new epoch\n" || stderr != "" {
		t.Errorf("all: %d %q %q", code, stdout, stderr)
	}
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	var epochs string
	if err := conn.QueryRow(t.Context(), `SELECT string_agg(conv_id || ' ' || epoch, ', ' ORDER BY conv_id) FROM conversations`).Scan(&epochs); err != nil || epochs != "t-g1 3, t-p1 2" {
		t.Errorf("%s, %v", epochs, err)
	}
}

// While a run over all conversations is under way, or was interrupted, no gateway starts.
func TestNoGatewayStartsBesideRestoreEpoch(t *testing.T) {
	t.Parallel()
	url, cfg := newDatabase(t)
	if code, _, stderr := run(t, nil, "migrate", "-db", url); code != exitOK {
		t.Fatal(stderr)
	}
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), `INSERT INTO epoch_run (server_start) VALUES (pg_postmaster_start_time())`); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := run(t, testEnv, "-db", url, "-listen", "127.0.0.1:0", "-admin-listen", "127.0.0.1:0")
	if code != exitError || stdout != "" || !strings.HasPrefix(stderr, `server: "server restore-epoch" runs on this database, or was interrupted`) {
		t.Errorf("%d %q %q", code, stdout, stderr)
	}
	// It left no lease that would keep the run from going on.
	if code, stdout, stderr = run(t, nil, "restore-epoch", "-db", url); code != exitOK {
		t.Errorf("%d %q %q", code, stdout, stderr)
	}
	start(t, testEnv, nil, "-db", url)
}

func TestRestoreEpochRefuses(t *testing.T) {
	t.Parallel()
	url, _ := newDatabase(t)
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{}, exitUsage, "server: -db: the database is missing"},
		{[]string{"-db", url, "-conv", "a b"}, exitUsage, "server: -conv a b: must be 1 to 64"},
		{[]string{"-db", url, "-conv", ""}, exitUsage, "server: -conv has no value: must be 1 to 64"},
		{[]string{"-db", url, "-conv", "none"}, exitError, `server: there is no conversation "none"`},
		{[]string{"-db", "postgres://127.0.0.1:1/none?connect_timeout=1"}, exitError, "server: the database cannot be used"},
	} {
		code, stdout, stderr := run(t, nil, append([]string{"restore-epoch"}, c.args...)...)
		if code != c.code || stdout != "" || !strings.HasPrefix(stderr, c.want) {
			t.Errorf("%v: %d %q %q", c.args, code, stdout, stderr)
		}
	}
	code, stdout, _ := run(t, nil, "restore-epoch", "-help")
	if code != exitOK || !strings.Contains(stdout, "begins a new epoch") || !strings.Contains(stdout, "-conv id") {
		t.Errorf("-help: %d %q", code, stdout)
	}
}

// The whole way of retention: set by the admin, done in the background, told by metrics; and the mode's way to a device.
func TestRetentionAndModeOfAConversation(t *testing.T) {
	t.Parallel()
	url, _ := newDatabase(t)
	r := start(t, testEnv, nil, "-db", url, "-gateway-id", "g1", "-retention-every", "20ms", "-request-rate", "0")
	r2 := start(t, testEnv, nil, "-db", url, "-gateway-id", "g2")
	r.call("POST", "/admin/v1/populations", population, 201, nil)
	sender, other := r.connect("t-u1-d1", websocket.DefaultDialer, "ws"), r2.connect("t-u2-d1", websocket.DefaultDialer, "ws")
	// Before any change an event is pushed; when the other gateway has heard of the change, it is a hint.
	if f := sender.ask(wire.Request{T: wire.TSend, RID: "1", Conv: "t-g1", CMID: "first", Body: "x"}); f.T != wire.TSent {
		t.Fatalf("sent %+v", f)
	}
	if f := other.next(); f.T != wire.TEvent || f.Ev.Seq != 3 {
		t.Fatalf("pushed %+v", f)
	}
	r.call("PATCH", "/admin/v1/conversations/none", `{"delivery_mode":"pull"}`, 404, nil)
	for i, c := range []struct {
		change, settings string
		becomes          wire.Type
	}{
		{`{"hint_above":1}`, `"push","retention_ms":0,"recall_window_ms":120000,"hint_above":1,"open_only_above":null`, wire.THint},
		{`{"hint_above":null}`, `"push","retention_ms":0,"recall_window_ms":120000,"hint_above":null,"open_only_above":null`, wire.TEvent},
		{`{"delivery_mode":"pull","retention_ms":1}`, `"pull","retention_ms":1,"recall_window_ms":120000,"hint_above":null,"open_only_above":null`, wire.THint},
	} {
		if got := r.call("PATCH", "/admin/v1/conversations/t-g1", c.change, 200, nil); got != `{"conv":"t-g1","delivery_mode":`+c.settings+"}\n" {
			t.Errorf("changed: %s", got)
		}
		for j, changed := 0, false; !changed; j++ { // go test's own timeout is the bound
			if f := sender.ask(wire.Request{T: wire.TSend, RID: "2", Conv: "t-g1", CMID: fmt.Sprint("k", i, "-", j), Body: "x"}); f.T != wire.TSent {
				t.Fatalf("sent %+v", f)
			}
			changed = other.next().T == c.becomes
		}
	}
	for empty := false; !empty; {
		f := sender.ask(wire.Request{T: wire.TSync, RID: "3", Conv: "t-g1"})
		if f.T != wire.TSynced {
			t.Fatalf("synced %+v", f)
		}
		empty = f.MinSeq == f.Head+1 && len(f.Events) == 0
	}
	if f := sender.ask(wire.Request{T: wire.TSend, RID: "4", Conv: "t-g1", CMID: "first", Body: "x"}); f.T != wire.TError || f.Code != wire.Expired {
		t.Errorf("a resend of what was removed: %+v", f)
	}
	metrics := r.call("GET", "/metrics", "", 200, nil)
	for _, name := range []string{"im_retention_events_total", "im_retention_conversations_total", "im_retention_steps_total"} {
		if !strings.Contains(metrics, "\n"+name+" ") || strings.Contains(metrics, "\n"+name+" 0\n") {
			t.Errorf("%s does not count", name)
		}
	}
	r.stop()
	r.wait(exitOK)
}

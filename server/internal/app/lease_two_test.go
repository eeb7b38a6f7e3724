package app

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/jackc/pgx/v5"

	"imbench/server/internal/bus"
	"imbench/server/wire"
)

// A second process with a living gateway's id ends with a sentence, and the first one does not notice.
func TestTwoGatewaysWithOneID(t *testing.T) {
	t.Parallel()
	url, _ := newDatabase(t)
	first := start(t, testEnv, nil, "-db", url, "-gateway-id", "g1", "-lease", "1s")
	first.call("POST", "/admin/v1/populations", population, 201, nil)
	d := first.connect("t-u1-d1", websocket.DefaultDialer, "ws")
	code, stdout, stderr := run(t, testEnv, "-db", url, "-gateway-id", "g1", "-listen", "127.0.0.1:0", "-admin-listen", "127.0.0.1:0")
	if want := "server: another process runs with this gateway id and holds its lease"; code != exitError || stdout != "" || !strings.Contains(stderr, want) {
		t.Errorf("%d %q %q, want %q", code, stdout, stderr, want)
	}
	if f := d.ask(wire.Request{T: wire.TPing, RID: "p"}); f.T != wire.TPong {
		t.Errorf("the first one's device: %+v", f)
	}
	if log := first.log.String(); strings.Contains(log, "lease") {
		t.Errorf("the first one noticed:\n%s", log)
	}
	first.stop()
	first.wait(exitOK)
	// It gave its lease up, so that nobody waits for it.
	if r := start(t, testEnv, nil, "-db", url, "-gateway-id", "g1"); strings.Contains(r.log.String(), "lease") {
		t.Errorf("one after it: %s", r.log)
	}
}

// A lease whose process has ended without giving it up is taken at once; that of one which is still connected and does
// nothing when it lapses.
func TestLeaseOfAProcessThatIsGone(t *testing.T) {
	t.Parallel()
	url, _ := newDatabase(t)
	start(t, testEnv, nil, "-db", url, "-gateway-id", "g0") // makes the tables
	db, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(t.Context())
	held := func(id, length string) {
		t.Helper()
		if _, err := db.Exec(t.Context(), `INSERT INTO gateways (gateway_id, lease_until, holder) VALUES ($1, clock_timestamp() + $2::interval, 'gone')`, id, length); err != nil {
			t.Fatal(err)
		}
	}
	held("g1", "1 day")
	if r := start(t, testEnv, nil, "-db", url, "-gateway-id", "g1"); strings.Contains(r.log.String(), "waiting") {
		t.Errorf("it waited for a process that is not there:\n%s", r.log)
	}
	held("g2", "1 second")
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.RuntimeParams["application_name"] = bus.ListenerName("g2")
	hangs, err := pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer hangs.Close(t.Context())
	r := start(t, testEnv, nil, "-db", url, "-gateway-id", "g2")
	var alone bool
	if err := db.QueryRow(t.Context(), `SELECT holder <> 'gone' FROM gateways WHERE gateway_id = 'g2'`).Scan(&alone); err != nil || !alone || !strings.Contains(r.log.String(), "waiting to see") {
		t.Errorf("the lease is its own: %v, %v\n%s", alone, err, r.log)
	}
}

// A gateway that finds its lease in the hands of another process ends, as a drain ends, once that one is seen to live.
func TestLeaseIsTakenByALivingProcess(t *testing.T) {
	t.Parallel()
	url, _ := newDatabase(t)
	r := start(t, testEnv, nil, "-db", url, "-gateway-id", "g1", "-lease", "1s")
	r.call("POST", "/admin/v1/populations", population, 201, nil)
	d := r.connect("t-u1-d1", websocket.DefaultDialer, "ws")
	db, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(t.Context())
	renew := func() {
		t.Helper()
		if _, err := db.Exec(t.Context(), `UPDATE gateways SET holder = 'other', lease_until = clock_timestamp() + interval '1 day' WHERE gateway_id = 'g1'`); err != nil {
			t.Fatal(err)
		}
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	renew()
	for !strings.Contains(r.log.String(), "held by another process of this gateway id") {
		<-tick.C
	}
	if f := d.ask(wire.Request{T: wire.TPing, RID: "p"}); f.T != wire.TPong {
		t.Errorf("%+v", f)
	}
	renew()
	for err = nil; err == nil; { // after what it is told of the drain
		_, _, err = d.ws.ReadMessage()
	}
	if ce := (*websocket.CloseError)(nil); !errors.As(err, &ce) || ce.Code != wire.CloseDraining.Code {
		t.Errorf("its device: %v", err)
	}
	_ = d.ws.Close()
	r.wait(exitError)
	if !strings.Contains(r.log.String(), "server: another process runs with this gateway id") {
		t.Errorf("%s", r.log)
	}
	var holder string
	if err := db.QueryRow(t.Context(), `SELECT holder FROM gateways WHERE gateway_id = 'g1'`).Scan(&holder); err != nil || holder != "other" {
		t.Errorf("the lease is %q's, %v", holder, err)
	}
}

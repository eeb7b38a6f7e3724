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

// logs waits until the log says this; the bound only ends a test that has failed.
func (r *running) logs(what string) {
	r.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for range 3000 {
		if strings.Contains(r.log.String(), what) {
			return
		}
		<-tick.C
	}
	r.t.Fatalf("the log does not say %q\n%s", what, r.log)
}

// A second process with a living gateway's id ends with a sentence, and the first one does not notice.
func TestTwoGatewaysWithOneID(t *testing.T) {
	t.Parallel()
	url, _ := newDatabase(t)
	first := start(t, testEnv, nil, "-db", url, "-gateway-id", "g1", "-lease", "15s")
	first.call("POST", "/admin/v1/populations", population, 201, nil)
	d := first.connect("t-u1-d1", websocket.DefaultDialer, "ws")
	db, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(t.Context())
	second, _ := launch(t, testEnv, nil, "-db", url, "-gateway-id", "g1")
	second.logs("waiting to see whether it lives")
	// The first one's next renewal, a little early.
	if _, err := db.Exec(t.Context(), `UPDATE gateways SET lease_until = lease_until + interval '1 second' WHERE gateway_id = 'g1'`); err != nil {
		t.Fatal(err)
	}
	second.wait(exitError)
	if want := "server: another process runs with this gateway id and holds its lease"; !strings.Contains(second.log.String(), want) {
		t.Errorf("%s, want %q", second.log, want)
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

// A lease whose process has ended without giving it up is taken; that of one which is still connected and does nothing when
// it lapses.
func TestLeaseOfAProcessThatIsGone(t *testing.T) {
	t.Parallel()
	url, _ := newDatabase(t)
	start(t, testEnv, nil, "-db", url, "-gateway-id", "g0") // makes the tables
	db, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(t.Context())
	exec := func(sql, id string) {
		t.Helper()
		if _, err := db.Exec(t.Context(), sql, id); err != nil {
			t.Fatal(err)
		}
	}
	const held = `INSERT INTO gateways (gateway_id, lease_until, holder) VALUES ($1, clock_timestamp() + interval '1 day', 'gone')`
	exec(held, "g1")
	if r := start(t, testEnv, nil, "-db", url, "-gateway-id", "g1"); strings.Contains(r.log.String(), "waiting") {
		t.Errorf("it waited for a process that is not there:\n%s", r.log)
	}
	exec(held, "g2")
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
	r, ready := launch(t, testEnv, nil, "-db", url, "-gateway-id", "g2")
	r.logs("waiting to see")
	exec(`UPDATE gateways SET lease_until = clock_timestamp() WHERE gateway_id = $1`, "g2")
	ready()
	var alone bool
	if err := db.QueryRow(t.Context(), `SELECT holder <> 'gone' FROM gateways WHERE gateway_id = 'g2'`).Scan(&alone); err != nil || !alone {
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
	renew()
	r.logs("held by another process of this gateway id")
	r.untilReady(503)
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

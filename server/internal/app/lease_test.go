package app

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/jackc/pgx/v5"

	"imbench/server/internal/postgres"
	"imbench/server/wire"
)

// The database is away from one gateway for longer than its lease; another one clears its routes, and one of its devices
// goes there, which it cannot be told. When the database is back it has the routes of the others again, its connections
// have lived on, and the connection of the one that went is closed for good.
func TestRoutesAreAssertedAfterALapse(t *testing.T) {
	t.Parallel()
	url, cfg := newDatabase(t)
	proxy := newSwitchable(t, cfg)
	host, port, _ := net.SplitHostPort(proxy.addr)
	n, _ := strconv.Atoi(port)
	r1 := start(t, testEnv, nil, "-db", dsn(cfg, host, uint16(n)), "-gateway-id", "g1", "-lease", "2s")
	r2 := start(t, testEnv, nil, "-db", url, "-gateway-id", "g2", "-lease", "2s")
	r2.call("POST", "/admin/v1/populations", population, 201, nil)
	stays, goes := r1.connect("t-u2-d1", websocket.DefaultDialer, "ws"), r1.connect("t-u1-d1", websocket.DefaultDialer, "ws")
	db, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(t.Context())
	routes := func(want string) {
		t.Helper()
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		got := ""
		for range 3000 {
			err := db.QueryRow(t.Context(), `SELECT coalesce(string_agg(device_id || '@' || gateway_id, ' ' ORDER BY device_id), 'none') FROM routes`).Scan(&got)
			if err != nil {
				t.Fatal(err)
			}
			if got == want {
				return
			}
			<-tick.C
		}
		t.Fatalf("routes %s, want %s", got, want)
	}
	routes("t-u1-d1@g1 t-u2-d1@g1")
	proxy.cut()
	routes("none")
	new := r2.connect("t-u1-d1", websocket.DefaultDialer, "ws")
	routes("t-u1-d1@g2")
	proxy.restore()
	routes("t-u1-d1@g2 t-u2-d1@g1")
	for _, d := range []*device{stays, new} {
		if f := d.ask(wire.Request{T: wire.TPing, RID: "p"}); f.T != wire.TPong {
			t.Errorf("%s: %+v", d.name, f)
		}
	}
	_ = goes.ws.SetReadDeadline(time.Now().Add(time.Minute))
	_, text, err := goes.ws.ReadMessage()
	if ce := (*websocket.CloseError)(nil); !errors.As(err, &ce) || ce.Code != wire.CloseReplaced.Code {
		t.Errorf("the old connection of the device that went: %s, %v", text, err)
	}
	routes("t-u1-d1@g2 t-u2-d1@g1") // and its clean-up took nothing away
}

// A gateway that cannot start after it took its lease gives it up: restore-epoch and a migration need not wait for it to
// lapse.
func TestLeaseIsGivenUpByAFailedStart(t *testing.T) {
	t.Parallel()
	url, _ := newDatabase(t)
	store, err := openStore(t.Context(), postgres.Config{URL: url}, true)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cfg: &config{gatewayID: "g1", lease: time.Hour}, log: slog.New(slog.DiscardHandler), end: func(error) {}, store: store}
	if err := p.takeLease(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.stop(0) // as runGateway does when the bus, which comes next, cannot connect
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	var held int
	if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM gateways`).Scan(&held); err != nil || held != 0 {
		t.Errorf("%d leases are left, %v", held, err)
	}
}

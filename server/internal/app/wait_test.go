package app

import (
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/jackc/pgx/v5"

	"imbench/server/wire"
)

// A join, a recall and a leave wait for their conversation's lock no longer than one try of theirs may: the database
// notes the limit that holds when each of them writes.
func TestChangesWaitAsLongAsOneTry(t *testing.T) {
	t.Parallel()
	url, cfg := newDatabase(t)
	r := start(t, testEnv, nil, "-db", url, "-gateway-id", "g1", "-sweep", "0")
	r.call("POST", "/admin/v1/populations", population, 201, nil)
	ana := r.connect("t-u1-d1", websocket.DefaultDialer, "ws")
	sent := ana.ask(wire.Request{T: wire.TSend, RID: "s", Conv: "t-g1", CMID: "k1", Body: "x"})

	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), `
		CREATE TABLE limits (lock_timeout text);
		CREATE FUNCTION note_limit() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN INSERT INTO limits VALUES (current_setting('lock_timeout')); RETURN NEW; END $$;
		CREATE TRIGGER note_limit BEFORE UPDATE ON conversations FOR EACH ROW EXECUTE FUNCTION note_limit()`); err != nil {
		t.Fatal(err)
	}
	for _, q := range []wire.Request{
		{T: wire.TJoin, RID: "j", Conv: "t-g1", User: "t-u3"},
		{T: wire.TRecall, RID: "x", Conv: "t-g1", Seq: sent.Seq, CMID: "k2"},
		{T: wire.TLeave, RID: "l", Conv: "t-g1", User: "t-u3"},
	} {
		if f := ana.ask(q); f.T != wire.TSent {
			t.Fatalf("%s: %+v", q.T, f)
		}
	}
	rows, err := conn.Query(t.Context(), `SELECT lock_timeout FROM limits`)
	if err != nil {
		t.Fatal(err)
	}
	limits, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(limits) != 3 {
		t.Fatalf("%q, %v, want three limits", limits, err)
	}
	for _, l := range limits {
		if d, err := time.ParseDuration(l); err != nil || d != lockWait {
			t.Errorf("waited up to %q, %v, want %v", l, err, lockWait)
		}
	}
}

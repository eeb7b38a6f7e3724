package postgres

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"imbench/server/internal/im"
)

// uuidKey is a key in the form in which a row holds it as a UUID.
const uuidKey = "0190aa3c-8a00-7000-8000-0000000000a9"

// TestRequestKeys: a request is compared with what the row of its key says, be that the body or a hash: one from before
// rows went without, or the one that a recall left. Keys of characters that mean something to SQL are keys as all others.
func TestRequestKeys(t *testing.T) {
	t.Parallel()
	f, ctx := withChat(t), t.Context()
	send := func(cmid, body string) im.SendResult {
		t.Helper()
		res, err := f.SendBatch(ctx, []im.SendReq{{From: ana, Conv: "c", CMID: cmid, Body: body}}, true)
		if err != nil {
			t.Fatal(err)
		}
		return res[0]
	}
	for _, key := range []string{"plain", `\`, `\x41`, `a\\b'c"%_`, strings.Repeat("ä", 64), uuidKey, strings.ToUpper(uuidKey), "{" + uuidKey + "}",
		strings.ReplaceAll(uuidKey, "-", ""), uuidKey + "\n"} {
		first := send(key, "héllo")
		if first.Err != nil || first.Dup {
			t.Fatalf("%q: %+v", key, first)
		}
		again := func(when string) {
			t.Helper()
			if r := send(key, "héllo"); r.Err != nil || !r.Dup || r.Seq != first.Seq || r.MID != first.MID {
				t.Errorf("%q %s, sent again: %+v, want %+v as a dup", key, when, r, first)
			}
			if r := send(key, "hello"); !errors.Is(r.Err, im.ErrIdempotencyMismatch) {
				t.Errorf("%q %s, another body: %+v", key, when, r)
			}
		}
		again("as it is written")
		var bits bool
		if err := f.pool.QueryRow(ctx, `SELECT client_msg_uuid IS NOT NULL FROM events WHERE conv_id = 'c' AND seq = $1`, first.Seq).Scan(&bits); err != nil || bits != (key == uuidKey) {
			t.Errorf("%q is held as a UUID: %v, %v", key, bits, err)
		}
		if ev, err := f.Fetch(ctx, ana, "c", first.Seq); err != nil || ev.CMID != key || ev.MID != first.MID {
			t.Errorf("%q, fetched: %+v, %v", key, ev, err)
		}
		f.exec(t, `UPDATE events SET request_hash = $1 WHERE conv_id = 'c' AND seq = $2`, requestHash(im.KindMsg, "héllo"), first.Seq)
		again("with a hash from before")
		now := first.MID
		first.MID = "0190aa3c-8a00-7000-8000-0000000000b1"
		f.exec(t, `UPDATE events SET request_hash = NULL, message_id = $1 WHERE conv_id = 'c' AND seq = $2`, first.MID, first.Seq)
		again("with an id from before")
		if ev, err := f.Fetch(ctx, ana, "c", first.Seq); err != nil || ev.MID != first.MID {
			t.Errorf("%q with an id from before, fetched: %+v, %v", key, ev, err)
		}
		first.MID = now
		f.exec(t, `UPDATE events SET message_id = NULL WHERE conv_id = 'c' AND seq = $1`, first.Seq)
		f.exec(t, `UPDATE events SET client_msg_id = $1, client_msg_uuid = NULL WHERE conv_id = 'c' AND seq = $2`, key, first.Seq)
		again("with a key from before")
		other := strings.Replace(key, "8a00", "8a01", 1)
		if other == key {
			other += "r"
		}
		if r := f.Recall(ctx, im.RecallReq{From: ana, Conv: "c", Seq: first.Seq, CMID: other}); r.Err != nil || r.Dup {
			t.Fatalf("%q: %+v", other, r)
		}
		again("recalled")
		if r := f.Recall(ctx, im.RecallReq{From: ana, Conv: "c", Seq: first.Seq, CMID: other}); r.Err != nil || !r.Dup {
			t.Errorf("%q, recalled again: %+v", other, r)
		}
		if r := send(other, "héllo"); !errors.Is(r.Err, im.ErrIdempotencyMismatch) {
			t.Errorf("%q: a message under a recall's key: %+v", key, r)
		}
	}
}

// TestRequestKeyPlan: the plan of a send is made while the log is empty, and kept. It has to go by the key all the same.
func TestRequestKeyPlan(t *testing.T) {
	t.Parallel()
	f, ctx := withChat(t, func(c *Config) { c.SendConns = 1 }), t.Context()
	f.sendOne(t, "k0")
	const events = 2000
	f.exec(t, `INSERT INTO events (conv_id, seq, kind, message_id, sender_user, client_msg_id, body, msg_no)
		SELECT 'c', n, 'msg', gen_random_uuid(), 'ana', 'm' || n, 'x', n - 2 FROM generate_series(4, $1::int) n`, events)
	f.exec(t, `UPDATE conversations SET next_seq = $1::int + 1, msg_count = $1::int - 2`, events)
	err := pgx.BeginFunc(ctx, f.send, func(tx pgx.Tx) error {
		reqs, out := make([]im.SendReq, 4), make([]im.SendResult, 4)
		err := sendStatement{sendSQL, []any{[]string{"c", "c"}, []string{"ana", "ana"}, []string{"ana-d", "ana-d"},
			[]string{"k1", "m1000"}, [][]byte{{1}, {2}}, nil, []string{"x", "x"}, true}, []int{0, 1}}.run(ctx, tx, reqs, out)
		for i, key := range []string{"k2", "m1001"} {
			if err == nil {
				err = sendStatement{sendOneSQL, []any{"c", "ana", "ana-d", key, []byte{1}, nil, "x", true}, []int{2 + i}}.run(ctx, tx, reqs, out)
			}
		}
		if err != nil || out[0].Seq != events+1 || !out[1].Dup || out[1].Seq != 1000 || out[2].Seq != events+2 || !out[3].Dup || out[3].Seq != 1001 {
			t.Errorf("%+v, %v", out, err)
		}
		var read int
		err = tx.QueryRow(ctx, `SELECT coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) FROM pg_stat_xact_user_tables
			WHERE relid = 'events'::regclass`).Scan(&read)
		if read > 4 {
			t.Errorf("%d rows of the log were read for four keys", read)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

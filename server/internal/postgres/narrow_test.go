package postgres

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

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
		for i, key := range []string{"k1", "m1000", "k2", "m1001"} {
			reqs[i] = im.SendReq{From: ana, Conv: "c", CMID: key, Body: "x"}
		}
		var err error
		for _, part := range [][2]int{{0, 2}, {2, 3}, {3, 4}} {
			args, _ := sends(reqs[part[0]:part[1]], out)
			if err == nil {
				err = args.statement(true).run(ctx, tx, reqs[part[0]:part[1]], out[part[0]:])
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

// TestKeysAreMadeAlike: what the store makes of a key is what the index and the rows from before have.
func TestKeysAreMadeAlike(t *testing.T) {
	t.Parallel()
	f := withChat(t)
	for _, key := range []string{"plain", `\`, `\x41`, `a\\b'c"%_`, strings.Repeat("ä", 64), uuidKey, strings.ToUpper(uuidKey), "{" + uuidKey + "}",
		strings.ReplaceAll(uuidKey, "-", ""), uuidKey + "\n", "urn:uuid:" + uuidKey, strings.Replace(uuidKey, "-", "0", 1), "0190AA3c" + uuidKey[8:],
		uuidKey[:35] + "g", strings.Repeat("x", 36), "ä" + uuidKey[2:], ""} {
		var digest []byte
		var bits pgtype.UUID
		if err := f.pool.QueryRow(t.Context(), `SELECT im_request_digest($1, $2), im_uuid($2)`, "ana", key).Scan(&digest, &bits); err != nil {
			t.Fatal(err)
		}
		if got := requestDigest("ana", key); !bytes.Equal(got, digest) {
			t.Errorf("%q: digest %x, in the database %x", key, got, digest)
		}
		if got := keyBits(key); got != bits {
			t.Errorf("%q: as a UUID %v, in the database %v", key, got, bits)
		}
	}
}

// TestOneKeyInABatch: requests with one key get what they would get one after the other, whatever became of it before.
func TestOneKeyInABatch(t *testing.T) {
	t.Parallel()
	f, ctx := withChat(t), t.Context()
	send := func(key string, bodies ...string) []im.SendResult {
		t.Helper()
		var reqs []im.SendReq
		for _, body := range bodies {
			reqs = append(reqs, im.SendReq{From: ana, Conv: "c", CMID: key, Body: body})
		}
		res, err := f.SendBatch(ctx, append(reqs, im.SendReq{From: ana, Conv: "c", CMID: key + "\x00", Body: "x"}), true)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(bodies); !errors.Is(res[n].Err, im.ErrBadRequest) {
			t.Errorf("a key with a zero byte: %+v", res[n])
		}
		return res[:len(bodies)]
	}
	outcomes := func(res []im.SendResult) (s string) {
		for _, r := range res {
			switch {
			case errors.Is(r.Err, im.ErrIdempotencyMismatch):
				s += "other "
			case r.Err != nil:
				s += r.Err.Error() + " "
			case r.Dup:
				s += fmt.Sprintf("again@%d ", r.Seq)
			default:
				s += fmt.Sprintf("new@%d ", r.Seq)
			}
		}
		return strings.TrimSpace(s)
	}
	for _, c := range []struct {
		key    string
		bodies []string
		want   string
	}{
		{"k", []string{"a", "a", "b", "a"}, "new@3 again@3 other again@3"},
		{"k", []string{"a", "b"}, "again@3 other"},
		{"k", []string{"b", "a", "b", "c", "a"}, "other again@3 other other again@3"},
		{"l", []string{"b", "b"}, "new@4 again@4"},
	} {
		if got := outcomes(send(c.key, c.bodies...)); got != c.want {
			t.Errorf("%s %q: %s, want %s", c.key, c.bodies, got, c.want)
		}
	}
}

package postgres

import (
	"errors"
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"imbench/server/internal/im"
	"imbench/server/internal/postgres/fill"
)

var full = flag.Bool("full", false, "fill ten million events for the tests of plans, not a fiftieth of them; takes minutes")

// filledStore is a store whose schema fill.Schema has filled. Events are in one table, whatever TEST_PARTITIONS says: the
// golden plans are of that.
func filledStore(t testing.TB) (fixture, fill.Size) {
	t.Helper()
	f, size := fixture{openPartitioned(t, 0)}, fill.Small
	if *full {
		size = fill.Full
	}
	conn, err := pgx.Connect(t.Context(), f.cfg.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	began := time.Now()
	say := func(step string) {
		if testing.Verbose() { // t.Log would tell it at the end
			fmt.Printf("%4.0f s: %s\n", time.Since(began).Seconds(), step)
		}
	}
	if err := fill.Schema(t.Context(), conn, size, say); err != nil {
		t.Fatal(err)
	}
	say("done")
	return f, size
}

// What the store would never have written, by the name of what it breaks.
var invalidSQL = map[string]string{
	"gap-free from min_seq (P1), next_seq (P5), msg_count": `
		SELECT count(*) FROM conversations c
		JOIN (SELECT conv_id, count(*) AS n, min(seq) AS lo, max(seq) AS hi, max(msg_no) AS msgs FROM events GROUP BY conv_id) e USING (conv_id)
		WHERE (c.min_seq, c.next_seq - 1, c.next_seq - c.min_seq, c.msg_count) <> (e.lo, e.hi, e.n, e.msgs)`,
	"every conversation has events, users and devices are there": `
		SELECT (SELECT count(*) FROM conversations) - (SELECT count(DISTINCT conv_id) FROM events)
		     + (SELECT count(*) FROM membership_periods LEFT JOIN users u USING (user_id) WHERE u.user_id IS NULL)
		     + (SELECT count(*) FROM device_cursors LEFT JOIN devices d USING (device_id) WHERE d.device_id IS NULL)`,
	"msg_no counts messages, and times rise with seq": `
		SELECT count(*) FROM (SELECT msg_no - lag(msg_no) OVER w - (kind = 'msg')::int AS step, created_at < lag(created_at) OVER w AS back
		                      FROM events WINDOW w AS (PARTITION BY conv_id ORDER BY seq)) x WHERE step <> 0 OR back`,
	"joins and leaves are the ends of periods (P4)": `
		SELECT count(*) FROM membership_periods p JOIN conversations c USING (conv_id)
		LEFT JOIN events j ON j.conv_id = p.conv_id AND j.seq = p.from_seq AND j.kind = 'join' AND j.subject_user = p.user_id
		LEFT JOIN events l ON l.conv_id = p.conv_id AND l.seq = p.to_seq AND l.kind = 'leave' AND l.subject_user = p.user_id
		WHERE j.seq IS NULL AND p.from_seq >= c.min_seq OR l.seq IS NULL AND p.to_seq >= c.min_seq`,
	"who says something is a member": `
		SELECT count(*) FROM events e WHERE NOT EXISTS (
			SELECT 1 FROM membership_periods p WHERE p.conv_id = e.conv_id AND p.user_id = e.sender_user
			AND e.seq >= p.from_seq AND e.seq <= coalesce(p.to_seq, e.seq)) AND kind <> 'join'`,
	"a recalled message has its hash and no body, others a body; a recall is its sender's (L1)": `
		SELECT count(*) FROM events e LEFT JOIN events r ON r.conv_id = e.conv_id AND r.target_seq = e.seq
		WHERE e.kind = 'msg' AND ((r.seq IS NULL) <> (e.body IS NOT NULL) OR (r.seq IS NULL) <> (e.request_hash IS NULL) OR r.sender_user <> e.sender_user)`,
	"keys and ids are where a send and a recall write them": `
		SELECT count(*) FROM events WHERE message_id IS NOT NULL OR (client_msg_uuid IS NOT NULL) <> (kind = 'msg') OR (client_msg_id IS NOT NULL) <> (kind = 'recall')`,
	"the first send has taken the room of its conversation's row": `
		SELECT count(*) FROM conversations WHERE msg_count > 0 AND room IS NOT NULL`,
	"cursors and positions are not ahead (D4)": `
		SELECT (SELECT count(*) FROM device_cursors d JOIN conversations c USING (conv_id) WHERE d.delivered_seq >= c.next_seq)
		     + (SELECT count(*) FROM read_positions d JOIN conversations c USING (conv_id) WHERE d.read_seq >= c.next_seq)`,
	"retention is not overdue by a day, nor waits longer than its age": `
		SELECT count(*) FROM conversations WHERE abs(extract(epoch FROM retain_at - now())) > 86400`,
	"own messages are noted nearby": farOwnSQL,
}

// filledIsValid: what the generator writes could have been written by the store.
func filledIsValid(t *testing.T, f fixture, size fill.Size) {
	conn, err := pgx.Connect(t.Context(), f.cfg.URL) // whose plans may read whole tables
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	for name, sql := range invalidSQL {
		var n int
		if err := conn.QueryRow(t.Context(), sql).Scan(&n); err != nil || n != 0 {
			t.Errorf("%s: %d do not hold, %v", name, n, err)
		}
	}
	var events, convs int64
	if err := conn.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM events), (SELECT count(*) FROM user_conversations WHERE user_id = $1)`, fill.Many).
		Scan(&events, &convs); err != nil || events != size.Events() || convs != int64(size.ManyConvs) {
		t.Errorf("%d events of %d, %d conversations of %s, %v", events, size.Events(), convs, fill.Many, err)
	}
	filledAnswers(t, f, size)
}

// filledAnswers: repetitions are known as such, of a message, of a recalled one and of one that retention has removed.
func filledAnswers(t *testing.T, f fixture, size fill.Size) {
	again := func(conv string, seq int64) (q im.SendReq) {
		t.Helper()
		q.Conv = conv
		if err := f.pool.QueryRow(t.Context(), `SELECT sender_user, `+keyColumn+`, coalesce(body, '') FROM events e WHERE conv_id = $1 AND seq = $2`,
			conv, seq).Scan(&q.From.User, &q.CMID, &q.Body); err != nil {
			t.Fatal(err)
		}
		return q
	}
	old := im.SendReq{Conv: fill.Group(0), Body: "x"}
	if err := f.pool.QueryRow(t.Context(), `SELECT sender_user, client_msg_id FROM idem_tombstones WHERE conv_id = $1 LIMIT 1`, old.Conv).
		Scan(&old.From.User, &old.CMID); err != nil {
		t.Fatal(err)
	}
	const recalled = fill.GroupMembers + 94 + 5*97
	res, err := f.SendBatch(t.Context(), []im.SendReq{again(fill.Group(1), 500), again(fill.Group(1), recalled), old}, false)
	if err != nil {
		t.Fatal(err)
	}
	if !res[0].Dup || res[0].Seq != 500 || res[0].Err != nil || !errors.Is(res[1].Err, im.ErrIdempotencyMismatch) || !errors.Is(res[2].Err, im.ErrExpired) {
		t.Errorf("sent again: %+v", res)
	}
	r, err := f.Retain(t.Context(), 10, time.Hour)
	if err != nil || r.Events > 10 {
		t.Errorf("retention: %+v, %v", r, err)
	}
}

// TestFilled fills a database as a month of use leaves it, a small one or (with -full) one of ten million events.
func TestFilled(t *testing.T) {
	t.Parallel()
	f, size := filledStore(t)
	t.Run("valid", func(t *testing.T) { filledIsValid(t, f, size) })
	t.Run("inbox", func(t *testing.T) { inboxCostsTheSame(t, f) })
	t.Run("plans", func(t *testing.T) { goldenPlans(t, f) })
}

// ordinary is a user with the hot conversation, groups and direct chats; ordinaryConvs of them in the smallest filling.
var (
	ordinary = im.Principal{User: fill.User(35), Device: fill.User(35) + "-d1", Install: 1}
	many     = im.Principal{User: fill.Many, Device: fill.Many + "-d1", Install: 1}
)

const ordinaryConvs = 5

// inboxCostsTheSame: the first page of the user with very many conversations touches no more than 1.5 times the pages of
// an ordinary user's.
func inboxCostsTheSame(t *testing.T, f fixture) {
	e := explain(t, f.Store)
	cost := func(p im.Principal) int {
		for range 2 { // the first time pages are tidied up that others wrote
			e.forget()
			if list, more, err := e.Inbox(t.Context(), p, "", ordinaryConvs-1); err != nil || len(list) != ordinaryConvs-1 || !more {
				t.Fatalf("%s: %d conversations, %v", p.User, len(list), err)
			}
		}
		return pages(e.take(t))
	}
	few, lots := cost(ordinary), cost(many)
	if few == 0 || 2*lots > 3*few {
		t.Errorf("%d pages for a user with very many conversations, %d for an ordinary one", lots, few)
	}
	t.Logf("%d and %d pages", lots, few)
}

// BenchmarkFilledInbox reads the first pages of the user with 2 000 conversations and of an ordinary one, in turn.
func BenchmarkFilledInbox(b *testing.B) {
	f, _ := filledStore(b)
	var spent [2]time.Duration
	for b.Loop() {
		for i, p := range []im.Principal{ordinary, many} {
			began := time.Now()
			if list, _, err := f.Inbox(b.Context(), p, "", ordinaryConvs-1); err != nil || len(list) != ordinaryConvs-1 {
				b.Fatal(len(list), err)
			}
			spent[i] += time.Since(began)
		}
	}
	b.ReportMetric(float64(spent[1])/float64(spent[0]), "x-ordinary")
}

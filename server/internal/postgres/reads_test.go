package postgres

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"imbench/server/internal/im"
)

// farOwnSQL lists who has sent a message that im_reader would not find, or of whom something is noted that they have
// not sent.
const farOwnSQL = `
SELECT count(*) FROM (
    SELECT conv_id, sender_user AS user_id, max(seq) AS last, array_agg(seq) AS seqs
    FROM events WHERE kind = 'msg' GROUP BY conv_id, sender_user) e
LEFT JOIN read_positions p USING (conv_id, user_id)
WHERE e.last > coalesce(p.own_seq, 0) + 64 OR coalesce(p.own_seq, 0) <> 0 AND p.own_seq <> ALL (e.seqs)`

func (f fixture) farOwn(t *testing.T) (n int) {
	t.Helper()
	if err := f.pool.QueryRow(t.Context(), farOwnSQL).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// randomSends sends n messages of both members of the chat, in batches of random sizes.
func (f fixture) randomSends(t *testing.T, seed uint64, n int) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 0))
	for sent := 0; sent < n; {
		var reqs []im.SendReq
		for range 1 + r.IntN(40) {
			p := ana
			if r.IntN(50) == 0 {
				p = im.Principal{User: "ben", Device: "ben-d", Install: 1}
			}
			reqs = append(reqs, im.SendReq{From: p, Conv: "c", CMID: fmt.Sprintf("s%d-%d", seed, sent), Body: "x"})
			sent++
		}
		if _, err := f.SendBatch(t.Context(), reqs, true); err != nil {
			t.Fatal(err)
		}
	}
}

// TestOwnMessagesAreNotedNearby: im_reader looks at 64 seqs only; a sender must be noted to have sent something within.
func TestOwnMessagesAreNotedNearby(t *testing.T) {
	t.Parallel()
	f := withChat(t)
	for seed := range uint64(10) {
		f.randomSends(t, seed, 150)
		if n := f.farOwn(t); n != 0 {
			t.Fatalf("after %d rounds %d senders are noted wrongly", seed+1, n)
		}
	}
	// The control: noted more rarely than they are looked for.
	f.exec(t, `DO $$ BEGIN EXECUTE replace(pg_get_functiondef('im_send_batch'::regproc), 'o.last > 64 +', 'o.last > 640 +'); END $$`)
	f.randomSends(t, 99, 500)
	if f.farOwn(t) == 0 {
		t.Error("the control is not noticed")
	}
}

// TestMigrationNotesOwnMessages: a database filled by an older version is brought to the same state.
func TestMigrationNotesOwnMessages(t *testing.T) {
	t.Parallel()
	f, ctx := fixture{openTest(t)}, t.Context()
	f.exec(t, `DO $$ BEGIN EXECUTE 'DROP SCHEMA ' || current_schema() || ' CASCADE; CREATE SCHEMA ' || current_schema(); END $$`)
	for _, file := range []string{"0001_tables.sql", "0002_send.sql", "0003_membership.sql"} {
		sql, err := migrations.ReadFile("migrations/" + file)
		if err != nil {
			t.Fatal(err)
		}
		f.exec(t, string(sql))
	}
	f.exec(t, `CREATE TABLE schema_migrations (version integer PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now());
		INSERT INTO schema_migrations SELECT generate_series(1, 3);
		INSERT INTO conversations (conv_id, kind, delivery_mode, next_seq, msg_count) VALUES ('c', 'direct', 'push', 301, 298);
		INSERT INTO membership_periods VALUES ('c', 'ana', 1), ('c', 'ben', 2);
		INSERT INTO user_conversations VALUES ('ana', 'c'), ('ben', 'c');
		INSERT INTO events (conv_id, seq, kind, sender_user, subject_user, msg_no)
		VALUES ('c', 1, 'join', 'ana', 'ana', 0), ('c', 2, 'join', 'ana', 'ben', 0);
		INSERT INTO events (conv_id, seq, kind, sender_user, client_msg_id, body, msg_no)
		SELECT 'c', n, 'msg', CASE WHEN n = 100 THEN 'ben' ELSE 'ana' END, 'k' || n, 'x', n - 2 FROM generate_series(3, 300) n;
		INSERT INTO read_positions (conv_id, user_id, read_seq) VALUES ('c', 'ben', 90)`)
	if err := Migrate(ctx, f.pool); err != nil {
		t.Fatal(err)
	}
	if n := f.farOwn(t); n != 0 {
		t.Errorf("%d senders are noted wrongly", n)
	}
	for user, want := range map[string][2]int64{"ana": {300, 0}, "ben": {100, 200}} {
		list, _, err := f.Convs(ctx, im.Principal{User: user}, "", 0)
		if err != nil || list[0].Read != want[0] || list[0].Unread != want[1] {
			t.Errorf("%s: %+v, %v, want %v", user, list, err, want)
		}
	}
}

// TestDirectBelongsToItsPopulation: users of two namespaces have no chat, and what one is made of goes with its users.
func TestDirectBelongsToItsPopulation(t *testing.T) {
	t.Parallel()
	f, ctx := withChat(t), t.Context()
	before := rowCounts(t, f.Store)
	for _, ns := range []string{"ns", "ot"} {
		if _, err := f.CreatePopulation(ctx, small(ns)); err != nil {
			t.Fatal(err)
		}
	}
	p := im.Principal{User: "ns-u2", Device: "ns-d3", Install: 1}
	for _, peer := range []string{"ot-u1", "ana"} {
		if _, _, err := f.Direct(ctx, p, peer); err != im.ErrNotMember {
			t.Errorf("with %s: %v", peer, err)
		}
	}
	if conv, created, err := f.Direct(ctx, p, "ns-u1"); err != nil || created || conv != "ns-p1" {
		t.Errorf("a pair made in bulk: %q, %v, %v", conv, created, err)
	}
	conv, created, err := f.Direct(ctx, p, "ns-u3")
	if err != nil || !created {
		t.Fatalf("%q, %v, %v", conv, created, err)
	}
	res, err := f.ReadBatch(ctx, []im.ReadReq{{From: p, Conv: conv, Seq: 2}})
	if err != nil || !res[0].Moved {
		t.Fatalf("%+v, %v", res, err)
	}
	for _, ns := range []string{"ns", "ot"} {
		if _, err := f.RemovePopulation(ctx, ns); err != nil {
			t.Fatal(err)
		}
	}
	if after := rowCounts(t, f.Store); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("left over: %v, before: %v", after, before)
	}
}

// crowd makes a user with n conversations, the first of them with 5 000 unread messages.
func (f fixture) crowd(t *testing.T, user string, n int) {
	t.Helper()
	f.exec(t, `INSERT INTO conversations (conv_id, kind, delivery_mode, next_seq, msg_count)
		SELECT $1 || '-' || n, 'direct', 'push', s + 1, s - 2
		FROM generate_series(1, $2::int) n CROSS JOIN LATERAL (SELECT CASE WHEN n = 1 THEN 5000 ELSE 9 END AS s) x`, user, n)
	f.exec(t, `INSERT INTO membership_periods SELECT $1 || '-' || n, u, 1 FROM generate_series(1, $2::int) n, unnest(ARRAY[$1, 'peer']) u`, user, n)
	f.exec(t, `INSERT INTO user_conversations SELECT $1, $1 || '-' || n FROM generate_series(1, $2::int) n`, user, n)
	f.exec(t, `INSERT INTO events (conv_id, seq, kind, sender_user, client_msg_id, body, msg_no)
		SELECT c.conv_id, n, 'msg', 'peer', 'k' || n, 'x', greatest(0, n - 2)
		FROM conversations c CROSS JOIN LATERAL generate_series(1, c.next_seq - 1) n WHERE c.conv_id LIKE $1 || '-%'`, user)
}

// cost is how many pages a statement touched, and its plan.
func (f fixture) cost(t *testing.T, sql string, args ...any) (pages int, plan string) {
	t.Helper()
	rows, err := f.pool.Query(t.Context(), "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, COSTS OFF) "+sql, args...)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines { // the first is the whole statement's
		if _, list, ok := strings.Cut(line, "Buffers: shared "); ok {
			for _, field := range strings.Fields(list) {
				var n int
				if _, err := fmt.Sscanf(field, "hit=%d", &n); err == nil {
					pages += n
				}
				if _, err := fmt.Sscanf(field, "read=%d", &n); err == nil {
					pages += n
				}
			}
			break
		}
	}
	return pages, strings.Join(lines, "\n")
}

// TestReadsCostTheSame: a page of a list, a position and a message's receipts touch as many pages of the database for a
// user with 2 000 conversations, one of them with 5 000 unread messages, as for one with ten.
func TestReadsCostTheSame(t *testing.T) {
	t.Parallel()
	f := fixture{openTest(t)}
	f.crowd(t, "few", 10)
	f.crowd(t, "many", 2000)
	f.exec(t, `INSERT INTO users VALUES ('few'), ('many'), ('peer')`)
	f.exec(t, `INSERT INTO devices (device_id, user_id) VALUES ('d', 'peer')`)
	f.exec(t, `VACUUM ANALYZE events, conversations, membership_periods, user_conversations, read_positions, device_cursors, devices, users`)
	for name, c := range map[string]struct {
		sql  string
		args func(user string) []any
		most int // pages, for the user with many
	}{
		"convs":    {convsSQL, func(u string) []any { return []any{u, "d", int32(1), "", 10} }, 500},
		"inbox":    {inboxSQL, func(u string) []any { return []any{u, "d", int32(0), "", 10} }, 600},
		"state":    {readStateSQL, func(u string) []any { return []any{[]string{u + "-1"}, []string{u}} }, 50},
		"read":     {readSQL, func(u string) []any { return []any{[]string{u + "-1"}, []string{u}, []int64{30}, []int32{0}} }, 80},
		"fetch":    {fetchSQL, func(u string) []any { return []any{u + "-1", u, 2500} }, 20},
		"before":   {beforeSQL, func(u string) []any { return []any{u + "-1", u, 2500, 11} }, 30},
		"receipts": {receiptsSQL, func(u string) []any { return []any{u + "-1", 2500, u, "none", 1} }, 50},
	} {
		few, _ := f.cost(t, c.sql, c.args("few")...)
		many, plan := f.cost(t, c.sql, c.args("many")...)
		if few == 0 || many > c.most || many > few*3/2+10 || strings.Contains(plan, "Seq Scan on") {
			t.Errorf("%s: %d pages for a user with few conversations, %d for one with many:\n%s", name, few, many, plan)
		}
		t.Logf("%s: %d and %d pages", name, few, many)
	}
}

// BenchmarkInbox reads a first page of ten for a user with ten conversations and for one with 2 000, in turn.
func BenchmarkInbox(b *testing.B) {
	ctx := context.Background()
	s := openBench(b)
	if _, err := s.pool.Exec(ctx, `INSERT INTO user_conversations SELECT 'many', conv_id FROM conversations WHERE kind = 'direct' LIMIT 2000`); err != nil {
		b.Fatal(err)
	}
	if _, err := s.pool.Exec(ctx, `INSERT INTO membership_periods SELECT conv_id, 'many', 3 FROM user_conversations WHERE user_id = 'many'`); err != nil {
		b.Fatal(err)
	}
	for _, user := range []string{"b-u00007", "many"} {
		b.Run(user, func(b *testing.B) {
			for b.Loop() {
				if list, _, err := s.Inbox(ctx, im.Principal{User: user}, "", 10); err != nil || len(list) != 10 {
					b.Fatal(len(list), err)
				}
			}
		})
	}
}

package checks

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"imbench/server/internal/evidence"
	"imbench/server/internal/im"
	"imbench/server/internal/postgres"
)

// Chapter 04, the persistence boundary: through the Store, without a gateway, but for the order of a sender's messages.
func TestCheck04(t *testing.T) {
	evidence.Run(t, evidence.Check{
		ID:       "04-normal-history",
		Expected: "head 2, first message seq 3, u-ana join@1 join@2 msg@3, u-ben join@2 msg@3",
		Document: "seq=3; join@1, join@2, msg@3; join@2, msg@3",
		Observe: func(t *testing.T) string {
			d := withDirect(t)
			return normalHistory(d, func(user string) []im.Event { return d.history(as(user), "u-ab", 0) })
		},
		Control: evidence.Control{Is: "a log read without the membership intervals", Observe: func(t *testing.T) string {
			d := withDirect(t)
			return normalHistory(d, func(string) []im.Event { return d.everything("u-ab") })
		}},
	})
	evidence.Run(t, evidence.Check{
		ID: "04-non-member-rejected", Expected: "NOT_MEMBER, head 2", Document: "NOT_MEMBER",
		Observe: func(t *testing.T) string { return outsider(withDirect(t)) },
		Control: evidence.Control{Is: "the batch does not ask whether the sender is a member", Observe: func(t *testing.T) string {
			d := withDirect(t)
			d.mutate("im_send_batch", "OFFSET 0) AS mem", "OFFSET 0) OR true AS mem")
			d.mutate("im_send_one", "tomb OR NOT mem", "tomb")
			return outsider(d)
		}},
	})
	evidence.Run(t, evidence.Check{
		ID: "04-unknown-conv-same-error", Expected: "NOT_MEMBER, the same error as for a conversation of others", Document: "NOT_MEMBER",
		Observe: func(t *testing.T) string { return unknownConv(withDirect(t)) },
		Control: evidence.Control{Is: "a conversation that does not exist is told apart", Observe: func(t *testing.T) string {
			d := withDirect(t)
			d.mutate("im_send_batch", "ELSE 'NOT_MEMBER' END", "ELSE 'EXPIRED' END")
			d.mutate("im_send_one", "'BUSY' ELSE 'NOT_MEMBER'", "'BUSY' ELSE 'EXPIRED'")
			return unknownConv(d)
		}},
	})
	evidence.Run(t, evidence.Check{
		ID: "04-idempotency-mismatch", Expected: "IDEMPOTENCY_MISMATCH, 1 message, head 3", Document: "IDEMPOTENCY_MISMATCH",
		Observe: func(t *testing.T) string { return otherBody(withDirect(t)) },
		Control: evidence.Control{Is: "the fingerprints of the requests are not compared", Observe: func(t *testing.T) string {
			d := withDirect(t)
			d.mutate("im_send_batch", "q.ehash IS DISTINCT FROM q.hash", "false")
			d.mutate("im_send_one", "had IS DISTINCT FROM p_hash", "false")
			return otherBody(d)
		}},
	})
	evidence.Run(t, evidence.Check{
		ID:       "04-concurrent-replay-one-row",
		Expected: "rows=1, distinct_mid=1, distinct_seq=1, fresh=1", Document: "rows=1, distinct_mid=1, distinct_seq=1, fresh=1",
		Observe: concurrentReplay,
		Control: evidence.Control{Is: "first look for the key, then insert, without lock and constraint", Observe: func(t *testing.T) string {
			rows := checkThenInsert(t, false)
			return fmt.Sprintf("rows=%d, distinct_mid=%d, distinct_seq=%d, fresh=%d", rows, rows, rows, rows)
		}},
	})
	evidence.Run(t, evidence.Check{
		ID: "04-control-check-then-insert-duplicates", Expected: "more than 1 row", Document: "27 rows, in another run 29",
		Observe: func(t *testing.T) string { return moreThanOne(checkThenInsert(t, false)) },
		Control: evidence.Control{Is: "the unique index on the request key stays", Observe: func(t *testing.T) string {
			return moreThanOne(checkThenInsert(t, true))
		}},
	})
	evidence.Run(t, evidence.Check{
		ID: "04-seq-gapless", Expected: "count=204, max=204, next_seq=205", Document: "204 / 204 / 205",
		Observe: func(t *testing.T) string { return burst(withDirect(t, someSends)) },
		Control: evidence.Control{Is: "numbers come from a database sequence", Observe: func(t *testing.T) string {
			d := withDirect(t, someSends)
			d.exec(`CREATE SEQUENCE naive START 3`)
			d.mutate("im_send_batch", "heads[q.at] - 1 + count(*) FILTER (WHERE q.fresh) OVER w AS nseq", "nextval('naive') AS nseq")
			d.mutate("im_send_one", "o_seq := head;", "head := nextval('naive'); o_seq := head;")
			return burst(d)
		}},
	})
	evidence.Run(t, evidence.Check{
		ID: "04-control-sequence-gaps", Expected: "7 rows, max 10", Document: "7 rows, max 10",
		Observe: func(t *testing.T) string {
			d := newDatabase(t)
			d.exec(`CREATE TABLE seq_events (seq bigserial PRIMARY KEY)`)
			tenOfWhichThreeRollBack(d, `INSERT INTO seq_events DEFAULT VALUES`)
			return d.text(`SELECT count(*) || ' rows, max ' || max(seq) FROM seq_events`)
		},
		Control: evidence.Control{Is: "the counter of the conversation's row instead", Observe: func(t *testing.T) string {
			d := newDatabase(t)
			d.provision(direct("u-ab", "u-ana", "u-ben"))
			tenOfWhichThreeRollBack(d, rawSend)
			return d.text(`SELECT count(*) || ' rows, max ' || max(msg_no) FROM events WHERE kind = 'msg'`)
		}},
	})
	evidence.Run(t, evidence.Check{
		ID: "04-history-uses-pk", Document: "Index Only Scan using events_pkey, at about 200 rows", Observe: historyPlan,
	})
	check04Faults(t)
}

// withDirect is the database of the chapter: the direct conversation u-ab of u-ana and u-ben, and u-cai, who is in none.
func withDirect(t *testing.T, change ...func(*postgres.Config)) *database {
	t.Helper()
	d := newDatabase(t, change...)
	d.provisionWith([]string{"u-cai"}, direct("u-ab", "u-ana", "u-ben"))
	return d
}

// manySends lets 32 sessions send at once, someSends 8.
func manySends(c *postgres.Config) { c.SendConns = 32 }
func someSends(c *postgres.Config) { c.SendConns = 8 }

func normalHistory(d *database, read func(user string) []im.Event) string {
	head := d.head("u-ab")
	first := d.send(as("u-ana"), "u-ab", "k1", "hello")
	if first.Err != nil {
		return first.Err.Error()
	}
	s := fmt.Sprintf("head %s, first message seq %d", head, first.Seq)
	for _, user := range []string{"u-ana", "u-ben"} {
		s += ", " + user
		for _, e := range read(user) {
			s += fmt.Sprintf(" %s@%d", e.Kind, e.Seq)
		}
	}
	return s
}

// everything is a conversation's log, whoever may see it.
func (d *database) everything(conv string) []im.Event {
	d.t.Helper()
	list, err := d.Events(d.t.Context(), []im.SeqRange{{Conv: conv, From: 1, To: 10_000}})
	if err != nil {
		d.t.Fatal(err)
	}
	return list
}

func outsider(d *database) string {
	return fmt.Sprintf("%s, head %s", outcome(d.send(as("u-cai"), "u-ab", "k-cai", "x")), d.head("u-ab"))
}

func unknownConv(d *database) string {
	others, none := d.send(as("u-cai"), "u-ab", "k1", "x"), d.send(as("u-cai"), "u-no-such", "k1", "x")
	if others != none {
		return fmt.Sprintf("%s for a conversation of others, %s for none", outcome(others), outcome(none))
	}
	return outcome(none) + ", the same error as for a conversation of others"
}

func otherBody(d *database) string {
	d.send(as("u-ana"), "u-ab", "k1", "hello")
	r := d.send(as("u-ana"), "u-ab", "k1", "something else")
	return fmt.Sprintf("%s, %s message, head %s", outcome(r), d.messages("u-ab"), d.head("u-ab"))
}

func concurrentReplay(t *testing.T) string {
	d := withDirect(t, manySends)
	results := make([]im.SendResult, 32)
	var wg sync.WaitGroup
	for i := range results {
		wg.Go(func() { results[i] = d.send(as("u-ana"), "u-ab", "k1", "hello") })
	}
	wg.Wait()
	mids, seqs, fresh := map[string]bool{}, map[int64]bool{}, 0
	for _, r := range results {
		if r.Err != nil {
			return r.Err.Error()
		}
		mids[r.MID], seqs[r.Seq] = true, true
		if !r.Dup {
			fresh++
		}
	}
	return fmt.Sprintf("rows=%s, distinct_mid=%d, distinct_seq=%d, fresh=%d", d.messages("u-ab"), len(mids), len(seqs), fresh)
}

// checkThenInsert is the naive way: 32 sessions look for one key before any of them inserts it; whoever does not find it
// appends the message, with a number that the conversation's row gives. It returns the rows with the key.
func checkThenInsert(t *testing.T, unique bool) int {
	d := withDirect(t, func(c *postgres.Config) { c.Conns = 32 })
	if !unique {
		d.exec(`DROP INDEX events_request`)
	}
	ctx := t.Context()
	var looked, done sync.WaitGroup
	looked.Add(32)
	for range 32 {
		done.Go(func() {
			_ = pgx.BeginFunc(ctx, d.Pool(), func(tx pgx.Tx) error { // with the index all but one fail
				var n int
				err := tx.QueryRow(ctx, `SELECT count(*) FROM events WHERE conv_id = 'u-ab' AND sender_user = 'u-ana' AND client_msg_id = 'k1'`).Scan(&n)
				looked.Done()
				looked.Wait()
				if err != nil || n > 0 {
					return err
				}
				_, err = tx.Exec(ctx, `WITH c AS (UPDATE conversations SET next_seq = next_seq + 1, msg_count = msg_count + 1
						WHERE conv_id = 'u-ab' RETURNING next_seq - 1 AS seq, msg_count)
					INSERT INTO events (conv_id, seq, kind, message_id, sender_user, client_msg_id, body, msg_no)
					SELECT 'u-ab', seq, 'msg', gen_random_uuid(), 'u-ana', 'k1', 'hello', msg_count FROM c`)
				return err
			})
		})
	}
	done.Wait()
	var rows int
	if err := d.Pool().QueryRow(ctx, `SELECT count(*) FROM events WHERE client_msg_id = 'k1'`).Scan(&rows); err != nil {
		t.Fatal(err)
	}
	return rows
}

func moreThanOne(rows int) string {
	if rows > 1 {
		return fmt.Sprintf("more than 1 row\n%d rows", rows)
	}
	return fmt.Sprintf("%d row", rows)
}

// rawSend is a message of u-ana to u-ab with a key that nobody else has.
const rawSend = `SELECT o_seq FROM im_send_batch(ARRAY['u-ab'], ARRAY['u-ana'], ARRAY['u-ana-d1'],
	ARRAY[gen_random_uuid()::text], ARRAY['\x00'::bytea], ARRAY[NULL::uuid], ARRAY['\x00'::bytea], ARRAY['x'], true)`

// inTransaction runs a statement in a transaction of its own and ends it either way.
func (d *database) inTransaction(sql string, commit bool) {
	d.t.Helper()
	ctx := d.t.Context()
	tx, err := d.Pool().Begin(ctx)
	if err == nil {
		_, err = tx.Exec(ctx, sql)
	}
	switch {
	case err != nil:
	case commit:
		err = tx.Commit(ctx)
	default:
		err = tx.Rollback(ctx)
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

func tenOfWhichThreeRollBack(d *database, sql string) {
	d.t.Helper()
	for i := range 10 {
		d.inTransaction(sql, i%4 != 0)
	}
}

// burst is two joins, two messages, three messages that are rolled back, and 200 at once.
func burst(d *database) string {
	d.fill(as("u-ana"), "u-ab", "first", 2)
	for range 3 {
		d.inTransaction(rawSend, false)
	}
	errs := make([]error, 200)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			sender := []string{"u-ana", "u-ben"}[i%2]
			errs[i] = d.send(as(sender), "u-ab", fmt.Sprint("k", i), "x").Err
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err.Error()
	}
	return d.text(`SELECT 'count=' || count(*) || ', max=' || max(e.seq) || ', next_seq=' || c.next_seq
		FROM events e JOIN conversations c USING (conv_id) WHERE c.conv_id = 'u-ab' GROUP BY c.next_seq`)
}

// historyPlan is the document's range query as the planner wants to run it, by its own choice (the Store's connections
// refuse sequential scans), in a small log and in one of 300 000 events.
func historyPlan(t *testing.T) string {
	d := withDirect(t)
	ctx := t.Context()
	conn, err := pgx.Connect(ctx, d.url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	d.fill(as("u-ana"), "u-ab", "k", 202)
	var plans []string
	for _, events := range []int{204, 300_000} {
		if events > 204 {
			d.exec(`INSERT INTO events (conv_id, seq, kind, message_id, sender_user, client_msg_id, body, msg_no)
				SELECT 'u-ab', n, 'msg', gen_random_uuid(), 'u-ana', 'f' || n, 'x', n - 2 FROM generate_series(205, $1::int) n`, events)
			d.exec(`UPDATE conversations SET next_seq = $1 + 1`, events)
		}
		d.exec(`ANALYZE events`)
		rows, err := conn.Query(ctx, `EXPLAIN SELECT seq FROM events WHERE conv_id = 'u-ab' AND seq > 100 ORDER BY seq LIMIT 50`)
		if err != nil {
			t.Fatal(err)
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil || len(lines) < 2 {
			t.Fatal(lines, err)
		}
		node, _, _ := strings.Cut(strings.TrimLeft(lines[1], " ->"), "  (")
		plans = append(plans, fmt.Sprintf("%s at %d events of one conversation", node, events))
	}
	return strings.Join(plans, ", ")
}

// head is the largest seq that the conversation has given out.
func (d *database) head(conv string) string {
	d.t.Helper()
	return d.text(`SELECT next_seq - 1 FROM conversations WHERE conv_id = $1`, conv)
}

// outcome is a result in a few words.
func outcome(r im.SendResult) string {
	if r.Err != nil {
		return code(r.Err)
	}
	return fmt.Sprintf("seq %d, dup %v", r.Seq, r.Dup)
}

// code is an error of the domain by its name on the wire.
func code(err error) string {
	for name, e := range map[string]error{"NOT_MEMBER": im.ErrNotMember, "IDEMPOTENCY_MISMATCH": im.ErrIdempotencyMismatch,
		"EXPIRED": im.ErrExpired, "BAD_REQUEST": im.ErrBadRequest, "CURSOR_AHEAD": im.ErrCursorAhead, "BUSY": im.ErrBusy,
		"EPOCH_CHANGED": im.ErrEpochChanged, "STALE_INSTALL": im.ErrStaleInstall, "UNAVAILABLE": im.ErrUnavailable} {
		if errors.Is(err, e) {
			return name
		}
	}
	return err.Error()
}

package postgres

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"text/tabwriter"
)

// seeded chooses as its source says: the same history each time.
type seeded struct{ *rand.Rand }

func (s seeded) Int(_ string, lo, hi int) int { return lo + s.IntN(hi-lo+1) }

// Mutations that histories of one step at a time must find.
var mutations = []mutation{
	{name: "a send leaves a gap in the log", function: "im_send_batch",
		change: []string{"heads[q.at] - 1 + count(*)", "heads[q.at] + count(*)"}},
	{name: "a batch is applied in another order", function: "im_send_batch",
		change: []string{"WINDOW w AS (PARTITION BY q.conv ORDER BY q.ord ROWS", "WINDOW w AS (PARTITION BY q.conv ORDER BY q.ord DESC ROWS"}},
	{name: "who is no member may send", function: "im_send_batch",
		change: []string{"AND NOT a.tomb AND a.mem AS", "AND NOT a.tomb AS",
			"WHEN NOT q.mem THEN 'NOT_MEMBER'", ""}},
	{name: "a key may be used for another body", function: "im_send_batch",
		change: []string{"CASE WHEN q.ehash IS DISTINCT FROM q.hash THEN 'IDEMPOTENCY_MISMATCH' END", "NULL"}},
	{name: "tombstones are ignored", function: "im_send_batch",
		change: []string{"AND NOT a.tomb", "", "WHEN q.tomb THEN 'EXPIRED'", ""}},
	{name: "a resend is not told that it was done before", function: "im_send_batch",
		change: []string{"q.eseq IS NOT NULL, epochs", "false, epochs"}},
	{name: "messages are not counted", function: "im_send_batch",
		change: []string{"SET next_seq = h.s + 1, msg_count = h.m", "SET next_seq = h.s + 1"}},
	{name: "a single send leaves a gap in the log", function: "im_send_one", change: []string{"next_seq, c.msg_count + 1", "next_seq + 1, c.msg_count + 1"}},
	{name: "who is no member may send one message", function: "im_send_one", change: []string{"tomb OR NOT mem", "tomb"}},
	{name: "a key may be used for another single body", function: "im_send_one", change: []string{"had IS DISTINCT FROM p_hash", "false"}},
	{name: "single messages are not counted", function: "im_send_one", change: []string{", msg_count = messages WHERE", " WHERE"}},
	{name: "a join counts as a message", function: "im_membership",
		change: []string{"p_user, c.msg_count, clock_timestamp()", "p_user, c.msg_count + 1, clock_timestamp()"}},
	{name: "an interval ends before the leave", function: "im_membership",
		change: []string{"SET to_seq = o_seq WHERE", "SET to_seq = o_seq - 1 WHERE"}},
	{name: "a group takes one more than its limit", function: "im_membership",
		change: []string{"p_join AND p_limit <=", "p_join AND p_limit <"}},
	{name: "a join is not in the inbox", function: "im_membership",
		change: []string{"INSERT INTO user_conversations (user_id, conv_id) VALUES (p_user, p_conv) ON CONFLICT DO NOTHING;", ""}},
	{name: "the gap between two intervals shows",
		change: []string{"AND y.seq <= COALESCE(p.to_seq, c.next_seq - 1)\n        ORDER BY y.seq LIMIT", "ORDER BY y.seq LIMIT"}},
	{name: "newcomers see what was before", change: []string{"y.seq > GREATEST($3::bigint, c.min_seq - 1, p.from_seq - 1)",
		"y.seq > GREATEST($3::bigint, c.min_seq - 1)"}},
	{name: "a batch shows newcomers what was before", change: []string{"p.to_seq IS NULL AND p.from_seq - 1 <= k.after", "p.to_seq IS NULL"}},
	{name: "a batch shows more to who has left", change: []string{"p.to_seq IS NULL AND p.from_seq - 1 <= k.after", "p.from_seq - 1 <= k.after"}},
	{name: "scrolling back shows what was before", change: []string{"y.seq >= GREATEST(c.min_seq, p.from_seq)", "y.seq >= c.min_seq"}},
	{name: "an acknowledgement may lie past the head", change: []string{"WHERE r.seq <= CASE", "WHERE 0 <= CASE"}},
	{name: "a cursor goes back", change: []string{"OR r.seq > d.delivered_seq", "OR true"}},
	{name: "a cursor that was told goes back", change: []string{"AND d.epoch = r.ep AND r.seq > d.delivered_seq", "AND d.epoch = r.ep"}},
	{name: "a told cursor of another epoch is moved", change: []string{"AND d.install_epoch = r.inst AND d.epoch = r.ep", "AND d.install_epoch = r.inst"}},
	{name: "a new installation keeps the old one's cursor", change: []string{"r.inst > d.install_epoch OR r.epoch > d.epoch OR",
		"r.epoch > d.epoch OR"}},
	{name: "an old installation may acknowledge", change: []string{"AND v.user_id = r.usr AND v.install_epoch = r.inst", "AND v.user_id = r.usr"}},
	{name: "an old epoch may acknowledge", change: []string{"AND (r.ep = 0 OR r.ep = c.epoch)\n    LEFT JOIN membership_periods o", "\n    LEFT JOIN membership_periods o"}},
	{name: "a position may lie past what the user may see", change: []string{"LEAST(q.seq, s.head) AS seq", "q.seq AS seq"}},
	{name: "an old epoch may report", change: []string{"JOIN conversations c ON c.conv_id = r.conv AND (r.ep = 0 OR r.ep = c.epoch)\n          GROUP",
		"JOIN conversations c ON c.conv_id = r.conv\n          GROUP"}},
	{name: "recalled messages stay unread", function: "im_reader", change: []string{"- a.msg_no - w.recalled", "- a.msg_no"}},
	{name: "the gap between two intervals is unread", function: "im_reader",
		change: []string{"GREATEST(r.seq, d.from_seq - 1, c.min_seq - 1)", "GREATEST(r.seq, c.min_seq - 1)"}},
	{name: "own messages are unread", function: "im_reader",
		change: []string{"WHERE x.sender_user = p_user AND x.kind = 'msg'", "WHERE false"}},
	{name: "anyone may recall", function: "im_recall", change: []string{"WHEN t.sender_user <> p_user THEN 'NOT_SENDER'", ""}},
	{name: "a recall has no time limit", function: "im_recall",
		change: []string{"IF o_at > t.created_at + c.recall_window_ms * interval '1 millisecond' THEN", "IF false THEN"}},
	{name: "a recalled body stays", function: "im_recall",
		change: []string{"UPDATE events SET body = NULL, request_hash = hash WHERE conv_id = p_conv AND seq = p_target;", ""}},
	{name: "retention leaves the first event", function: "im_retain", change: []string{"seq >= c.min_seq AND seq < cut", "seq > c.min_seq AND seq < cut"}},
	{name: "retention does not raise min_seq", function: "im_retain", change: []string{"SET min_seq = cut,", "SET min_seq = c.min_seq,"}},
	{name: "retention leaves no tombstones", function: "im_retain", change: []string{"FROM gone WHERE client_msg_id IS NOT NULL", "FROM gone WHERE false"}},
	{name: "a release takes a newer route", change: []string{"ON d.device_id = r.dev AND d.generation = r.gen", "ON d.device_id = r.dev"}},
}

// Mutations that only calls at the same time can show.
var races = []mutation{
	{name: "a send takes no lock", function: "im_send_batch",
		change: []string{"ORDER BY c.conv_id FOR NO KEY UPDATE) l", "ORDER BY c.conv_id) l",
			"ORDER BY c.conv_id FOR NO KEY UPDATE SKIP LOCKED) l", "ORDER BY c.conv_id) l"}},
	{name: "a single send takes no lock", function: "im_send_one",
		change: []string{"FOR NO KEY UPDATE SKIP LOCKED;", ";", "FOR NO KEY UPDATE;", ";"}},
	{name: "the lock is taken in the statement that checks", function: "im_send_batch",
		change: []string{"ORDER BY c.conv_id FOR NO KEY UPDATE) l", "ORDER BY c.conv_id) l",
			"ORDER BY c.conv_id FOR NO KEY UPDATE SKIP LOCKED) l", "ORDER BY c.conv_id) l",
			"array_position(held, u.conv) AS at", "(SELECT array_position(held, x.conv_id) FROM conversations x WHERE x.conv_id = u.conv FOR NO KEY UPDATE) AS at"}},
	{name: "the counters are those from before the lock", function: "im_send_batch",
		change: []string{"SELECT c.conv_id, c.next_seq, c.msg_count", "SELECT c.conv_id, (SELECT x.next_seq FROM conversations x WHERE x.conv_id = c.conv_id) AS next_seq, c.msg_count"}},
	// The sleep only makes it likely that two of them meet.
	{name: "a join or leave takes no lock", function: "im_membership",
		change: []string{"WHERE conv_id = p_conv FOR NO KEY UPDATE", "WHERE conv_id = p_conv",
			"o_seq := c.next_seq;", "PERFORM pg_sleep(0.002); o_seq := c.next_seq;"}},
	{name: "a recall takes no lock", function: "im_recall",
		change: []string{"WHERE conv_id = p_conv FOR NO KEY UPDATE", "WHERE conv_id = p_conv",
			"o_seq := c.next_seq;", "PERFORM pg_sleep(0.002); o_seq := c.next_seq;"}},
	{name: "retention takes no lock", function: "im_retain",
		change: []string{"LIMIT p_convs FOR NO KEY UPDATE SKIP LOCKED", "LIMIT p_convs",
			"age := c.retention_ms", "PERFORM pg_sleep(0.002); age := c.retention_ms"}},
	{name: "an epoch follows the one from before the lock",
		change: []string{"SET epoch = epoch + 1 WHERE conv_id = $1",
			"SET epoch = 1 + (SELECT x.epoch FROM conversations x, pg_sleep(0.002) WHERE x.conv_id = $1) WHERE conv_id = $1"}},
	{name: "a report that a new epoch refuses has moved the position",
		change: []string{"true, req.epoch, req.before\nFROM put", "true, 0, req.before\nFROM pg_sleep(0.04), put"}},
}

// TestMutationsAreCaught breaks the store on purpose, in one way at a time, and wants the suite to find each of them. The
// histories of one step at a time are the same each time.
func TestMutationsAreCaught(t *testing.T) {
	t.Run("step by step", func(t *testing.T) {
		t.Parallel()
		catch(t, openRig(t), mutations, "steps", 4000, firstDifference)
	})
	t.Run("at once", func(t *testing.T) {
		t.Parallel()
		catch(t, openConcurrent(t), races, "histories", 60, func(r *rig, most int) (n int, err error) {
			for n < most && err == nil {
				n++
				err = concurrently(context.Background(), r, rand.New(rand.NewPCG(1, uint64(n))), map[string]int{})
			}
			return n, err
		})
	})
}

// README says in how many ways.
func TestReadmeCountsTheMutations(t *testing.T) {
	text, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("broken in %d ways", len(mutations)+len(races)); !strings.Contains(string(text), want) {
		t.Errorf("README.md does not say %q", want)
	}
}

// catch applies one mutation after the other and prints how much search found what; most bounds it, and what is not found
// by then is not caught. Afterwards it finds nothing in the store as it is.
func catch(t *testing.T, r *rig, list []mutation, unit string, most int, search func(r *rig, most int) (int, error)) {
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 8, 2, ' ', 0)
	for _, m := range list {
		t.Run(m.name, func(t *testing.T) {
			hit, undo := m.apply(t, r.Store)
			n, err := search(r, most)
			undo()
			switch {
			case !hit():
				t.Fatal("what this mutation replaces is not there: it has to be brought up to date")
			case err == nil:
				t.Fatalf("not caught in %d %s", n, unit)
			}
			what := strings.Join(strings.Fields(err.Error()), " ")
			fmt.Fprintf(w, "%s\t%d %s\t%.80s\n", m.name, n, unit, what)
		})
	}
	w.Flush()
	t.Logf("%d mutations:\n%s", len(list), table.String())
	if n, err := search(r, min(most/5, 200)); err != nil {
		t.Errorf("after %d %s of the store as it is: %v", n, unit, err)
	}
}

// firstDifference runs histories until the store and its model differ.
func firstDifference(r *rig, most int) (steps int, err error) {
	c := seeded{rand.New(rand.NewPCG(1, 2))}
	for steps < most {
		w, err := newWorld(context.Background(), r, c, map[string]int{})
		if err != nil {
			return steps, err
		}
		for range 40 {
			steps++
			if err := w.step(); err != nil {
				return steps, err
			}
		}
	}
	return steps, nil
}

package checks

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"imbench/server/internal/evidence"
	"imbench/server/internal/im"
	"imbench/server/internal/postgres"
	"imbench/server/wire"
)

// check04Faults are the checks of the chapter that its document left open: what others do meanwhile.
func check04Faults(t *testing.T) {
	evidence.Run(t, evidence.Check{
		ID: "04-stuck-transaction-frees", Document: "not run",
		Expected: "the open transaction is ended, the send that waited for it gets seq 3",
		Observe:  func(t *testing.T) string { return stuckTransaction(t, true, 30*time.Second) },
		Control: evidence.Control{Is: "no idle_in_transaction_session_timeout", Observe: func(t *testing.T) string {
			return stuckTransaction(t, false, time.Second)
		}},
	})
	evidence.Run(t, evidence.Check{
		ID:       "04-batch-isolates",
		Expected: "95 of 95 good ones stored in order, NOT_MEMBER BAD_REQUEST BAD_REQUEST NOT_MEMBER IDEMPOTENCY_MISMATCH, head 98",
		Observe:  func(t *testing.T) string { return batchWithBadOnes(withDirect(t)) },
		Control: evidence.Control{Is: "a refusal is an error of the whole statement", Observe: func(t *testing.T) string {
			d := withDirect(t)
			d.mutate("im_send_batch", "WHEN NOT q.mem THEN 'NOT_MEMBER'", "WHEN NOT q.mem THEN (1 / (length(q.usr) * 0))::text")
			return batchWithBadOnes(d)
		}},
	})
	evidence.Run(t, evidence.Check{
		ID:       "04-locked-conversation-isolated",
		Expected: "the locked one BUSY, the other seq 3, dup false; once it is free the first seq 3, dup false",
		Observe:  func(t *testing.T) string { return besideLocked(t, false) },
		Control: evidence.Control{Is: "the batch waits for every lock (no SKIP LOCKED)", Observe: func(t *testing.T) string {
			return besideLocked(t, true)
		}},
	})
	evidence.Run(t, evidence.Check{
		ID:       "04-sender-order-under-contention",
		Expected: "2 gateways, 100 messages of each of 2 senders: all in their sender's order, count=max=202",
		Observe:  orderThroughGateways,
		Control: evidence.Control{Is: "every message in a transaction of its own, on any of 8 connections", Observe: func(t *testing.T) string {
			d := withDirect(t, someSends)
			var wg sync.WaitGroup
			for i := range 100 {
				for _, user := range []string{"u-ana", "u-ben"} {
					wg.Go(func() { d.send(as(user), "u-ab", fmt.Sprint("k", i), fmt.Sprint(i)) })
				}
			}
			wg.Wait()
			return ordered(d)
		}},
	})
}

// stuckTransaction has a session take the conversation's lock and do nothing more, while another sends.
func stuckTransaction(t *testing.T, ends bool, lockTimeout time.Duration) string {
	d := withDirect(t, func(c *postgres.Config) { c.LockTimeout = lockTimeout })
	hung := d.open(func(c *postgres.Config) { c.IdleTimeout = 300 * time.Millisecond })
	defer hung.Close()
	ctx := context.Background()
	tx, err := hung.Pool().Begin(ctx)
	if err == nil && !ends {
		_, err = tx.Exec(ctx, `SET LOCAL idle_in_transaction_session_timeout = 0`)
	}
	if err == nil {
		_, err = tx.Exec(ctx, `SELECT 1 FROM conversations FOR UPDATE`)
	}
	if err != nil {
		t.Fatal(err)
	}
	r := d.send(as("u-ana"), "u-ab", "k1", "x")
	stuck := "the open transaction is ended"
	if err := tx.Commit(ctx); err == nil {
		stuck = "the transaction is still open"
	}
	if r.Err != nil {
		return stuck + ", the send that waited for it gets " + code(r.Err)
	}
	return fmt.Sprintf("%s, the send that waited for it gets seq %d", stuck, r.Seq)
}

// batchWithBadOnes is 100 requests in one call, five of which are refused for five reasons.
func batchWithBadOnes(d *database) string {
	d.send(as("u-ana"), "u-ab", "used", "hello")
	bad := []im.SendReq{msg(as("u-cai"), "u-ab", "b1", "not a member"), msg(as("u-ana"), "u-ab", "b2", "NUL \x00"),
		msg(as("u-ana"), "u-ab", "b3", "not UTF-8 \xff"), msg(as("u-ana"), "u-none", "b4", "x"), msg(as("u-ana"), "u-ab", "used", "other")}
	var reqs []im.SendReq
	for i := range 95 {
		if i%20 == 10 {
			reqs = append(reqs, bad[i/20])
		}
		reqs = append(reqs, msg(as("u-ana"), "u-ab", fmt.Sprint("k", i), "x"))
	}
	results, err := d.SendBatch(d.t.Context(), reqs, false)
	if err != nil {
		return fmt.Sprintf("%v, head %s", code(err), d.head("u-ab"))
	}
	stored, next := 0, int64(4)
	var refused []string
	for _, r := range results {
		switch {
		case r.Err != nil:
			refused = append(refused, code(r.Err))
		case r.Seq == next:
			stored++
			next++
		}
	}
	return fmt.Sprintf("%d of 95 good ones stored in order, %s, head %s", stored, strings.Join(refused, " "), d.head("u-ab"))
}

// besideLocked sends to two conversations in one batch while a session holds the row of the first.
func besideLocked(t *testing.T, waits bool) string {
	d := newDatabase(t, func(c *postgres.Config) { c.LockTimeout = 500 * time.Millisecond })
	d.provision(direct("u-ab", "u-ana", "u-ben"), direct("u-ac", "u-ana", "u-cai"))
	if waits {
		d.mutate("im_send_batch", " SKIP LOCKED", "")
	}
	ctx := t.Context()
	tx, err := d.Pool().Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(ctx, `SELECT 1 FROM conversations WHERE conv_id = 'u-ab' FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	reqs := []im.SendReq{msg(as("u-ana"), "u-ab", "k1", "x"), msg(as("u-ana"), "u-ac", "k1", "x")}
	results, err := d.SendBatch(ctx, reqs, false)
	if err != nil {
		return "both " + code(err)
	}
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("the locked one %s, the other %s; once it is free the first %s",
		outcome(results[0]), outcome(results[1]), outcome(d.send(as("u-ana"), "u-ab", "k1", "x")))
}

// orderThroughGateways has each sender at a gateway of its own, both send to the same conversation as fast as they may.
func orderThroughGateways(t *testing.T) string {
	d := withDirect(t)
	var wg sync.WaitGroup
	failed := make([]string, 2)
	for i, user := range []string{"u-ana", "u-ben"} {
		c := d.gateway(gatewayOptions{args: []string{"-request-rate", "0"}}).connect(as(user))
		wg.Go(func() { failed[i] = pipeline(c, "u-ab", "", 100) })
	}
	wg.Wait()
	return failed[0] + failed[1] + ordered(d)
}

// pipeline sends messages prefix0, prefix1, … with 16 under way at a time, and says which got no `sent`.
func pipeline(c *client, conv, prefix string, n int) (failed string) {
	const inFlight = 16
	replies := make([]<-chan wire.Frame, n)
	receive := func(i int) {
		select {
		case f := <-replies[i]:
			if f.T != wire.TSent {
				failed += fmt.Sprintf("%s: %s; ", c.who.User, f.Code)
			}
		case <-time.After(patience):
			failed += fmt.Sprintf("%s: no reply; ", c.who.User)
		}
	}
	for i := range replies {
		if i >= inFlight {
			receive(i - inFlight)
		}
		replies[i] = c.start(wire.Request{T: wire.TSend, Conv: conv, CMID: fmt.Sprint("k", i), Body: fmt.Sprint(prefix, i)})
	}
	for i := max(0, n-inFlight); i < n; i++ {
		receive(i)
	}
	return failed
}

// ordered says whether the bodies 0 to 99 of each sender stand in this order in the log.
func ordered(d *database) string {
	next, wrong := map[string]int{}, 0
	for _, e := range d.everything("u-ab") {
		if e.Kind != im.KindMsg {
			continue
		}
		if e.Body != fmt.Sprint(next[e.Sender]) {
			wrong++
		}
		next[e.Sender]++
	}
	log := d.text(`SELECT count(*) || '=' || max(seq) FROM events WHERE conv_id = 'u-ab'`)
	how := "all in their sender's order"
	if wrong > 0 {
		how = "not in their sender's order"
	}
	if log == "202=202" {
		log = "count=max=202"
	}
	return fmt.Sprintf("2 gateways, %d messages of each of %d senders: %s, %s\n%d out of place", next["u-ana"], len(next), how, log, wrong)
}

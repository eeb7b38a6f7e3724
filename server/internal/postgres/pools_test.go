package postgres

import (
	"context"
	"testing"
	"time"

	"imbench/server/internal/im"
)

// What devices ask for may take every connection there is for it: events are still sent, told of and acknowledged, and the
// gateway keeps its lease.
func TestRequestsHoldNothingUp(t *testing.T) {
	t.Parallel()
	f := withChat(t, func(c *Config) { c.Conns = 2 })
	for range 2 {
		conn, err := f.Pool().Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(conn.Release)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // ends a test that has failed
	defer cancel()
	sent := f.sendOne(t, "k1")
	if list, err := f.Events(ctx, []im.SeqRange{{Conv: "c", From: sent.Seq, To: sent.Seq}}); err != nil || len(list) != 1 {
		t.Errorf("fan-out reads %v, %v", list, err)
	}
	if list, err := f.ConvInfos(ctx, []im.SeqRange{{Conv: "c", From: sent.Seq, To: sent.Seq}}); err != nil || len(list) != 1 {
		t.Errorf("members: %v, %v", list, err)
	}
	if res, err := f.AckBatch(ctx, []im.AckReq{{From: im.Principal{User: "ben", Device: "ben-d", Install: 1}, Conv: "c", Seq: sent.Seq}}); err != nil || res[0].Err != nil {
		t.Errorf("acknowledgement: %v, %v", res, err)
	}
	if _, err := f.BeginLease(ctx, "g", "", time.Second); err != nil {
		t.Errorf("lease: %v", err)
	}
	if err := f.Ping(ctx); err != nil { // by which the gateway says whether it is ready
		t.Errorf("the database is held for away: %v", err)
	}
}

package oracle_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"imbench/server/internal/im"
	"imbench/server/internal/im/oracle"
	"imbench/server/internal/im/storetest"
)

var (
	_ im.Store  = (*oracle.Store)(nil)
	_ im.Reads  = (*oracle.Store)(nil)
	_ im.Upkeep = (*oracle.Store)(nil)
)

// fixture is the model as the conformance suite wants it.
type fixture struct{ *oracle.Store }

func (f fixture) Provision(_ context.Context, users []storetest.User, convs []storetest.Conv) error {
	for _, u := range users {
		f.AddUser(u.ID, u.Devices...)
	}
	for _, c := range convs {
		f.AddConv(c.ID, c.Kind, c.Mode, c.Members...)
	}
	return nil
}

// TestConformance: what judges the store judges its model first.
func TestConformance(t *testing.T) {
	storetest.Run(t, func(*testing.T) storetest.Fixture { return fixture{oracle.New(time.Now)} })
}

// TestCloneIsApart: steps tried on a clone leave the original as it was.
func TestCloneIsApart(t *testing.T) {
	ctx, now := t.Context(), time.Unix(1e9, 0)
	s := oracle.New(func() time.Time { return now })
	s.AddUser("ana", "a1")
	s.AddUser("ben", "b1")
	s.AddConv("c", "group", im.Push, "ana")
	s.SetTimes("c", time.Hour, 2*time.Hour)
	ana := im.Principal{User: "ana", Device: "a1", Install: 1}
	send := im.SendReq{From: ana, Conv: "c", CMID: "k", Body: "x"}
	if res, err := s.SendBatch(ctx, []im.SendReq{send}, true); err != nil || res[0].Seq != 2 {
		t.Fatalf("%+v, %v", res, err)
	}
	before, c := s.Dump(), s.Clone()
	if !slices.Equal(before, c.Dump()) {
		t.Fatalf("the clone differs:\n%v\n%v", before, c.Dump())
	}
	if _, err := c.Join(ctx, ana, "c", "ben"); err != nil {
		t.Error(err)
	}
	if r := c.Recall(ctx, im.RecallReq{From: ana, Conv: "c", Seq: 2, CMID: "r"}); r.Err != nil {
		t.Error(r.Err)
	}
	if _, err := c.AckBatch(ctx, []im.AckReq{{From: ana, Conv: "c", Seq: 4}}); err != nil {
		t.Error(err)
	}
	if _, err := c.ClaimRoutes(ctx, []im.RouteClaim{{User: "ana", Device: "a1", Install: 2, Gateway: "g"}}); err != nil {
		t.Error(err)
	}
	if slices.Equal(c.Dump(), before) || !slices.Equal(s.Dump(), before) {
		t.Errorf("the original is now\n%v, and was\n%v", s.Dump(), before)
	}
}

// TestFollowRefuses: a step of another store's retention that no store may do is refused.
func TestFollowRefuses(t *testing.T) {
	keep, ctx := time.Hour, t.Context()
	for name, c := range map[string]struct {
		rep   im.RetentionReport
		min   int64
		tombs []string
		limit int
		ok    bool
	}{
		"what was due":              {im.RetentionReport{Conversations: 1, Events: 3}, 4, []string{"c ana k1", "c ana k2"}, 10, true},
		"a bounded part of it":      {im.RetentionReport{Conversations: 1, Events: 2, More: true}, 3, []string{"c ana k1"}, 2, true},
		"nothing, and says so":      {im.RetentionReport{More: true}, 1, nil, 10, true},
		"what is too young":         {im.RetentionReport{Conversations: 1, Events: 4}, 5, []string{"c ana k1", "c ana k2", "c ana k3"}, 10, false},
		"a tombstone too few":       {im.RetentionReport{Conversations: 1, Events: 3}, 4, []string{"c ana k1"}, 10, false},
		"more than the limit":       {im.RetentionReport{Conversations: 1, Events: 3}, 4, []string{"c ana k1", "c ana k2"}, 2, false},
		"a report of less":          {im.RetentionReport{Conversations: 1, Events: 2}, 4, []string{"c ana k1", "c ana k2"}, 10, false},
		"nothing, and says no more": {im.RetentionReport{}, 1, nil, 10, false},
		"back to before":            {im.RetentionReport{More: true}, 0, nil, 10, false},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Unix(1e9, 0)
			s := oracle.New(func() time.Time { return now })
			s.AddUser("ana", "a1")
			s.AddConv("c", "group", im.Push, "ana")
			s.SetTimes("c", time.Hour, time.Hour)
			send := func(cmid string) {
				t.Helper()
				req := im.SendReq{From: im.Principal{User: "ana", Device: "a1", Install: 1}, Conv: "c", CMID: cmid, Body: "x"}
				if res, err := s.SendBatch(ctx, []im.SendReq{req}, true); err != nil || res[0].Err != nil {
					t.Fatalf("%+v, %v", res, err)
				}
			}
			send("k1")
			send("k2")
			now = now.Add(2 * time.Hour)
			send("k3")
			err := s.Follow(c.rep, c.limit, keep, map[string]int64{"c": c.min}, c.tombs)
			if (err == nil) != c.ok {
				t.Errorf("%v", err)
			}
		})
	}
}

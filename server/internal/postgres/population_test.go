package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"testing"
	"time"

	"imbench/server/internal/im"
)

// items yields a population's items, then err.
func items(err error, list ...any) func() (PopulationItem, error) {
	return func() (PopulationItem, error) {
		if len(list) == 0 {
			return PopulationItem{}, err
		}
		x := list[0]
		list = list[1:]
		switch x := x.(type) {
		case PopulationUser:
			return PopulationItem{User: &x}, nil
		case PopulationConv:
			return PopulationItem{Conv: &x}, nil
		}
		return PopulationItem{}, x.(error)
	}
}

func newConv(id, kind, mode string, members []string) PopulationConv {
	return PopulationConv{ID: id, Kind: kind, Mode: mode, Members: members}
}

// small is a population of three users, five devices, a group and two direct conversations.
func small(ns string) PopulationSpec {
	id := func(s string) string { return ns + "-" + s }
	return PopulationSpec{Namespace: ns, Owner: "test", Lease: time.Hour, Next: items(io.EOF,
		PopulationUser{id("u1"), []string{id("d1"), id("d2")}}, PopulationUser{id("u2"), []string{id("d3")}},
		PopulationUser{id("u3"), []string{id("d4"), id("d5")}},
		newConv(id("g"), "group", "pull", []string{id("u2"), id("u1"), id("u3")}),
		newConv(id("p1"), "direct", "push", []string{id("u1"), id("u2")}),
		newConv(id("p2"), "direct", "push", []string{id("u3"), id("u1")}))}
}

var smallCounts = PopulationCounts{Users: 3, Devices: 5, Conversations: 3, Members: 7, Events: 7, Cursors: 5 + 3 + 4}

// rowCounts counts all tables' rows.
func rowCounts(t *testing.T, s *Store) map[string]int {
	t.Helper()
	n := map[string]int{}
	for _, table := range []string{"populations", "users", "devices", "conversations", "membership_periods", "events", "idem_tombstones",
		"device_cursors", "read_positions", "user_conversations", "direct_pairs", "routes"} {
		var c int
		if err := s.pool.QueryRow(t.Context(), "SELECT count(*) FROM "+table).Scan(&c); err != nil {
			t.Fatal(err)
		}
		n[table] = c
	}
	return n
}

func TestPopulationIsCreatedWhole(t *testing.T) {
	t.Parallel()
	s, ctx := openTest(t), t.Context()
	n, err := s.CreatePopulation(ctx, small("ns"))
	if err != nil || n != smallCounts {
		t.Fatalf("%+v, %v; want %+v", n, err, smallCounts)
	}
	p := im.Principal{User: "ns-u1", Device: "ns-d2", Install: 1}
	list, more, err := s.Convs(ctx, p, "", 0)
	if err != nil || more || len(list) != 3 {
		t.Fatalf("%+v, %v, %v", list, more, err)
	}
	if want := (im.ConvState{Conv: "ns-g", Kind: "group", Mode: im.Pull, Head: 3, MinSeq: 1, Epoch: 1, Delivered: 3}); list[0] != want {
		t.Errorf("%+v, want %+v", list[0], want)
	}
	page, err := s.Sync(ctx, im.SyncReq{From: p, Conv: "ns-g"})
	if err != nil || len(page.Events) != 2 || page.Events[0].Seq != 2 || page.Events[0].User != "ns-u1" || page.Events[0].Kind != im.KindJoin {
		t.Errorf("the second to join sees %+v, %v", page, err)
	}
	res, err := s.SendBatch(ctx, []im.SendReq{{From: p, Conv: "ns-g", CMID: "k", Body: "x"}}, false)
	if err != nil || res[0].Err != nil || res[0].Seq != 4 || res[0].MsgNo != 1 {
		t.Errorf("%+v, %v", res, err)
	}
	pops, err := s.ListPopulations(ctx)
	if err != nil || len(pops) != 1 || pops[0].Namespace != "ns" || pops[0].Owner != "test" || pops[0].Expired || pops[0].LeaseUntil.Sub(pops[0].CreatedAt).Round(time.Minute) != time.Hour {
		t.Errorf("%+v, %v", pops, err)
	}
	owners, err := s.NamespacedDevices(ctx, []string{"ns-d3", "ns-d5", "none"})
	if want := map[string]string{"ns-d3": "ns-u2", "ns-d5": "ns-u3"}; err != nil || !reflect.DeepEqual(owners, want) {
		t.Errorf("%v, %v, want %v", owners, err, want)
	}
}

func TestPopulationOfManyChunks(t *testing.T) {
	t.Parallel()
	s := openTest(t)
	var list []any
	const users, convs = 3000, 9000
	for i := range users {
		list = append(list, PopulationUser{fmt.Sprintf("big-u%d", i), []string{fmt.Sprintf("big-u%d-d", i)}})
	}
	for i := range convs {
		list = append(list, newConv(fmt.Sprintf("big-c%d", i), "group", "push", []string{fmt.Sprintf("big-u%d", i%users), fmt.Sprintf("big-u%d", (i+7)%users)}))
	}
	n, err := s.CreatePopulation(t.Context(), PopulationSpec{Namespace: "big", Next: items(io.EOF, list...)})
	want := PopulationCounts{Users: users, Devices: users, Conversations: convs, Members: 2 * convs, Events: 2 * convs, Cursors: 2 * convs}
	if err != nil || n != want {
		t.Fatalf("%+v, %v, want %+v", n, err, want)
	}
	if n, err = s.RemovePopulation(t.Context(), "big"); err != nil || n != want {
		t.Fatalf("removed %+v, %v, want %+v", n, err, want)
	}
	for table, n := range rowCounts(t, s) {
		if n != 0 {
			t.Errorf("%d rows of %s are left", n, table)
		}
	}
}

func TestPopulationErrors(t *testing.T) {
	t.Parallel()
	s, ctx := openTest(t), t.Context()
	if _, err := s.CreatePopulation(ctx, small("ns")); err != nil {
		t.Fatal(err)
	}
	before := rowCounts(t, s)
	user := func(id string, devices ...string) PopulationUser { return PopulationUser{id, devices} }
	broken := errors.New("line 7 is no JSON")
	for name, c := range map[string]struct {
		ns   string
		next func() (PopulationItem, error)
		want error
		id   string // of a *PopulationError
	}{
		"same namespace":       {"ns", items(io.EOF), ErrPopulationExists, ""},
		"id of another":        {"n", items(io.EOF, user("n-u"), user("n-u")), ErrPopulationExists, ""},
		"device twice":         {"n", items(io.EOF, user("n-u", "n-d"), user("n-v", "n-d")), ErrPopulationExists, ""},
		"bad namespace":        {"a b", items(io.EOF), im.ErrBadRequest, ""},
		"no namespace":         {"", items(io.EOF), im.ErrBadRequest, ""},
		"foreign user":         {"n", items(io.EOF, user("ns-u")), im.ErrBadRequest, "ns-u"},
		"foreign device":       {"n", items(io.EOF, user("n-u", "d")), im.ErrBadRequest, "d"},
		"bad character":        {"n", items(io.EOF, user("n-u\x00")), im.ErrBadRequest, "n-u\x00"},
		"foreign conv":         {"n", items(io.EOF, user("n-u"), newConv("c", "group", "push", []string{"n-u"})), im.ErrBadRequest, "c"},
		"unknown kind":         {"n", items(io.EOF, user("n-u"), newConv("n-c", "room", "push", []string{"n-u"})), im.ErrBadRequest, "n-c"},
		"unknown mode":         {"n", items(io.EOF, user("n-u"), newConv("n-c", "group", "pusk", []string{"n-u"})), im.ErrBadRequest, "n-c"},
		"empty group":          {"n", items(io.EOF, user("n-u"), newConv("n-c", "group", "push", nil)), im.ErrBadRequest, "n-c"},
		"direct of one":        {"n", items(io.EOF, user("n-u"), newConv("n-c", "direct", "push", []string{"n-u"})), im.ErrBadRequest, "n-c"},
		"unknown member":       {"n", items(io.EOF, user("n-u"), newConv("n-c", "group", "push", []string{"n-u", "n-v"})), im.ErrBadRequest, "n-c"},
		"member twice":         {"n", items(io.EOF, user("n-u"), newConv("n-c", "group", "push", []string{"n-u", "n-u"})), im.ErrBadRequest, ""},
		"pair twice":           {"n", items(io.EOF, user("n-u"), user("n-v"), newConv("n-c", "direct", "push", []string{"n-u", "n-v"}), newConv("n-d", "direct", "push", []string{"n-v", "n-u"})), im.ErrBadRequest, ""},
		"user after the convs": {"n", items(io.EOF, user("n-u"), newConv("n-c", "group", "push", []string{"n-u"}), user("n-v")), im.ErrBadRequest, "n-v"},
		"retention below 0": {"n", items(io.EOF, user("n-u"), PopulationConv{ID: "n-c", Kind: "group", Mode: "push", Members: []string{"n-u"},
			RetentionMS: -1}), im.ErrBadRequest, "n-c"},
		"threshold below 0": {"n", items(io.EOF, user("n-u"), PopulationConv{ID: "n-c", Kind: "group", Mode: "push", Members: []string{"n-u"},
			HintAbove: new(int64(AsGateway))}), im.ErrBadRequest, "n-c"},
		"threshold above all": {"n", items(io.EOF, user("n-u"), PopulationConv{ID: "n-c", Kind: "group", Mode: "push", Members: []string{"n-u"},
			OpenOnlyAbove: new(int64(MaxThreshold + 1))}), im.ErrBadRequest, "n-c"},
		"empty item":         {"n", func() (PopulationItem, error) { return PopulationItem{}, nil }, im.ErrBadRequest, ""},
		"the reader's error": {"n", items(io.EOF, user("n-u"), broken), broken, ""},
	} {
		_, err := s.CreatePopulation(ctx, PopulationSpec{Namespace: c.ns, Owner: "test", Next: c.next})
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		var pe *PopulationError
		if c.id != "" && (!errors.As(err, &pe) || pe.ID != c.id) {
			t.Errorf("%s: %v names %+v, want %q", name, err, pe, c.id)
		}
	}
	if after := rowCounts(t, s); !reflect.DeepEqual(before, after) {
		t.Errorf("refused populations left rows: %v, before %v", after, before)
	}
	if _, err := s.RemovePopulation(ctx, "n"); !errors.Is(err, ErrNoPopulation) {
		t.Errorf("removal: %v", err)
	}
	if err := s.ExportLog(ctx, "n", func(im.Event) error { return nil }); !errors.Is(err, ErrNoPopulation) {
		t.Errorf("export: %v", err)
	}
}

// TestRemovalIsExact removes one of two populations, with traffic going on in both, beside rows of no namespace.
func TestRemovalIsExact(t *testing.T) {
	t.Parallel()
	s, ctx := openTest(t), t.Context()
	if _, err := s.CreatePopulation(ctx, small("b")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.pool.Exec(ctx, `INSERT INTO users (user_id) VALUES ('a-plain');
		INSERT INTO conversations (conv_id, kind, delivery_mode) VALUES ('a-conv', 'group', 'push');
		INSERT INTO device_cursors VALUES ('a-conv', 'a-device', 1, 1, 0)`); err != nil {
		t.Fatal(err)
	}
	want := rowCounts(t, s)
	if _, err := s.CreatePopulation(ctx, small("a")); err != nil {
		t.Fatal(err)
	}
	u1, u2 := im.Principal{User: "a-u1", Device: "a-d1", Install: 1}, im.Principal{User: "a-u2", Device: "a-d3", Install: 1}
	if _, err := s.ClaimRoutes(ctx, []im.RouteClaim{{User: u1.User, Device: u1.Device, Install: 1, Gateway: "g", Conn: 1}}); err != nil {
		t.Fatal(err)
	}
	// A user of another population does not exist in this one, so that nothing of the one is tied to the other.
	if _, err := s.Join(ctx, u1, "a-g", "b-u1"); !errors.Is(err, im.ErrNotMember) {
		t.Errorf("join across namespaces: %v", err)
	}
	if _, err := s.Leave(ctx, u1, "a-g", "a-u3"); err != nil {
		t.Error(err)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			_, err := s.SendBatch(ctx, []im.SendReq{{From: u1, Conv: "a-g", CMID: fmt.Sprint(i), Body: "x"}, {From: u2, Conv: "a-p1", CMID: fmt.Sprint(i), Body: "x"}}, false)
			if err == nil {
				_, err = s.AckBatch(ctx, []im.AckReq{{From: u1, Conv: "a-g", Seq: 1}, {From: u2, Conv: "a-p1", Seq: 1}})
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
	}()
	n, err := s.RemovePopulation(ctx, "a")
	close(stop)
	<-stopped
	if err != nil || n.Users != 3 || n.Devices != 5 || n.Conversations != 3 || n.Members != 7 || n.Cursors != 12 || n.Events < 8 {
		t.Errorf("removed %+v, %v", n, err)
	}
	if got := rowCounts(t, s); !reflect.DeepEqual(got, want) {
		t.Errorf("left %v, want %v", got, want)
	}
	if _, err := s.CreatePopulation(ctx, small("a")); err != nil {
		t.Errorf("the same again: %v", err)
	}
}

func TestExportLog(t *testing.T) {
	t.Parallel()
	s, ctx := openTest(t), t.Context()
	for _, ns := range []string{"a", "b"} {
		if _, err := s.CreatePopulation(ctx, small(ns)); err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			p := im.Principal{User: ns + "-u1", Device: ns + "-d1", Install: 1}
			if _, err := s.SendBatch(ctx, []im.SendReq{
				{From: p, Conv: ns + "-p1", CMID: fmt.Sprint("k", i), Body: fmt.Sprint("body", i)}, {From: p, Conv: ns + "-g", CMID: fmt.Sprint("k", i), Body: "x"}}, false); err != nil {
				t.Fatal(err)
			}
		}
	}
	var got []string
	if err := s.ExportLog(ctx, "a", func(e im.Event) error {
		got = append(got, fmt.Sprintf("%s:%d:%s:%s:%d", e.Conv, e.Seq, e.CMID, e.Body, len(e.MID)))
		if e.Kind != im.KindMsg || e.Sender != "a-u1" || e.At.IsZero() {
			t.Errorf("%+v", e)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	want := []string{"a-g:4:k0:x:36", "a-g:5:k1:x:36", "a-g:6:k2:x:36", "a-p1:3:k0:body0:36", "a-p1:4:k1:body1:36", "a-p1:5:k2:body2:36"}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	stop := errors.New("the reader has gone")
	n := 0
	if err := s.ExportLog(ctx, "a", func(im.Event) error { n++; return stop }); err != stop || n != 1 {
		t.Errorf("%v after %d events", err, n)
	}
	if err := s.Ping(context.Background()); err != nil {
		t.Errorf("the connection after a broken export: %v", err)
	}
}

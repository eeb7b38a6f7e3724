package identity

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"imbench/loadgen/internal/population"
	"imbench/loadgen/internal/testgate"
	"imbench/loadgen/protocol"
	"imbench/server/wire"
)

// town is a gate with users u0…, a device each but for u0, who has two, and conversations with the users that are listed.
func town(users int, convs map[string][]int32) (*testgate.Gate, *Roster) {
	p := &population.Population{}
	r := crowd(users)
	for i := range int32(users) {
		p.Users = append(p.Users, population.User{ID: r.Users[i], Devices: []int32{i}})
		p.Devices = append(p.Devices, population.Device{ID: r.List[i].Device, User: i, Connected: true})
	}
	p.Users[0].Devices = append(p.Users[0].Devices, int32(users))
	p.Devices = append(p.Devices, population.Device{ID: "u0-d2", User: 0, Connected: true})
	r.List = append(r.List, Identity{User: "u0", Device: "u0-d2", Install: 5, Line: users + 2})
	for id, members := range convs {
		p.Convs = append(p.Convs, population.Conv{ID: id, Kind: "group", Mode: "push", Members: members})
	}
	return testgate.New(p), r
}

func inquiry(t *testing.T, g *testgate.Gate, r *Roster) Inquiry {
	t.Helper()
	tokens, err := Source("cmd:true", r)
	if err != nil {
		t.Fatal(err)
	}
	return Inquiry{Wire: &testgate.Wire{Gate: g, Delay: 2 * time.Millisecond}, Targets: []string{"one", "two"}, Tokens: tokens, Rate: 100,
		Welcome: func(string, string) error { return nil }}
}

// What is found is what the gateway says: who is where now, and from which head on.
func TestDiscover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, r := town(6, map[string][]int32{"all": {0, 1, 2, 3, 4}, "few": {3, 1}, "alone": {2}, "left": {0, 4, 1}, "gone": {2, 3}})
		for i := range 10 {
			g.Post("all", "stranger", fmt.Sprint(i), "hello")
		}
		g.Leave("left", "u4")
		g.Leave("gone", "u2")
		g.Refuse = func(q *wire.Request, before int) (wire.Code, int) { // once in a while it is asked too much
			if q.T == wire.TConvs && before%3 == 1 {
				return wire.RateLimited, 5
			}
			return "", 0
		}
		f, err := Discover(t.Context(), r, inquiry(t, g, r))
		if err != nil {
			t.Fatal(err)
		}
		p := f.Population
		want := []population.Conv{{ID: "all", Kind: "group", Mode: "push", Head: 15, Members: []int32{0, 1, 2, 3, 4}},
			{ID: "few", Kind: "group", Mode: "push", Head: 2, Members: []int32{1, 3}}, {ID: "left", Kind: "group", Mode: "push", Head: 4, Members: []int32{0, 1}}}
		if !p.Brought || !slices.EqualFunc(p.Convs, want, func(a, b population.Conv) bool { return fmt.Sprint(a) == fmt.Sprint(b) }) {
			t.Errorf("conversations %v", p.Convs)
		}
		if p.Start(0) != 15 || f.Alone != 2 || f.Idle != 1 {
			t.Errorf("starts at %d; %d conversations left out, %d users idle", p.Start(0), f.Alone, f.Idle)
		}
		if len(p.Devices) != 7 || p.Devices[6].ID != "u0-d2" || p.Devices[6].Install != 5 || !slices.Equal(p.Users[0].Devices, []int32{0, 6}) || !slices.Equal(p.Users[1].Convs, []int32{0, 1, 2}) {
			t.Errorf("devices %v, users %v", p.Devices, p.Users)
		}
		if n := len(g.Connected()); n != 0 {
			t.Errorf("%d devices are still connected", n)
		}
		if len(g.Requests(wire.TSub))+len(g.Requests(wire.TAck))+len(g.Requests(wire.TSend)) != 0 {
			t.Error("it did more than ask")
		}
	})
}

// What the file says of conversations must be so, and confines the run to them.
func TestDiscoverNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, r := town(4, map[string][]int32{"one": {0, 1, 2}, "two": {0, 1, 2}, "three": {3}})
		r.Named = []Named{{"one", "u0", 2}}
		f, err := Discover(t.Context(), r, inquiry(t, g, r))
		if err != nil || len(f.Population.Convs) != 1 || f.Population.Convs[0].ID != "one" || len(f.Population.Convs[0].Members) != 3 {
			t.Fatalf("%v, %+v", err, f)
		}
		for _, s := range g.Requests(wire.TSync) { // whether the user has left
			if s.Conv != "one" {
				t.Errorf("asked for what is not wanted: %+v", s)
			}
		}
		r.Named = []Named{{"one", "u0", 2}, {"one", "u3", 5}, {"nowhere", "u1", 3}}
		_, err = Discover(t.Context(), r, inquiry(t, g, r))
		var re *RosterError
		if !errors.As(err, &re) || !strings.Contains(err.Error(), "users.csv:5: the user u3 is not in the conversation one") || !strings.Contains(err.Error(), "users.csv:3: the user u1 is not in the conversation nowhere") {
			t.Errorf("%v", err)
		}
	})
}

// A server that may not be loaded is left before anything is asked of it, each target before any user is.
func TestDiscoverIsGuarded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, r := town(4, map[string][]int32{"one": {0, 1, 2}})
		q := inquiry(t, g, r)
		welcomes := 0
		no := errors.New("not here")
		q.Welcome = func(gateway, environment string) error {
			if welcomes++; gateway != "test" || environment != "test" {
				t.Errorf("welcomed by %q, %q", gateway, environment)
			}
			if welcomes == 2 {
				return no
			}
			return nil
		}
		if _, err := Discover(t.Context(), r, q); !errors.Is(err, no) || len(g.Requests(wire.TConvs)) != 0 || len(g.Requests(wire.THello)) != 2 {
			t.Errorf("%v; %d lists asked for", err, len(g.Requests(wire.TConvs)))
		}
	})
}

// pickyWire refuses tokens, or whatever else the test wants.
type pickyWire struct {
	*testgate.Wire
	mu    sync.Mutex
	dials int
	dial  func(n int) error
}

func (w *pickyWire) Dial(ctx context.Context, target, token string) (protocol.Conn, error) {
	w.mu.Lock()
	w.dials++
	err := w.dial(w.dials)
	w.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return w.Wire.Dial(ctx, target, token)
}

func TestDiscoverWhoIsNotLetIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, r := town(4, map[string][]int32{"one": {0, 1, 2}})
		q := inquiry(t, g, r)
		busy := &protocol.RefusedError{URL: "one", Status: 503, Answer: "503 draining", RetryAfter: time.Second}
		q.Wire = &pickyWire{Wire: q.Wire.(*testgate.Wire), dial: func(n int) error {
			if n%2 == 1 {
				return busy
			}
			return nil
		}}
		if _, err := Discover(t.Context(), r, q); err != nil {
			t.Errorf("a gateway that is busy: %v", err)
		}
		for name, c := range map[string]struct {
			err  error
			want string
		}{
			"a token":    {&protocol.RefusedError{URL: "one", Status: 401, Answer: "401 Unauthorized"}, `does not let in the user u0 with the device u0-d: one answered "401 Unauthorized"`},
			"no gateway": {&protocol.RefusedError{URL: "one", Status: 404, Answer: "404 Not Found"}, `one answered "404 Not Found"`},
		} {
			q.Wire = &pickyWire{Wire: &testgate.Wire{Gate: g}, dial: func(int) error { return c.err }}
			_, err := Discover(t.Context(), r, q)
			var re *RefusedError
			if err == nil || !strings.Contains(err.Error(), c.want) || errors.As(err, &re) != (name == "a token") {
				t.Errorf("%s: %v", name, err)
			}
		}
		q.Wire = &testgate.Wire{Gate: g}
		g.Silent.Store(true)
		if _, err := Discover(t.Context(), r, q); err == nil || !strings.Contains(err.Error(), "did not answer hello in 15s") {
			t.Errorf("one that says nothing: %v", err)
		}
	})
}

// Others write while the users are asked: a conversation stands at the largest head that one of them was told.
func TestStartsAtTheLargestHead(t *testing.T) {
	r := crowd(3)
	f, err := r.population([][]standing{{{"c", "group", "push", 7}}, {{"c", "group", "push", 9}}, {{"c", "group", "push", 8}}})
	if err != nil || f.Population.Start(0) != 9 {
		t.Errorf("%v, %+v", err, f)
	}
}

// Users with more memberships than there is room for are refused while they are asked, not when all of them have told.
func TestDiscoverIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all []int32
		for i := range int32(50) {
			all = append(all, i)
		}
		g, r := town(50, map[string][]int32{"one": all, "two": all})
		q := inquiry(t, g, r)
		q.seats = 100
		if _, err := Discover(t.Context(), r, q); err != nil {
			t.Fatalf("just enough: %v", err)
		}
		before := len(g.Requests(wire.THello))
		q.seats = 5
		_, err := Discover(t.Context(), r, q)
		var re *RosterError
		if !errors.As(err, &re) || !strings.Contains(err.Error(), "users.csv have more than 5 memberships: name the conversations") {
			t.Errorf("%v", err)
		}
		if n := len(g.Requests(wire.THello)) - before; n > 10 {
			t.Errorf("%d connections, when the third user was one too many", n)
		}
		r.Named = []Named{{"one", "u0", 2}}
		q.seats = 50
		if _, err := Discover(t.Context(), r, q); err != nil {
			t.Errorf("only what is wanted counts: %v", err)
		}
		q.seats = 49
		if _, err := Discover(t.Context(), r, q); err == nil || !strings.Contains(err.Error(), "name fewer conversations") {
			t.Errorf("%v", err)
		}
	})
}

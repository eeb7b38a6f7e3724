package population

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"imbench/loadgen/internal/scenario"
	"imbench/server/wire"
)

func load(t testing.TB, name string, set ...string) *scenario.Scenario {
	t.Helper()
	s, err := scenario.Load(name, set...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func build(t testing.TB, s *scenario.Scenario, seed uint64) *Population {
	t.Helper()
	p, err := Build(s, seed, "t1")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// drawScenario is a small scenario that Validate accepts, with settings of every kind.
func drawScenario(t *rapid.T) *scenario.Scenario {
	s, err := scenario.Parse("drawn.yaml", []byte("seed: 1"))
	if err != nil {
		t.Fatal(err)
	}
	p := &s.Population
	p.GroupSize = rapid.IntRange(2, 9).Draw(t, "group size")
	p.GroupsPerUser = rapid.IntRange(1, 4).Draw(t, "groups a user")
	p.Users = 2 * p.GroupSize * rapid.IntRange(1, 6).Draw(t, "users")
	if rapid.Bool().Draw(t, "spanning groups") { // users that groups do not divide, only the seats do
		p.GroupsPerUser, p.Users = p.GroupSize, max(4, p.Users-2)
	}
	p.DirectsPerUser = rapid.IntRange(1, min(6, p.Users-1)).Draw(t, "directs a user")
	p.TwoDeviceUsers = rapid.IntRange(0, p.Users).Draw(t, "two devices")
	p.ConnectedDevices = rapid.IntRange(1, p.Users+p.TwoDeviceUsers).Draw(t, "connected")
	s.Load.ActiveGroups, s.Load.ActiveDirects = 1, 1
	if err := s.Validate(); err != nil {
		t.Fatal(err)
	}
	return s
}

// Every count is exact, groups are regular with distinct members, and direct chats are a simple regular graph.
func TestPopulationIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawScenario(t)
		pop, err := Build(s, rapid.Uint64().Draw(t, "seed"), "ns")
		if err != nil {
			t.Fatal(err)
		}
		spec := s.Population
		two, connected := 0, 0
		for i, u := range pop.Users {
			if len(u.Devices) == 2 {
				two++
			} else if len(u.Devices) != 1 {
				t.Fatalf("user %d has %d devices", i, len(u.Devices))
			}
			for _, d := range u.Devices {
				if pop.Devices[d].User != int32(i) {
					t.Fatalf("device %d of user %d belongs to %d", d, i, pop.Devices[d].User)
				}
			}
			kinds := map[string]int{}
			for _, c := range u.Convs {
				kinds[pop.Convs[c].Kind]++
				if !slices.Contains(pop.Convs[c].Members, int32(i)) {
					t.Fatalf("user %d is not in its conversation %d", i, c)
				}
			}
			if kinds["group"] != spec.GroupsPerUser || kinds["direct"] != spec.DirectsPerUser {
				t.Fatalf("user %d has %v", i, kinds)
			}
		}
		for _, d := range pop.Devices {
			if d.Connected {
				connected++
			}
		}
		if len(pop.Users) != spec.Users || two != spec.TwoDeviceUsers || connected != spec.ConnectedDevices || len(pop.Devices) != spec.Users+two {
			t.Fatalf("%d users, %d with two devices, %d devices, %d connected; want %+v", len(pop.Users), two, len(pop.Devices), connected, spec)
		}
		pairs := map[string]bool{}
		for _, c := range pop.Convs {
			members := slices.Sorted(slices.Values(c.Members))
			if len(slices.Compact(slices.Clone(members))) != len(members) {
				t.Fatalf("%s has a member twice: %v", c.ID, members)
			}
			switch c.Kind {
			case "group":
				if len(members) != spec.GroupSize {
					t.Fatalf("%s has %d members", c.ID, len(members))
				}
			case "direct":
				if key := fmt.Sprint(members); len(members) != 2 || pairs[key] {
					t.Fatalf("%s: %v, not a pair of its own", c.ID, members)
				} else {
					pairs[key] = true
				}
			}
		}
	})
}

func TestPopulationFollowsFromTheSeedAlone(t *testing.T) {
	s := load(t, "smoke")
	a, b := build(t, s, 7), build(t, s, 7)
	other, err := Build(s, 7, "elsewhere")
	if err != nil {
		t.Fatal(err)
	}
	if Digest(a) != Digest(b) || Digest(a) != Digest(other) {
		t.Error("the same seed gave two populations")
	}
	if Digest(a) == Digest(build(t, s, 8)) {
		t.Error("two seeds gave the same population")
	}
	// A change of the algorithm makes runs of the same seed incomparable: it must be meant.
	if got := Digest(a); got != smokeSeed7 {
		t.Errorf("digest of smoke with seed 7 is %s", got)
	}
}

const smokeSeed7 = "beab2c43658a6c8f604b694cf274d7ed2c45717aa9bd36853b4bd063cf407619"

func TestIDsAreShortAndValid(t *testing.T) {
	p := build(t, load(t, "smoke"), 1)
	if u, d, g, last := p.Users[0].ID, p.Devices[0].ID, p.Convs[0].ID, p.Convs[len(p.Convs)-1].ID; u != "t1-u00001" || d != "t1-u00001-d1" || g != "t1-g00001" || last != "t1-p04500" {
		t.Errorf("ids %s %s %s %s", u, d, g, last)
	}
	seen := map[string]bool{}
	check := func(id string) {
		if !wire.ValidID(id) || seen[id] || !strings.HasPrefix(id, "t1-") {
			t.Errorf("id %q is not valid, or stands twice", id)
		}
		seen[id] = true
	}
	for i := range p.Users {
		check(p.Users[i].ID)
	}
	for i := range p.Devices {
		check(p.Devices[i].ID)
	}
	for i := range p.Convs {
		check(p.Convs[i].ID)
	}
	for _, bad := range []string{"", "Ns", "a-b", strings.Repeat("x", 33)} {
		if _, err := Build(load(t, "smoke"), 1, bad); err == nil {
			t.Errorf("namespace %q was accepted", bad)
		}
	}
}

// The exchanges must leave nothing of the circulant graph that they begin with: of its edges a random graph would keep
// degree/(users−1).
func TestDirectChatsAreMixed(t *testing.T) {
	const users, degree = 1000, 10
	src, again := newSource(3, "directs"), newSource(3, "directs")
	name := again.permutation(users)
	at := make([]int, users)
	for i, u := range name {
		at[u] = i
	}
	near := 0
	edges := regularPairs(&src, users, degree)
	for _, e := range edges {
		if d := (at[e[0]] - at[e[1]] + users) % users; min(d, users-d) <= degree/2 {
			near++
		}
	}
	want := float64(len(edges)) * degree / (users - 1) // 50 of 5 000
	if math.Abs(float64(near)-want) > 4*math.Sqrt(want) {
		t.Errorf("%d edges are still where they began; a random graph has %.0f", near, want)
	}
}

func TestEveryoneMustFindAnActiveConversation(t *testing.T) {
	s := load(t, "smoke", "population.connected_devices=2", "load.active_directs=40", "load.group_rate=0")
	_, err := NewPlan(build(t, s, 1), s, 1)
	if err == nil || !strings.Contains(err.Error(), "load.active_directs is 40, and this population has only") {
		t.Errorf("got %v", err)
	}
}

func TestArrivalsFollowFromTheSeedAlone(t *testing.T) {
	s := load(t, "smoke")
	pop := build(t, s, 7)
	plan := func(seed uint64) *Plan {
		p, err := NewPlan(pop, s, seed)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := plan(7)
	first := p.Digest()
	if again := p.Digest(); again != first || plan(7).Digest() != first {
		t.Error("the same seed gave two plans")
	}
	if first == plan(8).Digest() {
		t.Error("two seeds gave the same plan")
	}
}

// Rules that hold for every arrival: in time order, before the end, from a connected device of a member, bursts whole.
func TestArrivalsKeepTheRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawScenario(t)
		s.Phases = scenario.Phases{Warmup: time.Second, Measure: 3 * time.Second, Tail: time.Second, Settle: time.Second}
		s.Population.ConnectedDevices = s.Population.Users + s.Population.TwoDeviceUsers
		s.Load.GroupRate, s.Load.DirectRate, s.Load.Burst = 100, 150, rapid.IntRange(1, 5).Draw(t, "burst")
		drawShape(t, s)
		seed := rapid.Uint64().Draw(t, "seed")
		pop, err := Build(s, seed, "ns")
		if err != nil {
			t.Fatal(err)
		}
		plan, err := NewPlan(pop, s, seed)
		if err != nil {
			t.Fatal(err)
		}
		speaking := map[string][]int32{} // kind → conversation of each message: with one active, bursts do not mix
		last, n := time.Duration(0), int64(0)
		cmids := map[string]bool{}
		for arrivals := plan.Arrivals(); ; n++ {
			a, ok := arrivals.Next()
			if !ok {
				break
			}
			d := pop.Devices[a.Device]
			if a.Index != n || a.At < last || a.At >= s.Phases.LoadTime() || !d.Connected || !slices.Contains(pop.Convs[a.Conv].Members, d.User) {
				t.Fatalf("arrival %d: %+v after %v", n, a, last)
			}
			if cmids[a.CMID] || len(a.CMID) != 36 {
				t.Fatalf("cmid %q", a.CMID)
			}
			cmids[a.CMID], last = true, a.At
			kind := pop.Convs[a.Conv].Kind
			speaking[kind] = append(speaking[kind], a.Conv)
		}
		for kind, convs := range speaking {
			run, first := 1, true
			for i := 1; i < len(convs); i++ {
				if convs[i] == convs[i-1] {
					run++
					continue
				}
				if run > s.Load.Burst || !first && run != s.Load.Burst {
					t.Fatalf("a %s spoke %d times and left, the burst is %d", kind, run, s.Load.Burst)
				}
				run, first = 1, false
			}
		}
	})
}

// Poisson: over 85 s the counts lie within 4 σ of rate × time, and the variance of counts per 100 ms is their mean
// within 4 standard errors. A fixed seed makes this one draw, not a chance of failing.
func TestStreamsArePoisson(t *testing.T) {
	s := load(t, "baseline")
	pop := build(t, s, 1)
	plan, err := NewPlan(pop, s, 1)
	if err != nil {
		t.Fatal(err)
	}
	bins := int(s.Phases.LoadTime() / (100 * time.Millisecond))
	count := map[string][]float64{"group": make([]float64, bins), "direct": make([]float64, bins)}
	entered := map[string][2]float64{} // kind → sums of c and 1 over entries, c = connected devices
	speaks := map[int32]int{}
	for arrivals := plan.Arrivals(); ; {
		a, ok := arrivals.Next()
		if !ok {
			break
		}
		kind := pop.Convs[a.Conv].Kind
		count[kind][a.At/(100*time.Millisecond)]++
		if speaks[a.Conv]++; speaks[a.Conv]%s.Load.Burst == 1 {
			e := entered[kind]
			entered[kind] = [2]float64{e[0] + float64(len(pop.connected(nil, a.Conv))), e[1] + 1}
		}
	}
	for kind, rate := range map[string]float64{"group": 500, "direct": 750} {
		sum, squares := 0.0, 0.0
		for _, n := range count[kind] {
			sum, squares = sum+n, squares+n*n
		}
		want := rate * s.Phases.LoadTime().Seconds()
		if math.Abs(sum-want) > 4*math.Sqrt(want) {
			t.Errorf("%s: %v messages, want %v ± %.0f", kind, sum, want, 4*math.Sqrt(want))
		}
		n := float64(bins)
		mean := sum / n
		ratio := (squares/n - mean*mean) / mean
		if tolerance := 4 * math.Sqrt(2/n); math.Abs(ratio-1) > tolerance {
			t.Errorf("%s: variance is %.3f × the mean, want 1 ± %.3f", kind, ratio, tolerance)
		}
		// Entering in proportion to c: the mean c of those that enter is E[c²]/E[c].
		c1, c2 := 0.0, 0.0
		for c := range pop.Convs {
			if pop.Convs[c].Kind == kind {
				x := float64(len(pop.connected(nil, int32(c))))
				c1, c2 = c1+x, c2+x*x
			}
		}
		got, biased := entered[kind][0]/entered[kind][1], c2/c1
		if math.Abs(got-biased) > 0.03*biased {
			t.Errorf("%s: those that enter have %.3f connected devices, want E[c²]/E[c] = %.3f within 3 %%", kind, got, biased)
		}
	}
}

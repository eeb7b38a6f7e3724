package population

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"imbench/loadgen/internal/payload"
	"imbench/loadgen/internal/scenario"
)

// drawShape gives a scenario groups of several kinds, stages, bodies of several sizes and either kind of arrivals.
func drawShape(t *rapid.T, s *scenario.Scenario) {
	share := func(name string) *float64 {
		return rapid.SampledFrom([]*float64{nil, ptr(0), ptr(0.5), ptr(1)}).Draw(t, name)
	}
	for range rapid.IntRange(0, 2).Draw(t, "kinds") {
		s.Population.Groups = append(s.Population.Groups, scenario.GroupKind{Count: rapid.IntRange(1, 3).Draw(t, "count"),
			Size:         rapid.IntRange(2, min(20, s.Population.Users)).Draw(t, "size"),
			Mode:         rapid.SampledFrom([]scenario.Mode{"", scenario.Push, scenario.Pull}).Draw(t, "kind's mode"),
			ReadingShare: share("kind's reading share"), HintAbove: rapid.SampledFrom([]*int{nil, new(0), new(4)}).Draw(t, "kind's hint above"),
			OpenOnlyAbove: rapid.SampledFrom([]*int{nil, new(0), new(1000)}).Draw(t, "kind's open only above")})
	}
	s.Load.Stages = drawStages(t)
	for range rapid.IntRange(0, 2).Draw(t, "body kinds") {
		s.Load.Bodies = append(s.Load.Bodies, scenario.Body{Bytes: rapid.IntRange(47, 4000).Draw(t, "bytes"), Max: 4000,
			Weight: rapid.Float64Range(0.1, 9).Draw(t, "weight"), Sigma: rapid.SampledFrom([]float64{0, 1}).Draw(t, "sigma")})
	}
	s.Load.Arrivals = rapid.SampledFrom([]scenario.Arrivals{scenario.Poisson, scenario.Even}).Draw(t, "arrivals")
}

func ptr(x float64) *float64 { return &x }

// drawStages leaves something to send from 1 to 4 s.
func drawStages(t *rapid.T) (list []scenario.Stage) {
	for range rapid.IntRange(0, 4).Draw(t, "stages") {
		st := scenario.Stage{For: time.Duration(rapid.IntRange(1, 3000).Draw(t, "for")) * time.Millisecond}
		if rapid.Bool().Draw(t, "rate given") {
			st.Rate = ptr(rapid.SampledFrom([]float64{0, 0.5, 2}).Draw(t, "rate"))
		}
		if rapid.Bool().Draw(t, "ramp") {
			st.To = ptr(rapid.SampledFrom([]float64{0, 0.01, 1, 3}).Draw(t, "to"))
		}
		list = append(list, st)
	}
	if (scenario.Traffic{Stages: list}).MeanFactor(time.Second, 4*time.Second) == 0 {
		return nil
	}
	return list
}

// Between two messages lies a gap of the factor's integral, whichever lines it crosses.
func TestRampKeepsTheIntegral(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		traffic := scenario.Traffic{Stages: drawStages(t)}
		r := newRamp(traffic)
		from := rapid.Float64Range(0, 12).Draw(t, "from")
		gap := rapid.Float64Range(1e-6, 5).Draw(t, "gap")
		to := r.after(from, gap)
		if to <= from {
			t.Fatalf("%v after %v", to, from)
		}
		sec := func(s float64) time.Duration { return time.Duration(s * 1e9) }
		if to == silent {
			if rest := traffic.MeanFactor(sec(from), 1e6*time.Second) * (1e6 - from); rest > gap*1.000001 {
				t.Fatalf("silent after %v, and %v would still come", from, rest)
			}
			return
		}
		if got := traffic.MeanFactor(sec(from), sec(to)) * (to - from); math.Abs(got-gap) > 1e-6*(1+gap) && to < 1e6 {
			t.Fatalf("from %v to %v the integral is %v, want %v", from, to, got, gap)
		}
	})
	if got := ramp(nil).after(3, 0.25); got != 3.25 {
		t.Errorf("without stages: %v", got)
	}
}

// Even arrivals make exact counts in each stage; Poisson ones keep within 4 σ of them.
func TestStagesShapeTheLoad(t *testing.T) {
	const stages = 3
	for arrivals, within := range map[string]float64{"even": 1, "poisson": 4} {
		s := load(t, "smoke", "phases.warmup=0s", "phases.measure=30s", "phases.tail=0s", "load.group_rate=100/s", "load.direct_rate=0", "load.arrivals="+arrivals)
		s.Load.Stages = []scenario.Stage{{For: 10 * time.Second, Rate: ptr(0.5)}, {For: 10 * time.Second, To: ptr(2)}, {For: 10 * time.Second, Rate: ptr(0)}}
		plan, err := NewPlan(build(t, s, 7), s, 7)
		if err != nil {
			t.Fatal(err)
		}
		var got [stages]float64
		for a := plan.Arrivals(); ; {
			m, ok := a.Next()
			if !ok {
				break
			}
			got[m.At/(10*time.Second)]++
		}
		for i, want := range [stages]float64{500, 1250, 0} {
			most := 1.0
			if arrivals == "poisson" {
				most = within * math.Sqrt(want)
			}
			if math.Abs(got[i]-want) > most {
				t.Errorf("%s: %v messages in stage %d, want %v ± %v", arrivals, got[i], i, want, most)
			}
		}
	}
}

// Groups of each kind are there in number, size, mode and reading share, without a member twice; seats go round among
// all users; and without a list the groups are those of before.
func TestGroupKinds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawScenario(t)
		drawShape(t, s)
		s.Load.Stages = nil
		seed := rapid.Uint64().Draw(t, "seed")
		pop, err := Build(s, seed, "ns")
		if err != nil {
			t.Fatal(err)
		}
		conv := 0
		for _, k := range s.GroupKinds() {
			seats := make([]int, len(pop.Users))
			for range k.Count {
				c := &pop.Convs[conv]
				conv++
				members := slices.Sorted(slices.Values(c.Members))
				if c.Kind != "group" || len(slices.Compact(members)) != k.Size || c.Mode != string(k.Mode) || c.ReadBy(s.Devices.ReadingShare) != *k.ReadingShare {
					t.Fatalf("%+v, want %+v", c, k)
				}
				for _, u := range c.Members {
					seats[u]++
				}
			}
			if low, high := slices.Min(seats), slices.Max(seats); high-low > 1 {
				t.Fatalf("kind %+v: a user has %d seats, another %d", k, low, high)
			}
		}
		if pop.Convs[conv].Kind != "direct" {
			t.Fatal("more groups than kinds")
		}
		plain := *s
		plain.Population.Groups = nil
		before, err := Build(&plain, seed, "ns")
		if err != nil {
			t.Fatal(err)
		}
		for i := range before.Convs {
			if before.Convs[i].Kind == "group" && !slices.Equal(before.Convs[i].Members, pop.Convs[i].Members) {
				t.Fatal("groups of another kind change those of groups_per_user")
			}
		}
	})
}

// Churn is a Poisson stream over the load, from the seed, and falls on connected devices only, on all of them alike.
func TestChurn(t *testing.T) {
	s := load(t, "smoke", "devices.churn=200/s", "phases.warmup=0s", "phases.measure=50s", "phases.tail=0s")
	pop := build(t, s, 5)
	plan, err := NewPlan(pop, s, 5)
	if err != nil {
		t.Fatal(err)
	}
	hits, n := map[int32]float64{}, 0.0
	last := time.Duration(0)
	again := plan.Churn()
	for c := plan.Churn(); ; n++ {
		a, ok := c.Next()
		if b, bok := again.Next(); a != b || ok != bok {
			t.Fatal("it differs from time to time")
		}
		if !ok {
			break
		}
		if a.At < last || !pop.Devices[a.Device].Connected {
			t.Fatalf("%+v after %v", a, last)
		}
		last = a.At
		hits[a.Device]++
	}
	if math.Abs(n-10_000) > 400 { // 4 σ
		t.Errorf("%v in 50 s, want 10 000", n)
	}
	chi, mean := 0.0, n/float64(s.Population.ConnectedDevices)
	for _, h := range hits {
		chi += (h - mean) * (h - mean) / mean
	}
	if df := float64(s.Population.ConnectedDevices - 1); math.Abs(chi-df) > 4*math.Sqrt(2*df) || len(hits) != s.Population.ConnectedDevices {
		t.Errorf("χ² %v over %d devices, want %v", chi, len(hits), df)
	}
	if load(t, "smoke").Devices.Churn != 0 {
		t.Error("smoke churns")
	}
}

// Sizes follow from seed and index, keep their bounds, and have the medians and shares that were asked for.
func TestBodySizes(t *testing.T) {
	s := load(t, "smoke")
	s.Load.Bodies = []scenario.Body{{Bytes: 1000, Weight: 3, Sigma: 1, Max: 5000}, {Bytes: 60, Weight: 1, Max: 8192}}
	plan, err := NewPlan(build(t, s, 3), s, 3)
	if err != nil {
		t.Fatal(err)
	}
	const n = 40_000
	var small, below, capped int
	for i := range int64(n) {
		size := plan.BodySize(i)
		if size != plan.BodySize(i) || size < payload.MinSize || size > 5000 {
			t.Fatalf("message %d: %d bytes", i, size)
		}
		switch {
		case size == 60:
			small++
		case size < 1000:
			below++
		case size == 5000:
			capped++
		}
	}
	near := func(what string, got int, p float64) {
		if math.Abs(float64(got)-p*n) > 4*math.Sqrt(n*p*(1-p)) {
			t.Errorf("%s: %d of %d, want a share of %v", what, got, n, p)
		}
	}
	near("of the second kind", small, 0.25)
	near("below the median", below, 0.375)
	near("cut", capped, 0.75*0.0537) // P(Z > ln 5)
}

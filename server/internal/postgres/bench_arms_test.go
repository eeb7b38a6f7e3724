package postgres

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"imbench/server/internal/im"
)

// Benchmarks that compare run their arms in turn, slice by slice, in one process on one database: what else the machine
// does meets all of them alike. A figure named x-… is the median of the ratios of each round, with the smallest and the
// largest beside it; of the absolute figures the medians are given, and they are the machine's.

// arm is one of the ways that are compared. run does as much as it can until its context ends, finishes what it began,
// and returns the number of operations.
type arm struct {
	name string
	run  func(ctx context.Context) (int64, error)
}

// share is what an arm did in one slice: operations a second, and what PostgreSQL spent for each.
type share struct{ rate, wal, cpu float64 } // 1/s, B, µs

// rounds and turn say how long a comparison takes; -short is for a look, not for figures.
func rounds() int {
	if testing.Short() {
		return 2
	}
	return 5
}

func turn() time.Duration {
	if testing.Short() {
		return 300 * time.Millisecond
	}
	return time.Second
}

// interleave runs the arms in turn, each round beginning with another one.
func interleave(b *testing.B, s *Store, arms ...arm) map[string][]share {
	b.Helper()
	res := make(map[string][]share)
	for r := range rounds() {
		for i := range arms {
			a := arms[(r+i)%len(arms)]
			res[a.name] = append(res[a.name], measure(b, s, a))
		}
	}
	return res
}

func measure(b *testing.B, s *Store, a arm) share {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), turn())
	defer cancel()
	cpu, wal, began := serverCPU(b, s), walBytes(b, s), time.Now()
	n, err := a.run(ctx)
	if err != nil || n == 0 {
		b.Fatalf("%s: %d operations, %v", a.name, n, err)
	}
	took := time.Since(began)
	return share{
		rate: float64(n) / took.Seconds(), wal: float64(walBytes(b, s)-wal) / float64(n),
		cpu: float64((serverCPU(b, s) - cpu).Microseconds()) / float64(n),
	}
}

func rate(s share) float64 { return s.rate }
func wal(s share) float64  { return s.wal }
func cpu(s share) float64  { return s.cpu }

// report gives the medians of an arm: operations a second, WAL and CPU of the database for one.
func report(b *testing.B, prefix string, list []share) {
	b.ReportMetric(median(each(list, rate)), prefix+"op/s")
	b.ReportMetric(median(each(list, wal)), prefix+"wal-B/op")
	if c := median(each(list, cpu)); c > 0 { // not where the processes cannot be seen
		b.ReportMetric(c, prefix+"db-cpu-us/op")
	}
}

// reportRatio gives over/under, round by round.
func reportRatio(b *testing.B, unit string, over, under []float64) {
	b.Helper()
	var q []float64
	for i := range over {
		if under[i] > 0 {
			q = append(q, over[i]/under[i])
		}
	}
	if len(q) == 0 {
		return
	}
	b.ReportMetric(median(q), unit)
	b.ReportMetric(slices.Min(q), unit+"-min")
	b.ReportMetric(slices.Max(q), unit+"-max")
}

func each(list []share, f func(share) float64) []float64 {
	v := make([]float64, len(list))
	for i, s := range list {
		v[i] = f(s)
	}
	return v
}

func median[T cmp.Ordered](v []T) T {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}

// hideTime takes the time of an op away where an op is a whole comparison.
func hideTime(b *testing.B) { b.ReportMetric(0, "ns/op") }

// closedLoop is an arm of n callers, each of which goes on when its last call is done.
func closedLoop(name string, n int, call func(ctx context.Context, i int, r *rand.Rand) error) arm {
	return arm{name, func(ctx context.Context) (int64, error) {
		var done atomic.Int64
		var failed atomic.Pointer[error]
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(rand.Uint64(), uint64(i)))
				for ctx.Err() == nil && failed.Load() == nil {
					if err := call(context.WithoutCancel(ctx), i, r); err != nil {
						failed.Store(&err)
						return
					}
					done.Add(1)
				}
			})
		}
		wg.Wait()
		if err := failed.Load(); err != nil {
			return 0, *err
		}
		return done.Load(), nil
	}}
}

// alternate calls both in turn and gives the ratio of each pair of durations as metric unit, and the median of a's.
func alternate(b *testing.B, calls int, unit string, a, other func() error) {
	b.Helper()
	var times [2][]float64
	for i := range calls + 1 {
		for k, call := range []func() error{a, other} {
			began := time.Now()
			if err := call(); err != nil {
				b.Fatal(err)
			}
			if i > 0 { // the first call makes the plan
				times[k] = append(times[k], float64(time.Since(began).Microseconds()))
			}
		}
	}
	b.ReportMetric(median(times[0]), "us/call")
	b.ReportMetric(median(times[0])/median(times[1]), unit)
}

// The population of the comparisons: pairs of neighbours in a ring of users with a device each, and a group.
const (
	ringConvs = 10_000
	ringHot   = 512 // members of the group
)

func ringUser(n int) im.Principal {
	u := fmt.Sprintf("r-u%05d", n%ringConvs)
	return im.Principal{User: u, Device: u + "-d", Install: 1}
}

func ringPopulation() PopulationSpec {
	i := 0
	return PopulationSpec{Namespace: "r", Owner: "bench", Lease: time.Hour, Next: func() (PopulationItem, error) {
		n := i
		i++
		switch {
		case n < ringConvs:
			p := ringUser(n)
			return PopulationItem{User: &PopulationUser{ID: p.User, Devices: []string{p.Device}}}, nil
		case n < 2*ringConvs:
			n -= ringConvs
			return PopulationItem{Conv: &PopulationConv{ID: ringPair(n), Kind: "direct", Mode: "push",
				Members: []string{ringUser(n).User, ringUser(n + 1).User}}}, nil
		case n == 2*ringConvs:
			c := &PopulationConv{ID: "r-hot", Kind: "group", Mode: "push"}
			for k := range ringHot {
				c.Members = append(c.Members, ringUser(k).User)
			}
			return PopulationItem{Conv: c}, nil
		}
		return PopulationItem{}, io.EOF
	}}
}

func ringPair(n int) string { return fmt.Sprintf("r-p%05d", n) }

// spread draws a conversation of the ring and one of its members; hot always takes the group.
func spread(_ int, r *rand.Rand) (im.Principal, string) {
	n := r.IntN(ringConvs)
	return ringUser(n + r.IntN(2)), ringPair(n)
}

func hot(i int, _ *rand.Rand) (im.Principal, string) { return ringUser(i % ringHot), "r-hot" }

// openRing opens a store with the population, whose commits wait for the disk.
func openRing(b *testing.B, change ...func(*Config)) *Store {
	b.Helper()
	s := openTest(b, append([]func(*Config){durable}, change...)...)
	if _, err := s.CreatePopulation(context.Background(), ringPopulation()); err != nil {
		b.Fatal(err)
	}
	return s
}

func durable(c *Config) {
	c.URL = strings.Replace(c.URL, "synchronous_commit=off", "synchronous_commit=on", 1)
}

// benchCMID makes a key as clients do, of 36 characters.
func benchCMID(r *rand.Rand) string {
	return fmt.Sprintf("%08x-%04x-4%03x-8%03x-%012x", r.Uint32(), r.Uint32()>>16, r.Uint32()>>20, r.Uint32()>>20, r.Uint64()>>16)
}

var benchBody = strings.Repeat("x", 200)

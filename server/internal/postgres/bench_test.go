package postgres

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"imbench/server/internal/im"
)

// The benchmarks run on the baseline's population: 9 000 users with 14 400 devices, 1 500 groups of 30 and 45 000 pairs.
// Beside the time of a call they report the CPU that all of PostgreSQL's processes used for an op, which is a
// message, an acknowledgement or a call (where /proc tells), and its WAL. Compare runs only if they were interleaved.
const (
	benchUsers  = 9000
	benchGroups = 1500
	benchPairs  = 45_000
	benchGroup  = 30
)

func benchPopulation() PopulationSpec {
	i := 0
	user := func(n int) string { return fmt.Sprintf("b-u%05d", n%benchUsers) }
	return PopulationSpec{Namespace: "b", Owner: "bench", Lease: time.Hour, Next: func() (PopulationItem, error) {
		n := i
		i++
		if n < benchUsers {
			u := &PopulationUser{ID: user(n), Devices: []string{user(n) + "-d1"}}
			if n%5 < 3 {
				u.Devices = append(u.Devices, user(n)+"-d2")
			}
			return PopulationItem{User: u}, nil
		}
		if n -= benchUsers; n < benchGroups {
			c := &PopulationConv{ID: fmt.Sprintf("b-g%05d", n), Kind: "group", Mode: "push"}
			for k := range benchGroup {
				c.Members = append(c.Members, user(n*benchGroup+k))
			}
			return PopulationItem{Conv: c}, nil
		}
		if n -= benchGroups; n < benchPairs { // the users at distance 1 to 5: ten chats for each
			a, d := n%benchUsers, n/benchUsers+1
			return PopulationItem{Conv: &PopulationConv{ID: fmt.Sprintf("b-p%05d", n), Kind: "direct", Mode: "push", Members: []string{user(a), user(a + d)}}}, nil
		}
		return PopulationItem{}, io.EOF
	}}
}

func openBench(b *testing.B) *Store {
	s := openTest(b, durable)
	if _, err := s.CreatePopulation(context.Background(), benchPopulation()); err != nil {
		b.Fatal(err)
	}
	return s
}

// cost measures what PostgreSQL spends between two calls.
func cost(b *testing.B, s *Store) func(unit string, n int) {
	cpu0, wal0 := serverCPU(b, s), walBytes(b, s)
	return func(unit string, n int) {
		if cpu := serverCPU(b, s) - cpu0; cpu > 0 {
			b.ReportMetric(float64(cpu.Microseconds())/float64(n), "db-cpu-us/"+unit)
		}
		b.ReportMetric(float64(walBytes(b, s)-wal0)/float64(n), "wal-B/"+unit)
	}
}

func walBytes(b *testing.B, s *Store) (n int64) {
	if err := s.pool.QueryRow(context.Background(), `SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn`).Scan(&n); err != nil {
		b.Fatal(err)
	}
	return n
}

// serverCPU sums the CPU of the server's processes, with those that have ended; 0 where they cannot be seen.
func serverCPU(b *testing.B, s *Store) time.Duration {
	var pid int
	if err := s.pool.QueryRow(context.Background(), `SELECT pg_backend_pid()`).Scan(&pid); err != nil {
		b.Fatal(err)
	}
	_, _, postmaster, _ := procStat(strconv.Itoa(pid))
	sum, ended, _, _ := procStat(postmaster)
	sum += ended
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		if cpu, _, parent, ok := procStat(filepath.Base(d)); ok && parent == postmaster {
			sum += cpu
		}
	}
	return sum
}

// procStat reads a process's CPU, that of its children that have ended, and its parent.
func procStat(pid string) (cpu, ended time.Duration, parent string, ok bool) {
	data, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return 0, 0, "", false
	}
	f := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	ticks := func(i int) time.Duration { // of user and system time; the kernel's unit is 1/100 s
		user, _ := strconv.Atoi(f[i])
		system, _ := strconv.Atoi(f[i+1])
		return time.Duration(user+system) * 10 * time.Millisecond
	}
	return ticks(11), ticks(13), f[1], true
}

func groupSender(r *rand.Rand) (im.Principal, string) {
	g := r.IntN(benchGroups)
	u := fmt.Sprintf("b-u%05d", (g*benchGroup+r.IntN(benchGroup))%benchUsers)
	return im.Principal{User: u, Device: u + "-d1", Install: 1}, fmt.Sprintf("b-g%05d", g)
}

func BenchmarkSendBatch(b *testing.B) {
	s := openBench(b)
	ctx, r, n := context.Background(), rand.New(rand.NewPCG(1, 2)), 0
	body := strings.Repeat("x", 200)
	batch := func(b *testing.B, size int) {
		reqs := make([]im.SendReq, size)
		for i := range reqs {
			n++
			p, conv := groupSender(r)
			reqs[i] = im.SendReq{From: p, Conv: conv, CMID: fmt.Sprintf("00000000-0000-4000-8000-%012d", n), Body: body}
		}
		res, err := s.SendBatch(ctx, reqs, false)
		for i := 0; err == nil && i < len(res); i++ {
			err = res[i].Err
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	for _, size := range []int{1, 5, 16, 64} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			for range 10 { // the connection's plans
				batch(b, size)
			}
			done := cost(b, s)
			b.ResetTimer()
			for range b.N {
				batch(b, size)
			}
			b.StopTimer()
			done("op", b.N*size)
		})
	}
}

func BenchmarkAckBatch(b *testing.B) {
	s := openBench(b)
	ctx, r := context.Background(), rand.New(rand.NewPCG(1, 2))
	if _, err := s.pool.Exec(ctx, `UPDATE conversations SET next_seq = 1000000`); err != nil {
		b.Fatal(err)
	}
	seq := int64(100)
	for _, size := range []int{50, 256} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			batch := func() {
				reqs := make([]im.AckReq, size)
				seq++
				for i := range reqs {
					p, conv := groupSender(r)
					reqs[i] = im.AckReq{From: p, Conv: conv, Seq: seq, Epoch: 1}
				}
				res, err := s.AckBatch(ctx, reqs)
				for i := 0; err == nil && i < len(res); i++ {
					err = res[i].Err
				}
				if err != nil {
					b.Fatal(err)
				}
			}
			for range 10 {
				batch()
			}
			done := cost(b, s)
			b.ResetTimer()
			for range b.N {
				batch()
			}
			b.StopTimer()
			done("op", b.N*size)
		})
	}
}

// BenchmarkReads measures what fan-out, devices and the sweep read, on a log of 20 000 fresh messages.
func BenchmarkReads(b *testing.B) {
	s := openBench(b)
	ctx, r := context.Background(), rand.New(rand.NewPCG(1, 2))
	began := time.Now()
	for i := range 400 {
		var reqs []im.SendReq
		for k := range 50 {
			p, conv := groupSender(r)
			reqs = append(reqs, im.SendReq{From: p, Conv: conv, CMID: fmt.Sprintf("%d-%d", i, k), Body: strings.Repeat("x", 200)})
		}
		if _, err := s.SendBatch(ctx, reqs, false); err != nil {
			b.Fatal(err)
		}
	}
	var claims []im.RouteClaim
	for i := 0; i < benchUsers; i += 4 {
		u := fmt.Sprintf("b-u%05d", i)
		claims = append(claims, im.RouteClaim{User: u, Device: u + "-d1", Install: 1, Gateway: "g1", Conn: int64(i)})
	}
	if _, err := s.ClaimRoutes(ctx, claims); err != nil {
		b.Fatal(err)
	}
	for name, call := range map[string]func() error{
		"sync": func() error {
			p, conv := groupSender(r)
			_, err := s.Sync(ctx, im.SyncReq{From: p, Conv: conv, After: 35})
			return err
		},
		"convs": func() error {
			p, _ := groupSender(r)
			_, _, err := s.Convs(ctx, p, "", 100)
			return err
		},
		"events-5": func() error {
			var ranges []im.SeqRange
			for range 5 {
				_, conv := groupSender(r)
				ranges = append(ranges, im.SeqRange{Conv: conv, From: 33, To: 33})
			}
			_, err := s.Events(ctx, ranges)
			return err
		},
		"conv-infos-5": func() error {
			var from []im.SeqRange
			for range 5 {
				_, conv := groupSender(r)
				from = append(from, im.SeqRange{Conv: conv, From: 33})
			}
			_, err := s.ConvInfos(ctx, from)
			return err
		},
		"recent-lag": func() error { // the 20 000 messages to 1 500 groups, of which 11 250 devices lack something
			written, err := s.Written(ctx, 0, time.Since(began))
			if err != nil {
				return err
			}
			_, err = s.Lagging(ctx, "g1", written, 10_000)
			return err
		},
	} {
		b.Run(name, func(b *testing.B) {
			for range 10 {
				if err := call(); err != nil {
					b.Fatal(err)
				}
			}
			done := cost(b, s)
			b.ResetTimer()
			for range b.N {
				if err := call(); err != nil {
					b.Fatal(err)
				}
			}
			b.StopTimer()
			done("op", b.N)
		})
	}
}

func BenchmarkPopulation(b *testing.B) {
	s := openTest(b, durable)
	var created, removed time.Duration
	for range b.N {
		t0 := time.Now()
		if _, err := s.CreatePopulation(context.Background(), benchPopulation()); err != nil {
			b.Fatal(err)
		}
		t1 := time.Now()
		if _, err := s.RemovePopulation(context.Background(), "b"); err != nil {
			b.Fatal(err)
		}
		created, removed = created+t1.Sub(t0), removed+time.Since(t1)
	}
	b.ReportMetric(created.Seconds()/float64(b.N), "s/creation")
	b.ReportMetric(removed.Seconds()/float64(b.N), "s/removal")
}

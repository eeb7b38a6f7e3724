package hub

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"imbench/server/internal/im"
)

// heapOf is what build leaves on the heap, in bytes; kept keeps it there until it was counted.
func heapOf(build func() (kept any)) float64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	kept := build()
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(kept)
	return float64(after.HeapAlloc) - float64(before.HeapAlloc)
}

// asRead is a conversation's members as the store gives them: a string each.
func asRead(r *rand.Rand, conv string, users, size int) im.ConvInfo {
	info := im.ConvInfo{Conv: conv, Mode: im.Push, Head: int64(size)}
	for i := range size {
		u := fmt.Sprintf("baseline-1-u%05d", r.IntN(users))
		info.Periods = append(info.Periods, im.Period{User: strings.Clone(u), From: int64(i + 1)})
	}
	return info
}

// BenchmarkMemberCache measures the heap that a cached membership period takes, its share of the entry and of what is
// known of the 9 000 users included: with the periods kept as the store gives them, and as the cache keeps them; in groups
// of 30, in pairs, and in as many of both as the baseline has active in 100 s.
func BenchmarkMemberCache(b *testing.B) {
	for _, c := range []struct {
		name          string
		groups, pairs int
	}{{"groups", 1500, 0}, {"pairs", 0, 10_000}, {"baseline", 1500, 5000}} {
		for _, arm := range []struct {
			name string
			keep func([]im.ConvInfo) any
		}{{"as-read", keepAsRead}, {"cached", keepCached}} {
			b.Run(c.name+"/"+arm.name, func(b *testing.B) {
				var sum float64
				for b.Loop() {
					sum += heapOf(func() any {
						r := rand.New(rand.NewPCG(1, 1))
						var infos []im.ConvInfo
						for i := range c.groups + c.pairs {
							size := 2
							if i < c.groups {
								size = 30
							}
							infos = append(infos, asRead(r, fmt.Sprintf("baseline-1-g%05d", i), 9000, size))
						}
						return arm.keep(infos)
					})
				}
				b.ReportMetric(sum/float64(b.N)/float64(30*c.groups+2*c.pairs), "B/period")
			})
		}
	}
}

// keepAsRead is the naive cache: periods with a string each.
func keepAsRead(infos []im.ConvInfo) any {
	type plain struct {
		conv, mode string
		lo, hi     int64
		periods    []im.Period
		closed     int
		last       int64
		counted    int
		prev, next *plain
	}
	m := map[string]*plain{}
	for _, info := range infos {
		n := len(info.Periods)
		m[info.Conv] = &plain{info.Conv, string(info.Mode), 1, info.Head, append(make([]im.Period, 0, n), info.Periods...), 0, info.Head, n, nil, nil}
	}
	return m
}

// keepCached is the cache as it is.
func keepCached(infos []im.ConvInfo) any {
	r := newRegistry()
	c := newCache(&r, 1<<20, 1<<20)
	for _, info := range infos {
		e := c.add(info.Conv)
		e.load(&r, info, 1)
		c.resized(e)
	}
	return c
}

// BenchmarkTracker measures the heap that one device's tracker takes when it is told as in the baseline (bursts of 16
// events in 8 s, a new one each 9 s, cumulative acknowledgements), and the size of a connection without its socket.
func BenchmarkTracker(b *testing.B) {
	const conns = 1000
	var sum float64
	for b.Loop() {
		sum += heapOf(func() any {
			list := make([]tracker, conns)
			for i := range list {
				list[i] = trackedFor(int64(i))
			}
			return list
		})
	}
	b.ReportMetric(sum/float64(b.N)/conns, "B/tracker")
	b.ReportMetric(float64(unsafe.Sizeof(Conn{})), "B/Conn")
	b.ReportMetric(float64(unsafe.Sizeof(entry{})), "B/entry")
}

// trackedFor is a tracker after 100 s of the baseline and some.
func trackedFor(n int64) (t tracker) {
	names := map[int64]string{}
	seqs := map[int64]int64{}
	for ms := int64(0); ms < 100_000+n; ms += 500 {
		now := ms * int64(time.Millisecond)
		for start := max(0, ms/9000-1); start <= ms/9000; start++ {
			if since := ms - start*9000; since < 8000 {
				if names[start] == "" {
					names[start] = fmt.Sprintf("baseline-1-g%05d", start)
				}
				seqs[start]++
				t.add(names[start], seqs[start], 1, now, false)
				if seqs[start]%4 == 0 {
					t.ack(names[start], seqs[start], now)
				}
			}
		}
		t.due(now, 4*time.Second, true, func(string, int64) bool { return true })
	}
	return t
}

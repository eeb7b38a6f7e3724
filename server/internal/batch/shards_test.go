package batch

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"imbench/server/internal/im"
)

// convsOf lists the conversations of each call.
func convsOf[T any](calls [][]T, conv func(T) string) (list [][]string) {
	for _, call := range calls {
		var convs []string
		for _, req := range call {
			convs = append(convs, conv(req))
		}
		list = append(list, convs)
	}
	return list
}

// shardsOf counts the calls by how many of four shards their conversations are in, and notes which shards had calls.
func shardsOf(calls [][]string) (byShards map[int]int, seen map[int]bool) {
	byShards, seen = map[int]int{}, map[int]bool{}
	for _, call := range calls {
		in := map[int]bool{}
		for _, conv := range call {
			s := im.Shard(conv, 4)
			in[s], seen[s] = true, true
		}
		byShards[len(in)]++
	}
	return byShards, seen
}

// TestBatchesOfOneShard: with four shards every call to the store is about conversations of one, through locked
// conversations and split batches too, and no shard is left out. The control is the same traffic without shards.
func TestBatchesOfOneShard(t *testing.T) {
	for _, shards := range []int{1, 4} {
		synctest.Test(t, func(t *testing.T) {
			f, o := newFake(), newOutcomes()
			f.fail = func(reqs []im.SendReq) error {
				for _, r := range reqs {
					if strings.HasPrefix(r.CMID, "bad") {
						return errors.New("bad")
					}
				}
				return nil
			}
			reads := &fakeReads{pos: map[row]int64{}}
			s := NewSender(f, SenderConfig{Shards: shards, Workers: 2, LaneTTL: time.Hour})
			a := NewAcker(f, AckerConfig{Shards: shards, Workers: 3})
			m := NewMarker(reads, MarkerConfig{AckerConfig: AckerConfig{Shards: shards}})
			f.lock("c3", true)
			f.lock("c8", true)
			for i := range 2000 {
				conv, id := fmt.Sprint("c", i%40), fmt.Sprint("k", i)
				if i%333 == 0 {
					id = fmt.Sprint("bad", i)
				}
				p := im.Principal{User: fmt.Sprint("u", i%7), Device: fmt.Sprint("d", i%7)}
				o.submit(s, conv, id)
				a.Submit(im.AckReq{From: p, Conv: conv, Seq: 1}, func(im.AckResult) {})
				m.Submit(im.ReadReq{From: p, Conv: conv, Seq: 1}, func(im.ReadResult) {})
				if i%100 == 0 {
					pass(time.Millisecond)
				}
			}
			f.lock("c3", false)
			f.lock("c8", false)
			closeIt(t, s)
			closeIt(t, a)
			closeIt(t, m)
			if len(o.collect().all) != 2000 {
				t.Errorf("%d outcomes of 2000", len(o.all))
			}
			for name, calls := range map[string][][]string{
				"sends": convsOf(f.calls, func(r im.SendReq) string { return r.Conv }),
				"acks":  convsOf(f.acks, func(r im.AckReq) string { return r.Conv }),
				"reads": convsOf(reads.calls, func(r im.ReadReq) string { return r.Conv }),
			} {
				n, seen := shardsOf(calls)
				mixed := n[2] + n[3] + n[4]
				if len(seen) != 4 || (mixed > 0) != (shards == 1) {
					t.Errorf("%s with %d shards: calls by number of shards %v, shards that had any %v", name, shards, n, seen)
				}
			}
		})
	}
}

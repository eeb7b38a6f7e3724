package fleet

import (
	"testing"

	"pgregory.net/rapid"
)

// However the parts come in, each is handed on once, seconds are in order, never before all workers have told theirs unless
// one is far behind, and one that comes in time goes with its own second.
func TestSeconds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		workers := rapid.IntRange(1, 4).Draw(t, "workers")
		s := newSeconds(workers)
		next := make([]int64, workers) // what each worker tells next
		ended := make([]bool, workers)
		got, last := map[[2]int64]int{}, int64(-1)
		each := func(k int64, parts []piece) error {
			if k != last+1 {
				t.Fatalf("second %d after %d", k, last)
			}
			last = k
			for w := range workers {
				if !ended[w] && next[w] <= k && k > max64(next)-1-maxBehind {
					t.Fatalf("second %d is over before worker %d has told it", k, w)
				}
			}
			for _, p := range parts {
				told := int64(p.body[0])
				got[[2]int64{int64(p.worker), told}]++
				if told > k {
					t.Fatalf("a part of second %d goes with %d", told, k)
				}
			}
			return nil
		}
		for range rapid.IntRange(0, 100).Draw(t, "steps") {
			w := rapid.IntRange(0, workers-1).Draw(t, "worker")
			if ended[w] {
				continue
			}
			k := next[w]
			next[w]++
			if err := s.add(k, piece{w, []byte{byte(k)}}, each); err != nil {
				t.Fatal(err)
			}
		}
		for w := range workers {
			ended[w] = true
			if err := s.gone(w, each); err != nil {
				t.Fatal(err)
			}
		}
		for w, n := range next {
			for k := range n {
				if got[[2]int64{int64(w), k}] != 1 {
					t.Fatalf("second %d of worker %d was handed on %d times", k, w, got[[2]int64{int64(w), k}])
				}
			}
		}
	})
}

func max64(list []int64) (m int64) {
	for _, v := range list {
		m = max(m, v)
	}
	return m
}

package im

import (
	"fmt"
	"hash/fnv"
	"testing"
)

// TestShard: the function is FNV-1a, whatever becomes of its code, and spreads ids that differ in their end only.
func TestShard(t *testing.T) {
	var n [4]int
	for i := range 4000 {
		conv := fmt.Sprintf("ns-g%05d", i)
		h := fnv.New64a()
		h.Write([]byte(conv))
		got := Shard(conv, len(n))
		if got != int(h.Sum64()%uint64(len(n))) {
			t.Fatalf("%s is in shard %d", conv, got)
		}
		n[got]++
	}
	for s, k := range n {
		if k < 800 || k > 1200 {
			t.Errorf("shard %d has %d of 4000 conversations", s, k)
		}
	}
	if Shard("c", 0) != 0 || Shard("c", 1) != 0 || Shard("", 3) < 0 {
		t.Error("one shard is shard 0")
	}
}

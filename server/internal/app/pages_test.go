package app

import "testing"

// However many shards there are, calls for pages leave half of the connections to others, unless there are too few.
func TestSyncWorkers(t *testing.T) {
	for _, c := range []struct{ conns, shards, want int }{{2, 1, 1}, {8, 1, 4}, {8, 2, 2}, {8, 3, 1}, {8, 64, 1}, {100, 8, 6}} {
		if got := syncWorkers(c.conns, c.shards); got != c.want {
			t.Errorf("%d connections and %d shards: %d for each, want %d", c.conns, c.shards, got, c.want)
		}
	}
}

package batch

import (
	"hash/maphash"

	"imbench/server/internal/im"
)

// spread says which worker takes a request. Each shard has workers of its own, and so a batch, which is what one worker
// writes at once, holds conversations of one shard only: on a distributed database it is a transaction of one node.
type spread struct {
	shards, workers int // workers of each shard
	seed            maphash.Seed
}

func newSpread(shards, workers int) spread { return spread{shards, workers, maphash.MakeSeed()} }

// all is the number of workers.
func (s spread) all() int { return s.shards * s.workers }

// worker is the one for a conversation; of its shard's workers, the key's hash chooses.
func (s spread) worker(conv, key string) int {
	return im.Shard(conv, s.shards)*s.workers + int(maphash.String(s.seed, key)%uint64(s.workers))
}

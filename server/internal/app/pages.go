package app

import (
	"context"

	"imbench/server/internal/batch"
	"imbench/server/internal/im"
	"imbench/server/internal/postgres"
)

// pages is the store as connections read from it: their syncs go through the batcher.
type pages struct {
	*postgres.Store
	sync *batch.Syncer
}

// Sync reads a page together with others who wait. The errors are those of the store's Sync; when ctx ends first the
// outcome is im.ErrUnavailable.
func (p pages) Sync(ctx context.Context, r im.SyncReq) (im.Page, error) {
	res, err := await(ctx, nil, within{ctx, p.sync}, r)
	if err != nil {
		return im.Page{}, err
	}
	return res.Page, res.Err
}

// within submits requests that end with a context.
type within struct {
	ctx  context.Context
	sync *batch.Syncer
}

func (w within) Submit(r im.SyncReq, done func(im.SyncResult)) { w.sync.Submit(w.ctx, r, done) }

// syncWorkers is how many calls for pages of each shard are under way at once: of all shards, half of the connections, and
// the rest is left to whatever else devices and administrators ask for. A shard has one at least.
func syncWorkers(conns, shards int) int { return max(1, conns/2/shards) }

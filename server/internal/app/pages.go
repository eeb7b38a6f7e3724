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
	res, err := await(ctx, nil, p.sync, r)
	if err != nil {
		return im.Page{}, err
	}
	return res.Page, res.Err
}

// syncWorkers is how many calls for pages are under way at once: they leave connections to whatever else devices and
// administrators ask for.
func syncWorkers(conns int) int { return max(1, conns/2) }

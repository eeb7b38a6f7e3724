package hub

import (
	"context"
	"slices"
	"time"

	"imbench/server/internal/im"
)

const (
	// maxSweepWindow bounds how far back the store's level looks after it could not for a while. What is older is found
	// by the next event of its conversation, or when the device connects.
	maxSweepWindow = 10 * time.Minute
	// maxSweepWaiting bounds the conversations that wait to be asked for. From half of it on no more are looked for
	// until it is less, so that the repair takes longer and forgets nothing; what one look finds beyond it is dropped and
	// counted.
	maxSweepWaiting = 65_536
)

// sweeper is the sweep's level in the store. It belongs to the sweep's goroutine.
type sweeper struct {
	hub     *Hub
	covered time.Time        // what was written before this time was looked at
	waiting []string         // conversations to ask for, the oldest first
	heads   map[string]int64 // of these, up to where
	seen    map[string]int64 // what the last look found, so that the windows' overlap is not asked for twice
}

// sweep looks for what was written and not told here, and asks for the devices that lag behind some of it. oldest is
// since when the first of the connections has listened: what was written before any did they all know from convs, which
// a device asks for once it listens. So a population that was made before its devices came costs nothing.
func (w *sweeper) sweep(ctx context.Context, oldest int64) {
	h := w.hub
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	upTo := time.Now().Add(-h.cfg.Grace)
	if first := h.start.Add(time.Duration(oldest)); oldest == 0 {
		w.covered, w.waiting = upTo, nil
		clear(w.heads)
	} else if first.After(w.covered) {
		w.covered = first
	}
	err := w.look(ctx, upTo)
	if err == nil {
		err = w.ask(ctx)
	}
	h.metrics.sweepWaiting.Store(int64(len(w.waiting)))
	if err != nil && ctx.Err() != context.Canceled {
		h.metrics.readErrors.Add(1)
		h.cfg.Log.Warn("the repair sweep cannot read from the store", "error", err)
	}
}

// look adds to what waits what was written between covered and upTo and not told here. The window overlaps the last one
// by a period: clocks and commits are not exact.
func (w *sweeper) look(ctx context.Context, upTo time.Time) error {
	h := w.hub
	if !w.covered.Before(upTo) || len(w.waiting) >= maxSweepWaiting/2 {
		return nil
	}
	window := min(upTo.Sub(w.covered)+h.cfg.Sweep, maxSweepWindow)
	written, err := h.src.Written(ctx, h.cfg.Grace, window)
	if err != nil {
		return err
	}
	heads := h.untold(ctx, written)
	h.metrics.untold.Add(int64(len(heads)))
	seen := make(map[string]int64, min(len(heads), maxSweepWaiting))
	for _, head := range heads {
		if w.seen[head.Conv] < head.To {
			w.add(head)
		}
		if len(seen) < maxSweepWaiting {
			seen[head.Conv] = head.To
		}
	}
	w.seen = seen
	if err := ctx.Err(); err != nil {
		return err // a shard that did not answer in time has said nothing
	}
	w.covered = upTo
	h.looked.Store(int64(upTo.Sub(h.start)))
	return nil
}

func (w *sweeper) add(head im.Head) {
	old, waits := w.heads[head.Conv]
	if !waits {
		if len(w.waiting) >= maxSweepWaiting {
			w.hub.metrics.sweepDrops.Add(1)
			return
		}
		w.waiting = append(w.waiting, head.Conv)
	}
	w.heads[head.Conv] = max(old, head.To)
}

// ask asks for the devices of this gateway that lag behind the oldest of what waits, and has them told.
func (w *sweeper) ask(ctx context.Context) error {
	h := w.hub
	n := min(len(w.waiting), h.cfg.SweepConvs)
	if n == 0 {
		return nil
	}
	heads := make([]im.Head, n)
	for i, conv := range w.waiting[:n] {
		heads[i] = im.Head{Conv: conv, To: w.heads[conv]}
	}
	lags, err := h.src.Lagging(ctx, h.cfg.Gateway, heads, h.cfg.SweepHints)
	if err != nil {
		return err
	}
	pushed := 0
	for _, l := range lags {
		if l.Mode == im.Push {
			pushed++
		}
		h.shard(l.Conv).lagging(l)
	}
	again := w.waiting[:n]
	w.waiting = slices.Clone(w.waiting[n:])
	if len(lags) >= h.cfg.SweepHints && 2*pushed > len(lags) {
		// There is more: those told now will soon be behind no longer. Rows of pull conversations, which lag by
		// choice, are no reason to ask for the same again.
		w.waiting = append(w.waiting, again...)
		return nil
	}
	for _, conv := range again {
		delete(w.heads, conv)
	}
	if len(w.waiting) == 0 {
		w.heads = map[string]int64{}
	}
	return nil
}

// untold keeps of what was written those heads that this process may not have told everyone of: its shards have not
// fanned them out, or a device's tracker was full. Usually that is none.
func (h *Hub) untold(ctx context.Context, written []im.Head) []im.Head {
	parts := make(map[*shard][]im.Head, len(h.shards))
	var list []im.Head
	for _, w := range written {
		if h.unnoted.take(w.Conv, w.To) {
			list = append(list, w)
			continue
		}
		s := h.shard(w.Conv)
		parts[s] = append(parts[s], w)
	}
	for s, part := range parts {
		list = append(list, s.ask(ctx, part)...)
	}
	return list
}

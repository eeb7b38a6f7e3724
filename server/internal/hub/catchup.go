package hub

import (
	"context"
	"time"

	"imbench/server/internal/im"
)

// resyncLoop catches up after announcements may have been missed, by asking for what has changed: of conversations that
// were fanned out here the heads are read by key, a thousand at a time, and what lies between is fanned out, or hinted if
// it is much. Of the others nothing is known to go on from. What was written to them lately, since the sweep last looked,
// is announced by its last event: a device that lacks more than that sees a gap.
func (h *Hub) resyncLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.resync:
		}
		since := h.looked.Load() // what was written before is the sweep's; it looks on meanwhile
		for wait := 100 * time.Millisecond; !h.catchUp(ctx, since); wait = min(2*wait, 5*time.Second) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
			}
		}
	}
}

// headsAtOnce is how many heads are read in one call.
const headsAtOnce = 1000

// catchUp announces what was missed; false means that the store failed.
func (h *Hub) catchUp(ctx context.Context, since int64) bool {
	for _, s := range h.shards {
		if err := h.catchUpKnown(ctx, s); err != nil {
			return h.noCatchUp(ctx, err)
		}
	}
	if err := h.catchUpOthers(ctx, since); err != nil {
		return h.noCatchUp(ctx, err)
	}
	return true
}

func (h *Hub) noCatchUp(ctx context.Context, err error) (end bool) {
	h.metrics.readErrors.Add(1)
	h.cfg.Log.Warn("catching up cannot read from the store", "error", err)
	return ctx.Err() != nil
}

// catchUpKnown announces what lies between the heads and what the shard has fanned out.
func (h *Hub) catchUpKnown(ctx context.Context, s *shard) error {
	known := s.ask(ctx, nil)
	for len(known) > 0 {
		n := min(len(known), headsAtOnce)
		convs := make([]string, n)
		for i, k := range known[:n] {
			convs[i] = k.Conv
		}
		read, cancel := context.WithTimeout(ctx, readTimeout)
		heads, err := h.src.Heads(read, convs)
		cancel()
		if err != nil {
			return err
		}
		for _, k := range known[:n] {
			if head := heads[k.Conv]; head > k.To {
				k.From, k.To = k.To+1, head
				s.announced(k)
			}
		}
		known = known[n:]
	}
	return nil
}

// catchUpOthers announces the last event of what was written since that time and not fanned out. It looks a second further
// back: clocks and commits are not exact.
func (h *Hub) catchUpOthers(ctx context.Context, since int64) error {
	if h.Connections() == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	window := min(time.Duration(h.now()-since)+h.cfg.Sweep+time.Second, maxSweepWindow)
	written, err := h.src.Written(ctx, 0, window)
	if err != nil {
		return err
	}
	parts := make(map[*shard][]im.Head, len(h.shards))
	for _, w := range written {
		s := h.shard(w.Conv)
		parts[s] = append(parts[s], w)
	}
	for s, part := range parts {
		for _, head := range s.ask(ctx, part) {
			head.From = head.To
			s.announced(head)
		}
	}
	return ctx.Err()
}

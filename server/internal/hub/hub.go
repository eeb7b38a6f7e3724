package hub

import (
	"context"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"imbench/server/internal/im"
)

// Hub is one process's connections and their fan-out. Create it with New.
type Hub struct {
	cfg      Config
	src      Source
	start    time.Time
	seed     maphash.Seed
	nextConn atomic.Int64
	registry registry
	shards   []*shard
	flushers []*flusher
	resync   chan struct{}
	metrics  metrics
	unnoted  unnoted
	looked   atomic.Int64 // up to when the sweep has looked at what was written, by the hub's clock

	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// New makes a hub and starts its workers; Close ends them.
func New(cfg Config, src Source) *Hub {
	cfg = cfg.positive()
	ctx, cancel := context.WithCancel(context.Background())
	h := &Hub{cfg: cfg, src: src, start: time.Now(), seed: maphash.MakeSeed(), registry: newRegistry(),
		resync: make(chan struct{}, 1), cancel: cancel}
	for range cfg.Shards {
		s, f := newShard(h), newFlusher()
		h.shards, h.flushers = append(h.shards, s), append(h.flushers, f)
		h.wg.Go(func() { s.run(ctx) })
		h.wg.Go(func() { f.run(ctx.Done()) })
	}
	h.wg.Go(func() { h.resyncLoop(ctx) })
	h.wg.Go(func() { h.heartbeatLoop(ctx) })
	if cfg.Sweep > 0 {
		h.wg.Go(func() { h.sweepLoop(ctx) })
	}
	return h
}

// now is the hub's clock: nanoseconds since its start, never 0.
func (h *Hub) now() int64 { return int64(time.Since(h.start)) + 1 }

func (h *Hub) shard(conv string) *shard {
	return h.shards[maphash.String(h.seed, conv)%uint64(len(h.shards))]
}

func (h *Hub) device(id string) *Conn {
	h.registry.mu.RLock()
	defer h.registry.mu.RUnlock()
	return h.registry.devices[id]
}

// Committed hands over events that this process has just committed; their bytes need not be read again. It never blocks.
func (h *Hub) Committed(events []im.Event) {
	for i := range events {
		h.shard(events[i].Conv).committed(events[i : i+1])
	}
}

// Announced says that these ranges are committed. What was fanned out already is ignored. It never blocks.
func (h *Hub) Announced(heads []im.Head) {
	for _, head := range heads {
		h.shard(head.Conv).announced(head)
	}
}

// MembersChanged says that what is cached of the conversation's members, mode and thresholds no longer holds. Whoever commits a join
// or leave says so before he announces the event: a gateway where no member was connected does not read what is
// announced, and would not learn who has joined. It never blocks.
func (h *Hub) MembersChanged(conv string) {
	h.shard(conv).put(conv, func(w *work) { w.reload = true })
}

// Resync reads again what may have been announced while nobody listened. It returns at once; the hub does the work, and
// tries again until it has succeeded.
func (h *Hub) Resync() {
	select {
	case h.resync <- struct{}{}:
	default:
	}
}

// Close ends the workers and waits for them. The readers of all connections must have ended (Conn.Gone) before. The
// error is ctx's, when it ended first; the workers end nevertheless.
func (h *Hub) Close(ctx context.Context) error {
	h.cancel()
	done := make(chan struct{})
	go func() {
		h.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

package hub

import (
	"context"
	"strings"
	"sync"
	"time"

	"imbench/server/internal/im"
)

// work is what waits for a conversation.
type work struct {
	conv     string
	from, to int64      // announced as committed; to = 0: nothing was
	events   []im.Event // of these, the ones whose bytes are at hand, in no order
	at       int64      // when the first of it came
	reload   bool       // the members, the mode or the thresholds changed
	lags     []im.Lag   // devices that the sweep found behind
}

// question asks a shard what it has fanned out.
type question struct {
	of     []im.Head // nil: everything known; else those of them that were not fanned out
	answer chan []im.Head
}

// shard fans out the conversations that hash to it, in one goroutine, so that a conversation's events stay in order.
type shard struct {
	hub  *Hub
	wake chan struct{}

	mu     sync.Mutex
	inbox  map[string]*work
	order  []*work
	events int // with bytes, in the inbox
	asks   []question

	reads   map[reader]moved // positions to be told
	readsAt int64            // when

	// The worker's own.
	cache   *cache
	hints   hintQueue
	dirty   []*Conn
	retryAt time.Time // the store failed: nothing is tried before
	backoff time.Duration
	scratch []*Conn
}

func newShard(h *Hub) *shard {
	n := h.cfg.Shards
	return &shard{hub: h, wake: make(chan struct{}, 1), inbox: map[string]*work{}, reads: map[reader]moved{},
		cache: newCache(&h.registry, h.cfg.CacheConvs/n, h.cfg.CacheMembers/n)}
}

// put lets fill change the conversation's waiting work, and wakes the worker.
func (s *shard) put(conv string, fill func(w *work)) {
	s.mu.Lock()
	w := s.inbox[conv]
	if w == nil {
		if len(s.inbox) >= s.hub.cfg.InboxConvs {
			s.mu.Unlock()
			s.hub.metrics.inboxDrops.Add(1)
			return
		}
		w = &work{conv: strings.Clone(conv), at: s.hub.now()} // of its own: an event's is part of a whole request
		s.inbox[w.conv] = w
		s.order = append(s.order, w)
	}
	fill(w)
	s.mu.Unlock()
	s.signal()
}

func (s *shard) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// extend makes the work's range cover from..to as well. Everything up to a committed seq is committed, so what lies
// between two ranges may be fanned out too.
func (w *work) extend(from, to int64) {
	if w.to == 0 || from < w.from {
		w.from = from
	}
	w.to = max(w.to, to)
}

func (s *shard) committed(events []im.Event) {
	for i := range events {
		ev := &events[i]
		s.put(ev.Conv, func(w *work) {
			w.extend(ev.Seq, ev.Seq)
			s.keep(w, events[i:i+1])
		})
	}
}

// keep adds events with their bytes to the work, as many as have room; the others are read again. s.mu must be held.
func (s *shard) keep(w *work, events []im.Event) {
	n := min(len(events), max(0, s.hub.cfg.InboxEvents-s.events))
	w.events = append(w.events, events[:n]...)
	s.events += n
	s.hub.metrics.rereads.Add(int64(len(events) - n))
}

func (s *shard) announced(h im.Head) {
	if h.To > 0 && h.From > 0 && h.From <= h.To {
		s.put(h.Conv, func(w *work) { w.extend(h.From, h.To) })
	}
}

// maxLags bounds what the sweep adds to one conversation's work; what is left out is found again by the next sweep.
const maxLags = 1024

func (w *work) behind(lags ...im.Lag) {
	w.lags = append(w.lags, lags[:min(len(lags), maxLags-len(w.lags))]...)
}

func (s *shard) lagging(l im.Lag) {
	s.put(l.Conv, func(w *work) { w.behind(l) })
}

// requeue puts work back whose reads failed, within the limits that hold for what comes.
func (s *shard) requeue(list []*work) {
	for _, old := range list {
		s.put(old.conv, func(w *work) {
			if old.to > 0 {
				w.extend(old.from, old.to)
			}
			w.at = min(w.at, old.at)
			w.reload = w.reload || old.reload
			s.keep(w, old.events)
			w.behind(old.lags...)
		})
	}
}

// take empties the inbox.
func (s *shard) take() ([]*work, []question) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list, asks := s.order, s.asks
	s.order, s.asks, s.events = nil, nil, 0
	clear(s.inbox)
	return list, asks
}

// waitingConvs is what one round of bulk reads covers at most.
const waitingConvs = 512

// roundConvs keeps a round below what one call of Events may ask for: before and behind what was fanned out of a
// conversation, each lacks less than MaxGap.
func (s *shard) roundConvs() int {
	return max(1, min(waitingConvs, im.MaxRangeEvents/(2*s.hub.cfg.MaxGap)))
}

func (s *shard) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-timer.C:
		}
		if !time.Now().Before(s.retryAt) {
			list, asks := s.take()
			for _, q := range asks {
				q.answer <- s.heads(q.of)
			}
			s.process(ctx, list)
		}
		s.releaseHints()
		s.releaseReads(ctx)
		s.flush()
		timer.Reset(s.pause())
	}
}

// process fans out what waited, in rounds; after a failure the rest goes back as well.
func (s *shard) process(ctx context.Context, list []*work) {
	for len(list) > 0 && ctx.Err() == nil {
		n := min(len(list), s.roundConvs())
		if err := s.round(ctx, list[:n]); err != nil {
			if ctx.Err() != nil {
				return // the hub is closing
			}
			s.failed(err)
			s.requeue(list)
			return
		}
		s.releaseHints()
		list = list[n:]
	}
}

// pause is the time until something is due without a wake.
func (s *shard) pause() time.Duration {
	d := time.Hour
	if wait, ok := s.hints.wait(s.hub.now()); ok {
		d = wait
	}
	if wait := time.Until(s.retryAt); wait > 0 {
		d = min(d, wait)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.reads) > 0 {
		d = min(d, time.Duration(max(0, s.readsAt-s.hub.now())))
	}
	return d
}

// failed notes a read that failed.
func (s *shard) failed(err error) {
	const least, most = 100 * time.Millisecond, 2 * time.Second
	s.backoff = min(max(2*s.backoff, least), most)
	s.retryAt = time.Now().Add(s.backoff)
	s.hub.metrics.readErrors.Add(1)
	s.hub.cfg.Log.Warn("fan-out cannot read from the store", "error", err, "retry_in", s.backoff)
}

// flush writes the queues of all connections that were touched.
func (s *shard) flush() {
	for i, c := range s.dirty {
		c.flush()
		s.dirty[i] = nil
	}
	s.dirty = s.dirty[:0]
}

// pushed follows what a connection's push asked for.
func (s *shard) pushed(c *Conn, mark, now bool) {
	switch {
	case now:
		c.flush()
	case mark:
		s.dirty = append(s.dirty, c)
	}
}

// heads answers a question: all that was fanned out, as far as it is known, or what of the given heads was not.
func (s *shard) heads(of []im.Head) []im.Head {
	if of == nil {
		list := make([]im.Head, 0, len(s.cache.entries))
		for conv, e := range s.cache.entries {
			if e.last > 0 {
				list = append(list, im.Head{Conv: conv, To: e.last})
			}
		}
		return list
	}
	var list []im.Head
	for _, h := range of {
		if e := s.cache.entries[h.Conv]; e == nil || e.last < h.To || s.neglected(e, h.To) {
			list = append(list, h)
		}
	}
	return list
}

// neglected says whether the conversation is one that is only hinted, of which the level in memory forgets what a device
// was told while nobody looked at it, and somebody is looking now.
func (s *shard) neglected(e *entry, seq int64) bool {
	if !s.hinted(e, e.count(seq)) {
		return false
	}
	for _, c := range s.receivers(e, seq, "") {
		c.mu.Lock()
		open := c.isOpen(e.conv)
		c.mu.Unlock()
		if open {
			return true
		}
	}
	return false
}

// ask puts a question to the worker; nil if ctx ends before it is answered.
func (s *shard) ask(ctx context.Context, of []im.Head) []im.Head {
	answer := make(chan []im.Head, 1)
	s.mu.Lock()
	s.asks = append(s.asks, question{of, answer})
	s.mu.Unlock()
	s.signal()
	select {
	case list := <-answer:
		return list
	case <-ctx.Done():
		return nil
	}
}

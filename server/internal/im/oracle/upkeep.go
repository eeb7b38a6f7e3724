package oracle

import (
	"context"
	"fmt"
	"slices"
	"time"

	"imbench/server/internal/im"
)

// Retain does one step of retention; see im.Upkeep.
func (s *Store) Retain(ctx context.Context, limit int, keep time.Duration) (im.RetentionReport, error) {
	if err := s.begin(ctx); err != nil {
		return im.RetentionReport{}, err
	}
	defer s.mu.Unlock()
	var r im.RetentionReport
	if limit < 1 {
		return r, im.ErrBadRequest
	}
	for _, id := range sorted(s.convs) {
		c := s.convs[id]
		if c.locked {
			continue
		}
		n := min(c.due(s.now()), int64(limit)-r.Events)
		if n > 0 {
			c.removeBelow(c.minSeq+n, s.now().Add(keep))
			r.Conversations++
			r.Events += n
		}
		for k, until := range c.tombs {
			if until.Before(s.now()) {
				delete(c.tombs, k)
				r.Tombstones++
			}
		}
	}
	r.More = r.Events == int64(limit)
	return r, nil
}

// due is how many events the prefix has that is older than the retention.
func (c *conv) due(now time.Time) (n int64) {
	for c.retention > 0 && c.minSeq+n <= c.head() && now.Sub(c.events[c.minSeq+n-1].At) > c.retention {
		n++
	}
	return n
}

// removeBelow removes the events before seq; their keys stay known until expires.
func (c *conv) removeBelow(seq int64, expires time.Time) {
	for k, r := range c.requests {
		if r.seq < seq {
			delete(c.requests, k)
			c.tombs[k] = expires
		}
	}
	c.minSeq = seq
}

// Follow takes over what one step of another store's retention did, where a bounded step may choose: how far each
// conversation's log begins now, and which keys have a tombstone ("conv user cmid"). An error says what was wrong: more
// than was due, more than the limit, a tombstone too few or too many, a report that does not fit.
func (s *Store) Follow(rep im.RetentionReport, limit int, keep time.Duration, minSeq map[string]int64, tombs []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var did im.RetentionReport
	left, now := int64(0), s.now()
	for _, id := range sorted(s.convs) {
		c := s.convs[id]
		due, n := c.due(now), minSeq[id]-c.minSeq
		if n < 0 || n > due {
			return fmt.Errorf("%s: %d events removed, %d were due", id, n, due)
		}
		if left += due - n; n > 0 {
			did.Conversations++
			did.Events += n
		}
		c.removeBelow(minSeq[id], now.Add(keep))
		for k, until := range c.tombs {
			if !slices.Contains(tombs, fmt.Sprint(id, " ", k.user, " ", k.cmid)) {
				if until.After(now) {
					return fmt.Errorf("%s: the tombstone of %v is gone before its time", id, k)
				}
				did.Tombstones++
				delete(c.tombs, k)
			} else if until.Before(now) {
				left++
			}
		}
	}
	did.More = rep.More
	switch {
	case did != rep:
		return fmt.Errorf("the report says %+v, done was %+v", rep, did)
	case rep.Events > int64(limit):
		return fmt.Errorf("%d events removed in a step of %d", rep.Events, limit)
	case left > 0 && !rep.More:
		return fmt.Errorf("%d events or tombstones are left, and the report says that there is no more", left)
	}
	return nil
}

// RaiseEpoch begins a new epoch of a conversation's log; see im.Upkeep.
func (s *Store) RaiseEpoch(ctx context.Context, id string) (int32, error) {
	if err := s.begin(ctx); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	c := s.convs[id]
	if c == nil {
		return 0, im.ErrNotMember
	}
	c.epoch++
	clear(c.cursors)
	return c.epoch, nil
}

// RaiseAllEpochs does it for all conversations; see im.Upkeep.
func (s *Store) RaiseAllEpochs(ctx context.Context, progress func(int64)) (int64, error) {
	if err := s.begin(ctx); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	for _, c := range s.convs {
		c.epoch++
	}
	n := int64(len(s.convs))
	if progress != nil && n > 0 {
		progress(n)
	}
	return n, nil
}

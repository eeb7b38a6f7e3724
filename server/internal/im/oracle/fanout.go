package oracle

import (
	"context"
	"time"

	"imbench/server/internal/im"
)

// Events reads by range, whatever the visibility; see im.Store.
func (s *Store) Events(ctx context.Context, ranges []im.SeqRange) ([]im.Event, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	asked, total := map[string][]im.SeqRange{}, int64(0)
	for _, r := range ranges {
		if n := r.To - r.From + 1; n > 0 {
			if total += n; total > im.MaxRangeEvents {
				return nil, im.ErrTooLarge
			}
		}
		asked[r.Conv] = append(asked[r.Conv], r)
	}
	var out []im.Event
	for _, id := range sorted(asked) {
		c := s.convs[id]
		if c == nil {
			continue
		}
		for seq := c.minSeq; seq <= c.head(); seq++ {
			for _, r := range asked[id] {
				if r.From <= seq && seq <= r.To {
					out = append(out, c.event(seq))
				}
			}
		}
	}
	return out, nil
}

// ConvInfos reads mode and membership for fan-out; see im.Store.
func (s *Store) ConvInfos(ctx context.Context, from []im.SeqRange) ([]im.ConvInfo, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var out []im.ConvInfo
	for _, r := range from {
		c := s.convs[r.Conv]
		if c == nil {
			continue
		}
		info := im.ConvInfo{Conv: c.id, Kind: c.kind, Mode: c.mode, Epoch: c.epoch, Head: c.head()}
		for _, p := range c.periods {
			if p.To == 0 || p.To >= r.From {
				info.Periods = append(info.Periods, p)
			}
		}
		out = append(out, info)
	}
	return out, nil
}

// Heads reads the heads by key; see im.Store.
func (s *Store) Heads(ctx context.Context, convs []string) (map[string]int64, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	heads := map[string]int64{}
	for _, id := range convs {
		if c := s.convs[id]; c != nil {
			heads[id] = c.head()
		}
	}
	return heads, nil
}

// Written gives what was written in a window of the past; see im.Store.
func (s *Store) Written(ctx context.Context, olderThan, window time.Duration) ([]im.Head, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	to := s.now().Add(-olderThan)
	from := to.Add(-window)
	var out []im.Head
	for _, id := range sorted(s.convs) {
		c := s.convs[id]
		for seq := c.head(); seq >= c.minSeq; seq-- {
			if at := c.events[seq-1].At; !at.Before(from) && at.Before(to) {
				out = append(out, im.Head{Conv: id, To: seq})
				break
			}
		}
	}
	return out, nil
}

// Lagging finds routed devices that are behind; see im.Store.
func (s *Store) Lagging(ctx context.Context, gateway string, heads []im.Head, limit int) ([]im.Lag, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var out []im.Lag
	for _, h := range heads {
		c := s.convs[h.Conv]
		if c == nil {
			continue
		}
		for _, name := range sorted(s.devices) {
			d := s.devices[name]
			if d.route == nil || d.route.gateway != gateway {
				continue
			}
			due := int64(0) // the last seq up to the head asked for that is the user's
			for seq := h.To; seq > 0 && due == 0; seq-- {
				if c.at(d.user, seq) {
					due = seq
				}
			}
			if got := c.delivered(name, d.route.install); got < due && len(out) < limit {
				// Judged by the intervals that had begun at the head asked for.
				began := conv{events: c.events}
				for _, p := range c.periods {
					if p.From <= h.To {
						began.periods = append(began.periods, p)
					}
				}
				head, _ := began.headOf(d.user)
				out = append(out, im.Lag{Device: name, Conv: c.id, Delivered: got, Head: head, Mode: c.mode})
			}
		}
	}
	return out, nil
}

package oracle

import (
	"context"
	"time"
)

// Age makes everything that was written in the conversation so far, tombstones too, older by this much.
func (s *Store) Age(ctx context.Context, id string, by time.Duration) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	c := s.convs[id]
	for i := range c.events {
		c.events[i].At = c.events[i].At.Add(-by)
	}
	for k, until := range c.tombs {
		c.tombs[k] = until.Add(-by)
	}
	return nil
}

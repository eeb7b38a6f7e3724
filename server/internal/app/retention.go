package app

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"imbench/server/internal/im"
)

// retainer is what retention needs of the store; postgres.Store satisfies it.
type retainer interface {
	TakeTurn(ctx context.Context, job, holder string, d time.Duration) (bool, error)
	Retain(ctx context.Context, limit int, keep time.Duration) (im.RetentionReport, error)
}

// retention is the background job that removes what is older than its conversation's retention. Each gateway runs one;
// that which has the turn (a row in the database) does the work, and the others find in each of their rounds that they
// have nothing to do, until its turn lapses. It belongs to one goroutine but for the counters.
type retention struct {
	store   retainer
	gateway string
	every   time.Duration // between two rounds
	batch   int           // events a step
	keep    time.Duration // of the removed messages' keys
	log     *slog.Logger

	steps, conversations, events, tombstones, failed atomic.Int64
	busy                                             atomic.Int64 // nanoseconds in the store
}

// run does a round every period, until ctx ends. What is logged is that it begins to fail, and that it works again: the
// counter says how often it failed.
func (r *retention) run(ctx context.Context) {
	failing := false
	for wait(ctx, r.every) {
		err := r.round(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			r.failed.Add(1)
		}
		switch {
		case err != nil && !failing:
			r.log.Warn("retention fails, and is tried again each period", "error", err)
		case err == nil && failing:
			r.log.Info("retention works again")
		}
		failing = err != nil
	}
}

// round does steps until nothing is due any more. After each it rests nine times as long as the step took (but no longer
// than a period, for which it has the turn), so that a backlog takes a tenth of one connection's time and no more.
func (r *retention) round(ctx context.Context) error {
	for {
		mine, err := r.store.TakeTurn(ctx, "retention", r.gateway, r.every)
		if err != nil || !mine {
			return err
		}
		began := time.Now()
		did, err := r.store.Retain(ctx, r.batch, r.keep)
		took := time.Since(began)
		r.steps.Add(1)
		r.conversations.Add(int64(did.Conversations))
		r.events.Add(did.Events)
		r.tombstones.Add(did.Tombstones)
		r.busy.Add(int64(took))
		if err != nil || !did.More || !wait(ctx, min(9*took, r.every)) {
			return err
		}
	}
}

// wait waits for d; false when ctx ended first.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (s snapshots) retention(m emitter) {
	r := s.p.retention
	m.counter("im_retention_steps_total", "Bounded steps of retention done by this gateway.", float64(r.steps.Load()))
	m.counter("im_retention_conversations_total", "Times that a conversation lost its beginning.", float64(r.conversations.Load()))
	m.counter("im_retention_events_total", "Events removed.", float64(r.events.Load()))
	m.counter("im_retention_tombstones_total", "Keys of removed messages that were forgotten.", float64(r.tombstones.Load()))
	m.counter("im_retention_failed_total", "Rounds that ended with an error.", float64(r.failed.Load()))
	m.counter("im_retention_busy_seconds_total", "Time spent in steps.", time.Duration(r.busy.Load()).Seconds())
}

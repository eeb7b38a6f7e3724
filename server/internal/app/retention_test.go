package app

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"imbench/server/internal/im"
)

// fakeRetainer has a backlog and one turn.
type fakeRetainer struct {
	mu      sync.Mutex
	backlog int64
	takes   time.Duration // a step
	holder  string
	until   time.Time
	err     error

	limit  int
	keep   time.Duration
	starts []time.Time // of the steps
	by     map[string]int
}

func (f *fakeRetainer) TakeTurn(_ context.Context, job, holder string, d time.Duration) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.holder != holder && time.Now().Before(f.until) {
		return false, nil
	}
	f.holder, f.until = holder, time.Now().Add(d)
	return job == "retention", nil
}

func (f *fakeRetainer) Retain(ctx context.Context, limit int, keep time.Duration) (im.RetentionReport, error) {
	wait(ctx, f.takes)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.limit, f.keep = limit, keep
	f.starts = append(f.starts, time.Now().Add(-f.takes))
	if f.by != nil {
		f.by[f.holder]++
	}
	n := min(f.backlog, int64(limit))
	f.backlog -= n
	return im.RetentionReport{Events: n, Conversations: 1, Tombstones: 2, More: f.backlog > 0}, f.err
}

func (f *fakeRetainer) rounds(gateway string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.by[gateway]
}

func newRetention(f *fakeRetainer, gateway string) *retention {
	return &retention{store: f, gateway: gateway, every: time.Minute, batch: 1000, keep: time.Hour, log: slog.New(slog.DiscardHandler)}
}

// A backlog is worked off in steps, with nine parts of rest to one of work; then a period passes.
func TestRetentionRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeRetainer{backlog: 3500, takes: 100 * time.Millisecond}
		r := newRetention(f, "g1")
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		done := make(chan struct{})
		go func() { r.run(ctx); close(done) }()
		time.Sleep(2*time.Minute + 4*time.Second) // virtual, as all of the clock in here
		synctest.Wait()
		cancel()
		<-done
		want := []time.Duration{60 * time.Second, 61 * time.Second, 62 * time.Second, 63 * time.Second, 123*time.Second + 100*time.Millisecond}
		if len(f.starts) != len(want) {
			t.Fatalf("%d steps, want %d", len(f.starts), len(want))
		}
		for i, at := range f.starts {
			if at.Sub(began) != want[i] {
				t.Errorf("step %d after %v, want %v", i, at.Sub(began), want[i])
			}
		}
		if f.limit != 1000 || f.keep != time.Hour {
			t.Errorf("limit %d, keep %v", f.limit, f.keep)
		}
		if r.events.Load() != 3500 || r.steps.Load() != 5 || r.tombstones.Load() != 10 || r.conversations.Load() != 5 ||
			time.Duration(r.busy.Load()) != 500*time.Millisecond || r.failed.Load() != 0 {
			t.Errorf("counted %d events, %d steps, %v", r.events.Load(), r.steps.Load(), time.Duration(r.busy.Load()))
		}
	})
}

// Of two gateways one does the work; when it is gone, the other one does.
func TestRetentionHasOneHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeRetainer{by: map[string]int{}}
		first, stopFirst := context.WithCancel(t.Context())
		second, stopSecond := context.WithCancel(t.Context())
		done := make(chan struct{}, 2)
		go func() { newRetention(f, "g1").run(first); done <- struct{}{} }()
		time.Sleep(10 * time.Second) // virtual, as all of the clock in here
		go func() { newRetention(f, "g2").run(second); done <- struct{}{} }()
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if f.rounds("g1") != 5 || f.rounds("g2") != 0 {
			t.Errorf("%d and %d rounds, want g1 alone to do them", f.rounds("g1"), f.rounds("g2"))
		}
		stopFirst()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		stopSecond()
		<-done
		<-done
		if f.rounds("g2") == 0 {
			t.Error("g2 does not go on")
		}
	})
}

// An error ends the round, is counted, and the next period tries again.
func TestRetentionFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeRetainer{backlog: 5000, err: errors.New("away")}
		r := newRetention(f, "g1")
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute+time.Second)
		defer cancel()
		r.run(ctx)
		if len(f.starts) != 3 || r.failed.Load() != 3 {
			t.Errorf("%d steps, %d failed, want 3 and 3", len(f.starts), r.failed.Load())
		}
	})
}

// However long it fails, the log says so once, and once that it works again.
func TestRetentionLogsChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeRetainer{}
		log := &syncBuffer{}
		r := newRetention(f, "g1")
		r.log = slog.New(slog.NewJSONHandler(log, nil))
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute+time.Second)
		defer cancel()
		set := func(err error) func() {
			return func() {
				f.mu.Lock()
				defer f.mu.Unlock()
				f.err = err
			}
		}
		time.AfterFunc(5*time.Minute+time.Second, set(errors.New("away")))
		time.AfterFunc(15*time.Minute+time.Second, set(nil))
		r.run(ctx)
		text := log.String()
		if r.failed.Load() != 10 || strings.Count(text, "\n") != 2 || !strings.Contains(text, "retention fails") || !strings.Contains(text, "works again") {
			t.Errorf("%d failed, logged:\n%s", r.failed.Load(), text)
		}
	})
}

package batch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"imbench/server/internal/im"
)

// fakePages takes 2 ms for a call and answers with the place in it; a conversation "bad" fails the whole call.
type fakePages struct {
	mu    sync.Mutex
	sizes []int
}

func (f *fakePages) SyncBatch(ctx context.Context, reqs []im.SyncReq) ([]im.SyncResult, error) {
	f.mu.Lock()
	f.sizes = append(f.sizes, len(reqs))
	f.mu.Unlock()
	select {
	case <-time.After(2 * time.Millisecond):
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", im.ErrUnavailable, ctx.Err())
	}
	res := make([]im.SyncResult, len(reqs))
	for i, r := range reqs {
		if r.Conv == "bad" {
			return nil, errors.New("a row of its own kind")
		}
		res[i].Page.Head = r.After
	}
	return res, nil
}

// One who asks alone waits for nobody; a crowd that comes while a call is under way shares the next ones.
func TestSyncsShareACallWhenTheyWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakePages{}
		s := NewSyncer(f, AckerConfig{Queue: 200})
		began := time.Now()
		var alone time.Duration
		s.Submit(t.Context(), im.SyncReq{Conv: "c"}, func(im.SyncResult) { alone = time.Since(began) })
		synctest.Wait()
		answered := 0
		for i := range 150 {
			r := im.SyncReq{Conv: "c", After: int64(i)}
			if i == 70 {
				r.Conv = "bad"
			}
			s.Submit(t.Context(), r, func(res im.SyncResult) {
				answered++
				if i == 70 != errors.Is(res.Err, im.ErrUnavailable) || i != 70 && res.Page.Head != int64(i) {
					t.Errorf("request %d: %+v", i, res)
				}
			})
		}
		var mu sync.Mutex
		var refused error // told by the worker, or at once
		for range 60 {
			s.Submit(t.Context(), im.SyncReq{Conv: "c"}, func(res im.SyncResult) {
				mu.Lock()
				defer mu.Unlock()
				refused = errors.Join(refused, res.Err)
			})
		}
		pass(time.Second)
		closeIt(t, s)
		st := s.Stats()
		if alone != 2*time.Millisecond || answered != 150 || f.sizes[0] != 1 || f.sizes[1] != 64 || st.Waiting != 0 || st.Failed != 1 {
			t.Errorf("alone after %v, %d answered, calls of %v, %+v", alone, answered, f.sizes, st)
		}
		if !errors.Is(refused, im.ErrUnavailable) || st.Refused != 11 {
			t.Errorf("%d refused beyond the limit: %v", st.Refused, refused)
		}
		var closed error
		s.Submit(t.Context(), im.SyncReq{Conv: "c"}, func(res im.SyncResult) { closed = res.Err })
		if !errors.Is(closed, im.ErrUnavailable) {
			t.Errorf("after the end: %v", closed)
		}
	})
}

// Who has gone before the turn came is not read for: the store's time is for those who wait.
func TestSyncsOfThoseWhoLeftAreNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakePages{}
		s := NewSyncer(f, AckerConfig{})
		gone, leave := context.WithCancel(t.Context())
		s.Submit(t.Context(), im.SyncReq{Conv: "c"}, func(im.SyncResult) {})
		synctest.Wait()
		left, answered := 0, 0
		for i := range 20 {
			ctx := t.Context()
			if i%2 == 0 {
				ctx = gone
			}
			s.Submit(ctx, im.SyncReq{Conv: "c", After: int64(i)}, func(res im.SyncResult) {
				switch {
				case i%2 == 0 && errors.Is(res.Err, im.ErrUnavailable) && errors.Is(res.Err, context.Canceled):
					left++
				case i%2 == 1 && res.Err == nil && res.Page.Head == int64(i):
					answered++
				}
			})
		}
		leave()
		pass(time.Second)
		s.Submit(gone, im.SyncReq{Conv: "c"}, func(im.SyncResult) { left++ })
		closeIt(t, s)
		if left != 11 || answered != 10 || !slices.Equal(f.sizes, []int{1, 10}) {
			t.Errorf("%d left and %d answered, calls of %v", left, answered, f.sizes)
		}
	})
}

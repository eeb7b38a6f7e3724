package batch

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"imbench/server/internal/im"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeStore is a log in memory that takes time, can lock conversations, and can fail.
type fakeStore struct {
	delay   time.Duration // of each call
	lockFor time.Duration // how long a waiting send waits for a locked conversation

	mu       sync.Mutex
	fail     func(reqs []im.SendReq) error
	locked   map[string]bool
	logs     map[string][]im.SendReq
	inFlight map[string]int // conversation → calls under way that hold it
	calls    [][]im.SendReq
	acks     [][]im.AckReq
	ackFail  func(reqs []im.AckReq) error
	claims   [][]im.RouteClaim
	releases [][]im.Route
	err      error // of every call
	overlap  bool  // two calls held one conversation at once
}

func newFake() *fakeStore {
	return &fakeStore{
		delay: 2 * time.Millisecond, lockFor: 100 * time.Millisecond,
		locked: map[string]bool{}, logs: map[string][]im.SendReq{}, inFlight: map[string]int{},
	}
}

func (f *fakeStore) wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", im.ErrUnavailable, ctx.Err())
	}
}

func (f *fakeStore) SendBatch(ctx context.Context, reqs []im.SendReq, wait bool) ([]im.SendResult, error) {
	f.hold(reqs, 1)
	defer f.hold(reqs, -1)
	d := f.delay
	f.mu.Lock()
	if wait && f.locked[reqs[0].Conv] {
		d = f.lockFor
	}
	f.mu.Unlock()
	if err := f.wait(ctx, d); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, append([]im.SendReq(nil), reqs...))
	if f.err != nil {
		return nil, f.err
	}
	if f.fail != nil {
		if err := f.fail(reqs); err != nil {
			return nil, err
		}
	}
	out := make([]im.SendResult, len(reqs))
	for i, r := range reqs {
		if f.locked[r.Conv] {
			out[i].Err = im.ErrBusy
			continue
		}
		out[i] = f.append(r)
	}
	return out, nil
}

func (f *fakeStore) hold(reqs []im.SendReq, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	seen := map[string]bool{}
	for _, r := range reqs {
		if !seen[r.Conv] {
			seen[r.Conv] = true
			if f.inFlight[r.Conv] += n; f.inFlight[r.Conv] > 1 {
				f.overlap = true
			}
		}
	}
}

func (f *fakeStore) append(r im.SendReq) im.SendResult {
	for i, old := range f.logs[r.Conv] {
		if old.CMID == r.CMID && old.From.User == r.From.User {
			return im.SendResult{Seq: int64(i + 1), Dup: true}
		}
	}
	f.logs[r.Conv] = append(f.logs[r.Conv], r)
	n := int64(len(f.logs[r.Conv]))
	return im.SendResult{Seq: n, MsgNo: n, MID: "mid-" + r.CMID, Epoch: 1}
}

func (f *fakeStore) lock(conv string, on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.locked[conv] = on
}

func (f *fakeStore) AckBatch(ctx context.Context, reqs []im.AckReq) ([]im.AckResult, error) {
	if err := f.wait(ctx, f.delay); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.acks = append(f.acks, append([]im.AckReq(nil), reqs...))
	if f.err != nil {
		return nil, f.err
	}
	if f.ackFail != nil {
		if err := f.ackFail(reqs); err != nil {
			return nil, err
		}
	}
	out := make([]im.AckResult, len(reqs))
	for i, r := range reqs {
		if out[i].Delivered = r.Seq; r.Seq > 100 {
			out[i] = im.AckResult{Err: im.ErrCursorAhead}
		}
	}
	return out, nil
}

func (f *fakeStore) ClaimRoutes(ctx context.Context, claims []im.RouteClaim) ([]im.RouteResult, error) {
	if err := f.wait(ctx, f.delay); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.claims = append(f.claims, append([]im.RouteClaim(nil), claims...))
	out := make([]im.RouteResult, len(claims))
	for i, c := range claims {
		if out[i].Generation = c.Conn * 10; c.Device == "unknown" {
			out[i] = im.RouteResult{Err: im.ErrUnknownDevice}
		}
	}
	return out, f.err
}

func (f *fakeStore) ReleaseRoutes(ctx context.Context, routes []im.Route) error {
	if err := f.wait(ctx, f.delay); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.releases = append(f.releases, append([]im.Route(nil), routes...))
	return f.err
}

// pass lets virtual time go by, until all goroutines of the bubble wait for something later.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func sizes[T any](calls [][]T) (n []int) {
	for _, c := range calls {
		n = append(n, len(c))
	}
	return n
}

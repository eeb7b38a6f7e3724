package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"imbench/server/internal/im"
)

// changes is an actionStore in which each recall, join and leave takes as long as a lock timeout, and conversations can
// be locked. What was announced is noted with it, in order.
type changes struct {
	im.Reads
	mu     sync.Mutex
	locked map[string]bool
	seq    int64
	under  map[string]int // calls under way, by conversation
	most   int            // calls under way at once, at most
	twice  bool           // two calls for one conversation were under way at once
	err    error
	did    []string
}

const lockTimeout = lockWait

func newChanges() *changes { return &changes{locked: map[string]bool{}, under: map[string]int{}} }

func (c *changes) note(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.did = append(c.did, fmt.Sprintf(format, args...))
}

func (c *changes) lock(conv string, on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.locked[conv] = on
}

func (c *changes) change(ctx context.Context, conv string) (int64, error) {
	c.mu.Lock()
	c.under[conv]++
	all := 0
	for _, n := range c.under {
		all += n
	}
	c.most, c.twice = max(c.most, all), c.twice || c.under[conv] > 1
	busy := c.locked[conv]
	c.mu.Unlock()
	if busy {
		wait(ctx, lockTimeout)
	} else {
		wait(ctx, time.Millisecond)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.under[conv]--
	switch {
	case ctx.Err() != nil:
		return 0, fmt.Errorf("%w: %w", im.ErrUnavailable, ctx.Err())
	case busy:
		return 0, fmt.Errorf("%w: lock timeout", im.ErrBusy)
	case c.err != nil:
		return 0, c.err
	}
	c.seq++
	return c.seq, nil
}

func (c *changes) Recall(ctx context.Context, r im.RecallReq) im.SendResult {
	seq, err := c.change(ctx, r.Conv)
	return im.SendResult{Seq: seq, Dup: r.CMID == "again", Err: err}
}

func (c *changes) Join(ctx context.Context, _ im.Principal, conv, _ string) (int64, error) {
	return c.change(ctx, conv)
}

func (c *changes) Leave(ctx context.Context, _ im.Principal, conv, _ string) (int64, error) {
	return c.change(ctx, conv)
}

func (c *changes) Direct(_ context.Context, _ im.Principal, peer string) (string, bool, error) {
	return "d-1", peer == "new", nil
}

func (c *changes) Sync(context.Context, im.SyncReq) (im.Page, error) { return im.Page{}, nil }

type told struct {
	c    *changes
	name string
}

func (t told) MembersChanged(conv string)    { t.c.note("%s members %s", t.name, conv) }
func (t told) AnnounceMembers(conv string)   { t.MembersChanged(conv) }
func (t told) Announced(heads []im.Head)     { t.c.note("%s heads %v", t.name, heads) }
func (t told) AnnounceHeads(heads []im.Head) { t.Announced(heads) }

// echo is a batcher that answers after a while, or never.
type echo[Q, R any] struct {
	after time.Duration
	res   R
}

func (e echo[Q, R]) Submit(_ Q, done func(R)) {
	if e.after > 0 {
		time.AfterFunc(e.after, func() { done(e.res) })
	}
}

func newActions(c *changes, slots, most int) *actions {
	return &actions{store: c, hub: told{c, "hub"}, bus: told{c, "bus"}, turns: newTurns(slots, most), receipts: make(chan struct{}, 2)}
}

// What is committed is announced, here and elsewhere, and members before the event that changed them; what failed or had
// been done before is not.
func TestChangesAreAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChanges()
		a, me, ctx := newActions(c, 2, 10), im.Principal{User: "ana", Device: "a1"}, t.Context()
		if seq, err := a.Join(ctx, me, "c", "cem"); seq != 1 || err != nil {
			t.Errorf("join: %d, %v", seq, err)
		}
		if seq, err := a.Leave(ctx, me, "c", "cem"); seq != 2 || err != nil {
			t.Errorf("leave: %d, %v", seq, err)
		}
		if r := a.Recall(ctx, im.RecallReq{From: me, Conv: "c", Seq: 1, CMID: "k"}); r.Seq != 3 || r.Err != nil {
			t.Errorf("recall: %+v", r)
		}
		if conv, created, err := a.Direct(ctx, me, "new"); conv != "d-1" || !created || err != nil {
			t.Errorf("direct: %s, %v, %v", conv, created, err)
		}
		want := []string{"hub members c", "bus members c", "hub heads [{c 1 1}]", "bus heads [{c 1 1}]",
			"hub members c", "bus members c", "hub heads [{c 2 2}]", "bus heads [{c 2 2}]",
			"hub heads [{c 3 3}]", "bus heads [{c 3 3}]",
			"hub members d-1", "bus members d-1", "hub heads [{d-1 1 2}]", "bus heads [{d-1 1 2}]"}
		if !slices.Equal(c.did, want) {
			t.Errorf("told\n%q, want\n%q", c.did, want)
		}
		c.did = nil
		if r := a.Recall(ctx, im.RecallReq{From: me, Conv: "c", Seq: 1, CMID: "again"}); !r.Dup || r.Err != nil {
			t.Errorf("recall: %+v", r)
		}
		if _, created, err := a.Direct(ctx, me, "old"); created || err != nil {
			t.Errorf("direct: %v", err)
		}
		c.err = im.ErrAlreadyMember
		if _, err := a.Join(ctx, me, "c", "cem"); !errors.Is(err, im.ErrAlreadyMember) {
			t.Errorf("join: %v", err)
		}
		c.err = im.ErrRecallWindow
		if r := a.Recall(ctx, im.RecallReq{From: me, Conv: "c", Seq: 1, CMID: "k"}); !errors.Is(r.Err, im.ErrRecallWindow) {
			t.Errorf("recall: %+v", r)
		}
		if len(c.did) != 0 {
			t.Errorf("told %q", c.did)
		}
		c.err = im.ErrUnavailable // it may have been done
		if _, err := a.Leave(ctx, me, "c", "cem"); !errors.Is(err, im.ErrUnavailable) {
			t.Errorf("leave: %v", err)
		}
		if want := []string{"hub members c", "bus members c"}; !slices.Equal(c.did, want) {
			t.Errorf("told %q, want %q", c.did, want)
		}
	})
}

// A lock that another session holds for a while is waited for; one that stays is an unknown outcome in bounded time.
func TestLockedConversationIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChanges()
		a := newActions(c, 2, 10)
		c.lock("c", true)
		time.AfterFunc(2*time.Second, func() { c.lock("c", false) })
		began := time.Now()
		if seq, err := a.Join(t.Context(), im.Principal{}, "c", "u"); seq != 1 || err != nil {
			t.Errorf("%d, %v", seq, err)
		}
		if d := time.Since(began); d < 2*time.Second || d > 2*time.Second+lockTimeout+2*lockPause+10*time.Millisecond {
			t.Errorf("took %v", d)
		}
		c.lock("c", true)
		began = time.Now()
		if r := a.Recall(t.Context(), im.RecallReq{Conv: "c"}); !errors.Is(r.Err, im.ErrUnavailable) {
			t.Errorf("%+v", r)
		}
		if d := time.Since(began); d > lockPatience+lockTimeout || d < lockPatience-lockTimeout-2*lockPause {
			t.Errorf("gave up after %v", d)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began = time.Now()
		if _, err := a.Leave(ctx, im.Principal{}, "c", "u"); !errors.Is(err, im.ErrUnavailable) || time.Since(began) > time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		if a.turns.waiting() != 0 || len(a.turns.convs) != 0 || a.turns.busy.Load() < 10 {
			t.Errorf("%d wait, %d conversations, %d tries found a lock", a.turns.waiting(), len(a.turns.convs), a.turns.busy.Load())
		}
	})
}

// A stuck conversation with a crowd before it takes one connection: others go on. Too large a crowd is turned away.
func TestStuckConversationTakesOneTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChanges()
		a := newActions(c, 2, 31)
		c.lock("stuck", true)
		var wg sync.WaitGroup
		var refused int
		for i := range 40 {
			wg.Go(func() {
				_, err := a.Join(t.Context(), im.Principal{}, "stuck", fmt.Sprint(i))
				c.mu.Lock()
				defer c.mu.Unlock()
				if !errors.Is(err, im.ErrUnavailable) {
					t.Errorf("%v", err)
				}
				refused++
			})
		}
		synctest.Wait()
		if refused != 9 || a.turns.refused.Load() != 9 {
			t.Errorf("%d turned away at once, %d counted", refused, a.turns.refused.Load())
		}
		c.note("begin")
		for i := range 4 {
			conv := fmt.Sprint("c", i)
			for a.turns.waiting() >= 31 {
				wait(t.Context(), time.Millisecond)
			}
			began := time.Now()
			if _, err := a.Join(t.Context(), im.Principal{}, conv, "u"); err != nil || time.Since(began) > 10*time.Millisecond {
				t.Errorf("%s: %v after %v", conv, err, time.Since(began))
			}
		}
		wg.Wait()
		if c.most > 2 || c.twice {
			t.Errorf("%d calls at once, two for one conversation: %v", c.most, c.twice)
		}
	})
}

// Conversations that stay locked, more of them than there are slots, hardly delay a join elsewhere.
func TestLockedConversationsDoNotSlowOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChanges()
		a := newActions(c, 2, 100)
		var wg sync.WaitGroup
		for _, conv := range []string{"l1", "l2", "l3"} {
			c.lock(conv, true)
			for range 5 {
				wg.Go(func() {
					if _, err := a.Join(t.Context(), im.Principal{}, conv, "u"); !errors.Is(err, im.ErrUnavailable) {
						t.Error(err)
					}
				})
			}
		}
		for i := range 100 {
			began := time.Now()
			if _, err := a.Join(t.Context(), im.Principal{}, fmt.Sprint("c", i), "u"); err != nil || time.Since(began) > 100*time.Millisecond {
				t.Errorf("%v after %v", err, time.Since(began))
			}
			wait(t.Context(), 17*time.Millisecond)
		}
		wg.Wait()
	})
}

// When the gateway ends, who waits for a lock or for a turn is answered at once; what has not to wait is still done.
func TestDrainAnswersWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChanges()
		a := newActions(c, 2, 100)
		c.lock("c", true)
		var wg sync.WaitGroup
		for range 40 { // some try or pause, most wait for their turn
			wg.Go(func() {
				if _, err := a.Join(t.Context(), im.Principal{}, "c", "u"); !errors.Is(err, im.ErrUnavailable) {
					t.Error(err)
				}
			})
		}
		wait(t.Context(), time.Second)
		began := time.Now()
		a.turns.drain()
		a.turns.drain()
		wg.Wait()
		if d := time.Since(began); d > lockWait {
			t.Errorf("answered after %v", d)
		}
		if _, err := a.Join(t.Context(), im.Principal{}, "d", "u"); err != nil {
			t.Error(err)
		}
		began = time.Now()
		if _, err := a.Join(t.Context(), im.Principal{}, "c", "u"); !errors.Is(err, im.ErrUnavailable) || time.Since(began) > lockWait {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// Receipts counts with a second of work, and notes how many at once.
func (c *changes) Receipts(ctx context.Context, _ im.Principal, conv string, _ int64) (im.Receipts, error) {
	c.mu.Lock()
	c.under[conv]++
	c.most = max(c.most, c.under[conv])
	c.mu.Unlock()
	wait(ctx, time.Second)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.under[conv]--
	return im.Receipts{Conv: conv}, nil
}

// Few counts of receipts are under way at once; more wait for them, and not for long.
func TestReceiptsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChanges()
		a := newActions(c, 2, 10)
		var wg sync.WaitGroup
		var done, refused atomic.Int64
		for range 10 {
			wg.Go(func() {
				switch _, err := a.Receipts(t.Context(), im.Principal{}, "c", 1); {
				case err == nil:
					done.Add(1)
				case errors.Is(err, im.ErrRateLimited):
					refused.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		wait(t.Context(), 500*time.Millisecond)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := a.Receipts(ctx, im.Principal{}, "c", 1); !errors.Is(err, im.ErrUnavailable) {
			t.Error(err)
		}
		wg.Wait()
		if c.most != 2 || done.Load() < 4 || done.Load()+refused.Load() != 10 || refused.Load() < 4 {
			t.Errorf("%d at once, %d done, %d refused", c.most, done.Load(), refused.Load())
		}
	})
}

func TestSendAndReadWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &actions{send: echo[im.SendReq, im.SendResult]{time.Second, im.SendResult{Seq: 3}}, read: echo[im.ReadReq, im.ReadResult]{time.Second, im.ReadResult{Read: 3}}}
		if r := a.Send(t.Context(), im.SendReq{}); r.Seq != 3 || r.Err != nil {
			t.Errorf("%+v", r)
		}
		if r := a.Read(t.Context(), im.ReadReq{}); r.Read != 3 || r.Err != nil {
			t.Errorf("%+v", r)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if r := a.Send(ctx, im.SendReq{}); !errors.Is(r.Err, im.ErrUnavailable) {
			t.Errorf("%+v", r)
		}
		if r := a.Read(ctx, im.ReadReq{}); !errors.Is(r.Err, im.ErrUnavailable) {
			t.Errorf("%+v", r)
		}
	})
}

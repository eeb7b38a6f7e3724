package batch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"imbench/server/internal/im"
)

// outcomes collects the results of sends by cmid. In a synctest bubble callbacks and checks do not overlap once Wait
// has returned, but they run on several goroutines: the channel orders them.
type outcomes struct {
	ch  chan outcome
	all map[string]im.SendResult
	seq []string // cmids in the order of their callbacks
}

type outcome struct {
	cmid string
	res  im.SendResult
	at   time.Time
}

func newOutcomes() *outcomes {
	return &outcomes{ch: make(chan outcome, 10_000), all: map[string]im.SendResult{}}
}

func (o *outcomes) submit(s *Sender, conv, cmid string) {
	req := im.SendReq{From: im.Principal{User: "u", Device: "d", Install: 1}, Conv: conv, CMID: cmid, Body: "body of " + cmid}
	s.Submit(req, func(r im.SendResult) { o.ch <- outcome{cmid, r, time.Now()} })
}

func (o *outcomes) collect() *outcomes {
	for {
		select {
		case x := <-o.ch:
			o.all[x.cmid] = x.res
			o.seq = append(o.seq, x.cmid)
		default:
			return o
		}
	}
}

func closeIt(t *testing.T, c interface{ Close(context.Context) error }) {
	t.Helper()
	if err := c.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

func cmids(log []im.SendReq) (ids []string) {
	for _, r := range log {
		ids = append(ids, r.CMID)
	}
	return ids
}

func TestSendsShareTheNextCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, o := newFake(), newOutcomes()
		s := NewSender(f, SenderConfig{MaxBatch: 4})
		o.submit(s, "c0", "k0")
		synctest.Wait() // the first is under way, alone
		for i := 1; i <= 6; i++ {
			o.submit(s, fmt.Sprintf("c%d", i), fmt.Sprintf("k%d", i))
		}
		pass(time.Second)
		if got := sizes(f.calls); !slices.Equal(got, []int{1, 4, 2}) {
			t.Errorf("batches of %v, want 1, 4, 2", got)
		}
		for id, r := range o.collect().all {
			if r.Err != nil || r.Seq != 1 {
				t.Errorf("%s: %+v", id, r)
			}
		}
		st := s.Stats()
		if len(o.all) != 7 || st.Rows != 7 || st.Batches != 3 || st.Requests != 7 || st.Waiting != 0 || st.Busy != 6*time.Millisecond || st.Sizes[0] != 1 || st.Sizes[1] != 1 || st.Sizes[2] != 1 {
			t.Errorf("%d outcomes, %+v", len(o.all), st)
		}
		closeIt(t, s)
	})
}

func TestLingerOnlyInCompany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, o := newFake(), newOutcomes()
		s := NewSender(f, SenderConfig{Linger: 5 * time.Millisecond})
		alone := func(id string) time.Duration {
			began := time.Now()
			o.submit(s, "c", id)
			return (<-o.ch).at.Sub(began)
		}
		if d := alone("k1"); d != 2*time.Millisecond {
			t.Errorf("the first took %v: there was nobody to wait for", d)
		}
		if d := alone("k2"); d != 2*time.Millisecond {
			t.Errorf("after a batch of one: %v", d)
		}
		o.submit(s, "c", "k3")
		synctest.Wait()
		o.submit(s, "c", "k4")
		o.submit(s, "c", "k5")
		for range 3 {
			<-o.ch
		}
		if d := alone("k6"); d != 7*time.Millisecond {
			t.Errorf("after a batch of two: %v, want 5 ms of waiting and 2 ms of commit", d)
		}
		if d := alone("k7"); d != 2*time.Millisecond {
			t.Errorf("after a wait in vain: %v", d)
		}
		if got := sizes(f.calls); !slices.Equal(got, []int{1, 1, 1, 2, 1, 1}) {
			t.Errorf("batches of %v", got)
		}
		closeIt(t, s)
	})
}

// TestLingerEndsWhenAllAreBack: callers who send one message after the other wait for no one else, and for one who stays
// away four times as long as a commit takes.
func TestLingerEndsWhenAllAreBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := NewSender(f, SenderConfig{Linger: time.Second})
		began, done := time.Now(), make(chan im.SendResult, 4)
		submit := func(device string, n int) {
			s.Submit(im.SendReq{From: im.Principal{User: "u", Device: device}, Conv: "c", CMID: fmt.Sprint(device, n)}, func(r im.SendResult) { done <- r })
		}
		submit("first", 0)
		synctest.Wait() // its commit is under way: the first round waits for it, all together
		const rounds = 20
		for n := range rounds {
			for i := range cap(done) {
				submit(fmt.Sprint("d", i), n)
			}
			if n == 0 {
				<-done
			}
			synctest.Wait()
			for range cap(done) {
				<-done
			}
		}
		if took, want := time.Since(began), (1+rounds)*f.delay; took != want {
			t.Errorf("%d rounds took %v, want %v: one commit each", rounds, took, want)
		}
		// One of them stays away: that is waited for, and no longer.
		began = time.Now()
		for i := range cap(done) - 1 {
			submit(fmt.Sprint("d", i), rounds)
		}
		for range cap(done) - 1 {
			<-done
		}
		if took, want := time.Since(began), 5*f.delay; took != want {
			t.Errorf("with one who stays away it took %v, want %v", took, want)
		}
		closeIt(t, s)
	})
}

func TestOnCommitBeforeDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, o := newFake(), newOutcomes()
		var events []im.Event
		s := NewSender(f, SenderConfig{OnCommit: func(evs []im.Event) {
			events = append(events, evs...)
			if len(o.ch) > 0 {
				t.Error("an outcome came before the announcement")
			}
		}})
		o.submit(s, "first", "k")
		synctest.Wait()
		o.submit(s, "b", "k1")
		o.submit(s, "a", "k2")
		o.submit(s, "b", "k3")
		o.submit(s, "a", "k2") // a dup: no event
		<-o.ch                 // the first's own outcome, which does come before the second announcement
		pass(time.Second)
		var got []string
		for _, ev := range events[1:] {
			got = append(got, fmt.Sprintf("%s:%d:%s", ev.Conv, ev.Seq, ev.CMID))
		}
		if want := []string{"a:1:k2", "b:1:k1", "b:2:k3"}; !slices.Equal(got, want) {
			t.Errorf("events %v, want %v", got, want)
		}
		if ev := events[1]; ev.Sender != "u" || ev.SenderDevice != "d" || ev.Body != "body of k2" || ev.MID != "mid-k2" || ev.Kind != im.KindMsg || ev.Epoch != 1 || ev.MsgNo != 1 {
			t.Errorf("%+v", ev)
		}
		if st := s.Stats(); st.Dups != 1 || st.Rows != 4 {
			t.Errorf("%+v", st)
		}
		closeIt(t, s)
	})
}

func TestErrorsSplitTheBatch(t *testing.T) {
	bad := errors.New("a constraint of the database")
	synctest.Test(t, func(t *testing.T) {
		f, o := newFake(), newOutcomes()
		f.fail = func(reqs []im.SendReq) error {
			for _, r := range reqs {
				if strings.HasPrefix(r.CMID, "bad") {
					return bad
				}
			}
			return nil
		}
		s := NewSender(f, SenderConfig{})
		o.submit(s, "c", "first")
		synctest.Wait()
		for i := range 16 {
			id := fmt.Sprint("k", i)
			if i == 5 {
				id = "bad"
			}
			o.submit(s, fmt.Sprint("c", i%3), id)
		}
		pass(time.Second)
		for id, r := range o.collect().all {
			if id == "bad" {
				if !errors.Is(r.Err, bad) || !errors.Is(r.Err, im.ErrUnavailable) {
					t.Errorf("the bad one: %v", r.Err)
				}
			} else if r.Err != nil {
				t.Errorf("%s: %v", id, r.Err)
			}
		}
		if st := s.Stats(); len(o.all) != 17 || st.Splits != 4 || st.Failed != 1 {
			t.Errorf("%d outcomes, %+v", len(o.all), st)
		}
		// Halves, not single commits: the rest of 16 came in 8, 4, 2 and 1.
		if n := len(f.calls); n != 1+1+2*4 {
			t.Errorf("%d calls: %v", n, sizes(f.calls))
		}
		closeIt(t, s)
	})
}

func TestUnknownOutcomeIsNotTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, o := newFake(), newOutcomes()
		f.err = fmt.Errorf("%w: connection refused", im.ErrUnavailable)
		s := NewSender(f, SenderConfig{})
		for i := range 10 {
			o.submit(s, "c", fmt.Sprint("k", i))
		}
		pass(time.Second)
		for id, r := range o.collect().all {
			if !errors.Is(r.Err, im.ErrUnavailable) {
				t.Errorf("%s: %v", id, r.Err)
			}
		}
		sent := 0
		for _, n := range sizes(f.calls) {
			sent += n
		}
		if st := s.Stats(); len(o.all) != 10 || sent != 10 || st.Splits != 0 || st.Failed != 10 {
			t.Errorf("%d outcomes, %d requests sent, %+v", len(o.all), sent, st)
		}
		closeIt(t, s)
	})
}

func TestQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, o := newFake(), newOutcomes()
		f.delay = time.Second
		s := NewSender(f, SenderConfig{Queue: 10})
		for i := range 25 {
			o.submit(s, "c", fmt.Sprint("k", i))
		}
		if n := len(o.collect().all); n != 15 {
			t.Errorf("%d refused at once, want 15", n)
		}
		for id, r := range o.all {
			if !errors.Is(r.Err, im.ErrUnavailable) {
				t.Errorf("%s: %v", id, r.Err)
			}
		}
		pass(time.Minute)
		if st := s.Stats(); len(o.collect().all) != 25 || st.Refused != 15 || st.Rows != 10 {
			t.Errorf("%d outcomes, %+v", len(o.all), st)
		}
		closeIt(t, s)
	})
}

func TestCloseDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, o := newFake(), newOutcomes()
		f.lock("hot", true)
		s := NewSender(f, SenderConfig{MaxBatch: 8})
		for i := range 100 {
			o.submit(s, []string{"cold", "hot"}[i%2], fmt.Sprint("k", i))
		}
		time.AfterFunc(300*time.Millisecond, func() { f.lock("hot", false) })
		closeIt(t, s)
		closeIt(t, s)
		for id, r := range o.collect().all {
			if r.Err != nil {
				t.Errorf("%s: %v", id, r.Err)
			}
		}
		if len(o.all) != 100 {
			t.Errorf("%d outcomes", len(o.all))
		}
		o.submit(s, "c", "late")
		if r := o.collect().all["late"]; !errors.Is(r.Err, im.ErrUnavailable) {
			t.Errorf("after Close: %v", r.Err)
		}
	})
}

func TestCloseOutOfTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, o := newFake(), newOutcomes()
		f.lock("hot", true)
		s := NewSender(f, SenderConfig{})
		for i := range 10 {
			o.submit(s, "hot", fmt.Sprint("k", i))
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := s.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close: %v", err)
		}
		for id, r := range o.collect().all {
			if !errors.Is(r.Err, im.ErrUnavailable) {
				t.Errorf("%s: %v", id, r.Err)
			}
		}
		if len(o.all) != 10 {
			t.Errorf("%d outcomes", len(o.all))
		}
	})
}

// TestSendOrder: whatever is locked and whatever fails, the log of a conversation holds its sends in the order of
// Submit, each once, and two transactions never hold one conversation at once (O5).
func TestSendOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SliceOfN(rapid.IntRange(0, 9), 1, 60).Draw(rt, "steps")
		workers := rapid.IntRange(1, 3).Draw(rt, "workers")
		maxBatch := rapid.IntRange(1, 9).Draw(rt, "max")
		synctest.Test(t, func(t *testing.T) {
			f, o := newFake(), newOutcomes()
			f.fail = func(reqs []im.SendReq) error {
				for _, r := range reqs {
					if strings.HasPrefix(r.CMID, "bad") {
						return errors.New("bad")
					}
				}
				return nil
			}
			s := NewSender(f, SenderConfig{Workers: workers, MaxBatch: maxBatch, LaneTTL: time.Hour})
			want, n := map[string][]string{}, 0
			for _, step := range steps {
				conv := fmt.Sprint("c", step%3)
				switch {
				case step < 6:
					for range step + 1 {
						n++
						id := fmt.Sprint("k", n)
						if n%7 == 0 {
							id = fmt.Sprint("bad", n)
						} else {
							want[conv] = append(want[conv], id)
						}
						o.submit(s, conv, id)
					}
				case step == 6:
					pass(3 * time.Millisecond)
				case step == 7:
					pass(150 * time.Millisecond)
				default:
					f.lock("c1", step == 8)
				}
			}
			f.lock("c1", false)
			closeIt(t, s)
			for conv, ids := range want {
				if got := cmids(f.logs[conv]); !slices.Equal(got, ids) {
					rt.Errorf("%s: %v, want %v", conv, got, ids)
				}
			}
			if f.overlap {
				rt.Errorf("two transactions held one conversation")
			}
			if len(o.collect().all) != n {
				rt.Errorf("%d outcomes of %d", len(o.all), n)
			}
		})
	})
}

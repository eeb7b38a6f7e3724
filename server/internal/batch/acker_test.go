package batch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"imbench/server/internal/im"
)

func TestAcksGatherForAWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		a := NewAcker(f, AckerConfig{MaxBatch: 5})
		type outcome struct {
			seq int64
			res im.AckResult
			at  time.Duration
		}
		got := make(chan outcome, 100)
		began := time.Now()
		submit := func(device string, seq int64) {
			a.Submit(im.AckReq{From: im.Principal{User: "u", Device: device}, Conv: "c", Seq: seq}, func(r im.AckResult) {
				got <- outcome{seq, r, time.Since(began)}
			})
		}
		submit("d1", 3)
		pass(5 * time.Millisecond)
		submit("d1", 4)
		submit("d2", 4)
		submit("d2", 101) // refused by the store; the others are not
		pass(100 * time.Millisecond)
		if len(f.acks) != 1 || len(f.acks[0]) != 4 {
			t.Fatalf("writes %v", f.acks)
		}
		for range 4 {
			o := <-got
			if o.at != 22*time.Millisecond {
				t.Errorf("done after %v, want 20 ms window and 2 ms write", o.at)
			}
			if o.seq == 101 != errors.Is(o.res.Err, im.ErrCursorAhead) || o.seq != 101 && o.res.Delivered != o.seq {
				t.Errorf("%+v", o)
			}
		}
		if st := a.Stats(); st.Rows != 2 || st.Requests != 4 || st.Batches != 1 || st.Waiting != 0 {
			t.Errorf("%+v", st)
		}
		// A whole batch does not wait for the window.
		began = time.Now()
		for i := range 5 {
			submit(fmt.Sprint("d", i), 5)
		}
		for range 5 {
			if o := <-got; o.at != 2*time.Millisecond {
				t.Errorf("a full batch took %v", o.at)
			}
		}
		closeIt(t, a)
	})
}

func TestAckErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.ackFail = func(reqs []im.AckReq) error {
			for _, r := range reqs {
				if r.Conv == "bad" {
					return errors.New("a row of its own kind")
				}
			}
			return nil
		}
		a := NewAcker(f, AckerConfig{})
		results := make(map[string]error)
		ch := make(chan string, 10)
		for _, conv := range []string{"a", "b", "bad", "c"} {
			a.Submit(im.AckReq{Conv: conv, Seq: 1}, func(r im.AckResult) {
				results[conv] = r.Err
				ch <- conv
			})
		}
		for range 4 {
			<-ch
		}
		for conv, err := range results {
			if conv == "bad" != errors.Is(err, im.ErrUnavailable) {
				t.Errorf("%s: %v", conv, err)
			}
		}
		if got := sizes(f.acks); !slices.Equal(got, []int{4, 2, 2, 1, 1}) {
			t.Errorf("writes of %v", got)
		}
		if st := a.Stats(); st.Failed != 1 || st.Rows != 3 {
			t.Errorf("%+v", st)
		}
		closeIt(t, a)
		var late error
		a.Submit(im.AckReq{}, func(r im.AckResult) { late = r.Err })
		if !errors.Is(late, im.ErrUnavailable) {
			t.Errorf("after Close: %v", late)
		}
	})
}

func TestAckerCloseDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		a := NewAcker(f, AckerConfig{Workers: 3, Window: time.Hour, Queue: 500})
		done := make(chan error, 1000)
		for i := range 600 {
			a.Submit(im.AckReq{From: im.Principal{Device: fmt.Sprint(i)}, Seq: 1}, func(r im.AckResult) { done <- r.Err })
		}
		refused := len(done)
		closeIt(t, a)
		if len(done) != 600 || refused != 100 || a.Stats().Refused != 100 {
			t.Errorf("%d outcomes, %d refused at once", len(done), refused)
		}
	})
}

func TestClaimsGather(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c := NewClaimer(f, ClaimerConfig{})
		type outcome struct {
			device string
			res    im.RouteResult
			err    error
		}
		got := make(chan outcome, 10)
		for i, dev := range []string{"d0", "d1", "unknown"} {
			go func() {
				r, err := c.Claim(context.Background(), im.RouteClaim{Device: dev, Conn: int64(i)})
				got <- outcome{dev, r, err}
			}()
		}
		for range 3 {
			o := <-got
			switch o.device {
			case "d1":
				if o.err != nil || o.res.Generation != 10 {
					t.Errorf("%+v", o)
				}
			case "unknown":
				if !errors.Is(o.err, im.ErrUnknownDevice) || o.res.Err != o.err {
					t.Errorf("%+v", o)
				}
			}
		}
		c.Release(im.Route{Device: "d0", Generation: 1})
		c.Release(im.Route{Device: "d1", Generation: 10})
		closeIt(t, c)
		closeIt(t, c)
		if got := sizes(f.claims); !slices.Equal(got, []int{3}) {
			t.Errorf("claims in %v", got)
		}
		if got := sizes(f.releases); !slices.Equal(got, []int{2}) {
			t.Errorf("releases in %v", got)
		}
		if _, err := c.Claim(context.Background(), im.RouteClaim{}); !errors.Is(err, im.ErrUnavailable) {
			t.Errorf("after Close: %v", err)
		}
	})
}

func TestAbandonedClaimIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.delay = time.Second
		c := NewClaimer(f, ClaimerConfig{})
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		if _, err := c.Claim(ctx, im.RouteClaim{Device: "d", Conn: 7}); !errors.Is(err, im.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		closeIt(t, c)
		if len(f.releases) != 1 || !slices.Equal(f.releases[0], []im.Route{{Device: "d", Generation: 70}}) {
			t.Errorf("releases %v", f.releases)
		}
	})
}

func TestClaimsOfADatabaseThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.err = im.ErrUnavailable
		c := NewClaimer(f, ClaimerConfig{})
		if _, err := c.Claim(context.Background(), im.RouteClaim{Device: "d"}); !errors.Is(err, im.ErrUnavailable) {
			t.Errorf("%v", err)
		}
		c.Release(im.Route{Device: "d", Generation: 1})
		closeIt(t, c)
		if st := c.Stats(); st.Claims.Failed != 1 || st.Releases.Failed != 1 || st.Claims.Waiting != 0 || st.Releases.Waiting != 0 {
			t.Errorf("%+v", st)
		}
	})
}

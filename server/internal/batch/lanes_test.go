package batch

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"imbench/server/internal/im"
)

func TestLockedConversationWaitsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, o := newFake(), newOutcomes()
		f.lock("hot", true)
		s := NewSender(f, SenderConfig{})
		var want []string
		for i := range 50 {
			o.submit(s, "hot", fmt.Sprint("hot", i))
			o.submit(s, "cold", fmt.Sprint("cold", i))
			want = append(want, fmt.Sprint("hot", i))
			pass(5 * time.Millisecond)
		}
		pass(10 * time.Millisecond)
		for id := range o.collect().all {
			if strings.HasPrefix(id, "hot") {
				t.Errorf("%s has an outcome", id)
			}
		}
		if len(o.all) != 50 {
			t.Errorf("%d of 50 sends of the free conversation are done", len(o.all))
		}
		f.lock("hot", false)
		pass(time.Second)
		if got := cmids(f.logs["hot"]); !slices.Equal(got, want) {
			t.Errorf("order %v, want %v", got, want)
		}
		// The lane has closed: the next goes with the shared batch again.
		before := s.Stats().Contended
		o.submit(s, "hot", "later")
		pass(time.Second)
		if st := s.Stats(); st.Contended != before || before != 50 || st.LockWaits == 0 || st.Waiting != 0 {
			t.Errorf("%+v", st)
		}
		closeIt(t, s)
	})
}

func TestLaneGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, o := newFake(), newOutcomes()
		f.lock("hot", true)
		s := NewSender(f, SenderConfig{LaneTTL: time.Second, LaneCap: 3})
		for i := range 5 {
			o.submit(s, "hot", fmt.Sprint("k", i))
			pass(10 * time.Millisecond)
		}
		pass(500 * time.Millisecond)
		full := len(o.collect().all) // k4, or k3 too: one may be in a waiter's hand
		if full == 0 || full > 2 || !errors.Is(o.all["k4"].Err, im.ErrUnavailable) {
			t.Errorf("a full lane refused %v", o.all)
		}
		pass(2 * time.Second)
		for id, r := range o.collect().all {
			if !errors.Is(r.Err, im.ErrUnavailable) {
				t.Errorf("%s: %v", id, r.Err)
			}
		}
		if len(o.all) != 5 || s.Stats().Waiting != 0 {
			t.Errorf("%d outcomes of 5", len(o.all))
		}
		closeIt(t, s)
	})
}

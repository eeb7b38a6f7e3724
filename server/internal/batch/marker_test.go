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

// fakeReads keeps positions in memory; a user "bad" fails the whole call, a conversation "none" only its request.
type fakeReads struct {
	mu    sync.Mutex
	pos   map[row]int64
	calls [][]im.ReadReq
	err   error
}

func (f *fakeReads) ReadBatch(_ context.Context, reqs []im.ReadReq) ([]im.ReadResult, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, slices.Clone(reqs))
	if f.err != nil {
		return nil, f.err
	}
	best := map[row]int{}
	for i, q := range reqs {
		if q.From.User == "bad" {
			return nil, errors.New("a row of its own kind")
		}
		k := row{q.From.User, q.Conv}
		if j, ok := best[k]; !ok || q.Seq > reqs[j].Seq {
			best[k] = i
		}
	}
	out := make([]im.ReadResult, len(reqs))
	for k, i := range best {
		if reqs[i].Seq > f.pos[k] {
			f.pos[k] = reqs[i].Seq
			out[i].Moved = true
		}
	}
	for i, q := range reqs {
		if out[i].Read = f.pos[row{q.From.User, q.Conv}]; q.Conv == "none" {
			out[i] = im.ReadResult{Err: im.ErrNotMember}
		}
	}
	return out, nil
}

func TestReadsMergeAndAreAnnouncedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeReads{pos: map[row]int64{}}
		var order []string
		m := NewMarker(f, MarkerConfig{OnMoved: func(notes []im.ReadNote) { order = append(order, fmt.Sprint(notes)) }})
		submit := func(user, device, conv string, seq int64) {
			m.Submit(im.ReadReq{From: im.Principal{User: user, Device: device}, Conv: conv, Seq: seq}, func(r im.ReadResult) {
				order = append(order, fmt.Sprint(device, " ", r.Read, " ", r.Err))
			})
		}
		submit("ana", "a1", "c", 5)
		pass(5 * time.Millisecond)
		submit("ana", "a2", "c", 8)
		submit("ben", "b1", "none", 1)
		pass(100 * time.Millisecond)
		submit("ana", "a1", "c", 8) // moves nothing: nobody is told
		pass(100 * time.Millisecond)
		closeIt(t, m)
		want := []string{"[{c ana a2 8}]", "a1 8 <nil>", "a2 8 <nil>", "b1 0 " + im.ErrNotMember.Error(), "a1 8 <nil>"}
		if !slices.Equal(order, want) {
			t.Errorf("got  %q\nwant %q", order, want)
		}
		if st := m.Stats(); st.Batches != 2 || st.Requests != 4 || st.Rows != 2 || st.Waiting != 0 {
			t.Errorf("%+v", st)
		}
	})
}

// A report that fails a whole write fails alone, and the others' moves are told.
func TestReadErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeReads{pos: map[row]int64{}}
		var told []im.ReadNote
		m := NewMarker(f, MarkerConfig{AckerConfig: AckerConfig{Queue: 100}, OnMoved: func(n []im.ReadNote) { told = append(told, n...) }})
		errs := map[string]error{}
		for i := range 100 {
			user := fmt.Sprint("u", i)
			if i == 57 {
				user = "bad"
			}
			m.Submit(im.ReadReq{From: im.Principal{User: user}, Conv: "c", Seq: 3}, func(r im.ReadResult) { errs[user] = r.Err })
		}
		refused := error(nil)
		m.Submit(im.ReadReq{From: im.Principal{User: "late"}}, func(r im.ReadResult) { refused = r.Err })
		pass(time.Second)
		for user, err := range errs {
			if (user == "bad") != errors.Is(err, im.ErrUnavailable) {
				t.Errorf("%s: %v", user, err)
			}
		}
		if !errors.Is(refused, im.ErrUnavailable) || len(errs) != 100 || len(told) != 99 {
			t.Errorf("refused with %v, %d outcomes, %d told", refused, len(errs), len(told))
		}
		f.mu.Lock()
		f.err = im.ErrUnavailable
		f.mu.Unlock()
		m.Submit(im.ReadReq{From: im.Principal{User: "u1"}, Conv: "c", Seq: 9}, func(r im.ReadResult) { refused = r.Err })
		pass(time.Second)
		if !errors.Is(refused, im.ErrUnavailable) || len(told) != 99 {
			t.Errorf("with the database away: %v, %d told", refused, len(told))
		}
		closeIt(t, m)
		closeIt(t, m)
		m.Submit(im.ReadReq{}, func(r im.ReadResult) { refused = r.Err })
		if st := m.Stats(); !errors.Is(refused, im.ErrUnavailable) || st.Refused != 2 || st.Failed != 2 || st.Waiting != 0 {
			t.Errorf("after Close: %v, %+v", refused, st)
		}
	})
}

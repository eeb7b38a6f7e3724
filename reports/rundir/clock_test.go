package rundir

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unsafe"
)

// set gives a moment as time.Now would have given it had the wall clock been set by so many seconds: the monotonic reading
// stays. There is no other way to make one; the first word of a time.Time holds the seconds above 30 bits of nanoseconds.
func set(t *testing.T, at time.Time, seconds int64) time.Time {
	t.Helper()
	moved := at
	word := (*uint64)(unsafe.Pointer(&moved))
	*word = uint64(int64(*word) + seconds<<30)
	if moved.Sub(at) != 0 || moved.Round(0).Sub(at.Round(0)) != time.Duration(seconds)*time.Second {
		t.Fatalf("time.Time has changed inside: %v and %v", at, moved)
	}
	return moved
}

// A wall clock that is set in mid-run moves nothing: lines and intervals go on as if it had not been.
func TestClockSet(t *testing.T) {
	for _, by := range []int64{-3600, 3600} {
		w, err := Create(filepath.Join(t.TempDir(), "run"), Manifest{}, nil)
		must(t, err)
		start := w.opened
		for i := range 4 {
			at := start.Add(time.Duration(i+1) * time.Second)
			if i >= 2 {
				at = set(t, at, by)
			}
			must(t, w.Counters(CounterLine{At: at}), w.Latency(Ack, at.Add(-time.Second), at, histogram(1e6)))
		}
		note := w.clockNote(set(t, time.Now(), by))
		if !strings.Contains(note, map[bool]string{true: "-3600.0 s", false: "+3600.0 s"}[by < 0]) || w.clockNote(time.Now()) != "" {
			t.Errorf("note %q", note)
		}
		must(t, w.Finish(testSummary(), nil))
		r, err := Open(w.Dir())
		must(t, err)
		m := r.Manifest()
		list, _, err := r.Counters()
		must(t, err)
		for i, l := range list {
			if i > 0 && (l.At.Sub(list[i-1].At) != time.Second || l.T <= list[i-1].T) || l.At.Sub(m.Started).Round(time.Millisecond).Seconds() != l.T {
				t.Errorf("set by %d s: line %d at %v, t %v, started %v", by, i, l.At, l.T, m.Started)
			}
		}
		all, err := r.Histograms()
		must(t, err)
		last := m.Started.Add(-time.Second)
		for _, i := range all[Ack].Intervals {
			if i.Start.Before(last.Add(-2*time.Millisecond)) || i.End.Sub(i.Start).Round(10*time.Millisecond) != time.Second {
				t.Errorf("set by %d s: an interval from %v to %v after %v", by, i.Start, i.End, last)
			}
			last = i.End
		}
		if d := m.Ended.Sub(m.Started); d < 0 || d > time.Minute {
			t.Errorf("the run took %v", d)
		}
	}
}

// Times that have no monotonic reading and go back leave a readable log.
func TestTimesThatGoBack(t *testing.T) {
	w := newRun(t)
	must(t, w.Latency(Ack, began.Add(time.Minute), began, histogram(1e6)), w.Close())
	r, err := Open(w.Dir())
	must(t, err)
	if h, err := r.Histograms(); err != nil || h[Ack].Total.TotalCount() != 1 {
		t.Errorf("%v %v", h, err)
	}
}

package fleet

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"imbench/loadgen/internal/clock"
)

// Whatever the ways there and back take, the true offset lies within the bound, and more exchanges never widen it.
func TestOffsetIsWithinItsBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ahead := time.Duration(rapid.Int64Range(-1e15, 1e15).Draw(t, "ahead"))
		delay := rapid.Int64Range(0, 50e6)
		var e estimator
		at := clock.Time(1e18)
		last := time.Duration(1 << 62)
		for range rapid.IntRange(1, window-1).Draw(t, "exchanges") {
			there, stay, back := time.Duration(delay.Draw(t, "there")), time.Duration(delay.Draw(t, "stay")), time.Duration(delay.Draw(t, "back"))
			t1 := at.Add(there + ahead)
			e.add(at, t1, t1.Add(stay), at.Add(there+stay+back))
			o := e
			got := o.fix(false)
			if off := (got.Ahead - ahead).Abs(); off > got.Bound+1 {
				t.Fatalf("%v off by %v, bound %v", got.Ahead, off, got.Bound)
			}
			if got.Bound > last || got.Bound > (there+back)/2+1 {
				t.Fatalf("bound %v after %v, and %v there and back", got.Bound, last, there+back)
			}
			last = got.Bound
			at = at.Add(time.Second)
		}
	})
}

// A clock that drifts away from the offset in use widens its bound by as much.
func TestDriftWidensTheBound(t *testing.T) {
	var e estimator
	at := clock.Time(1e18)
	exchange := func(ahead time.Duration) {
		t1 := at.Add(time.Millisecond + ahead)
		e.add(at, t1, t1, at.Add(2*time.Millisecond))
		at = at.Add(beatEvery)
	}
	for range window - 1 {
		exchange(time.Second)
	}
	if o := e.fix(false); o.Ahead != time.Second || o.Bound != time.Millisecond || o.Common {
		t.Fatalf("%+v", o)
	}
	for i := range 20 * window { // 50 ms a window
		exchange(time.Second + time.Duration(i)*50*time.Millisecond/window)
	}
	if b := e.used.Bound; e.used.Ahead != time.Second || b < 900*time.Millisecond || b > 1002*time.Millisecond {
		t.Errorf("bound %v after a drift of a second", b)
	}
}

// On one machine the clock is one, unless the exchanges say that it is not.
func TestCommonClock(t *testing.T) {
	for ahead, common := range map[time.Duration]bool{0: true, time.Hour: false, -time.Hour: false} {
		var e estimator
		t1 := clock.Time(1e18).Add(time.Millisecond + ahead)
		e.add(1e18, t1, t1, clock.Time(1e18).Add(2*time.Millisecond))
		if o := e.fix(true); o.Common != common || common && (o.Ahead != 0 || o.Bound != 0) || !common && o.Ahead != ahead {
			t.Errorf("%v ahead: %+v", ahead, o)
		}
	}
}

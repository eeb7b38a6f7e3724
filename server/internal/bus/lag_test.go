package bus

import (
	"testing"
	"time"
)

func TestLag(t *testing.T) {
	t.Parallel()
	var l lag
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	want := func(now, seconds int) {
		t.Helper()
		if got := l.last(at(now)); got != time.Duration(seconds)*time.Second {
			t.Errorf("at %d s: lag %v, want %d s", now, got, seconds)
		}
	}
	l.arrived("of nobody", at(1))
	want(1, 0)
	l.sending("a", at(10))
	l.sending("b", at(11)) // a is under way, and timed
	want(14, 4)            // it grows while nothing comes
	l.arrived("b", at(15))
	l.arrived("a", at(16))
	want(99, 6)
	l.sending("c", at(100))
	l.arrived("c", at(101))
	want(200, 1)
	l.sending("lost", at(200))
	l.forget()
	want(300, 1)
	l.sending("lost too", at(300))
	l.sending("d", at(331)) // 31 s later that is given up
	l.arrived("d", at(333))
	want(400, 2)
}

package ledger

import "testing"

// Behind counts what is open at a mark, and nothing that came after it.
func TestBehind(t *testing.T) {
	l := New(tiny(), Config{})
	if n := l.Behind(l.Heads()); n != 0 {
		t.Errorf("%d behind before anything was sent", n)
	}
	answered(l, 3)
	answered(l, 4)
	mark := l.Heads()
	step := func(what string, want int64) {
		t.Helper()
		if n := l.Behind(mark); n != want {
			t.Errorf("%s: %d behind, want %d", what, n, want)
		}
	}
	step("nobody has it", 2)
	deliver(l, 0, 3)
	step("one has half", 2)
	deliver(l, 0, 4)
	step("one has all", 1)
	deliver(l, 1, 4)
	step("the other jumped over one", 1)
	answered(l, 5)
	step("something new is no gap of the mark", 1)
	deliver(l, 1, 3)
	step("all is there", 0)
	lazy := New(tiny(), Config{Reads: func(device, _ int32) bool { return device != 1 }})
	answered(lazy, 3)
	if n := lazy.Behind(lazy.Heads()); n != 1 {
		t.Errorf("%d behind, want the one that reads", n)
	}
}

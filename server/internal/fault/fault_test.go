package fault

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// set parses what is right.
func set(t *testing.T, text string) *Set {
	t.Helper()
	s, err := Parse(text, filepath.Join(t.TempDir(), "b"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestParseSaysAllThatIsWrong(t *testing.T) {
	for _, text := range []string{"", "  "} {
		if s, err := Parse(text, ""); s != nil || err != nil {
			t.Errorf("%q: %v, %v", text, s, err)
		}
	}
	_, err := Parse("nowhere=exit, send.before_insert=drop, gw.push=drop:x, gw.hint=drop:1:2:3, gw.push=drop, gw.push=drop", "")
	for _, part := range []string{"no such point", "can [exit pause error]", `"x" is no number`, "skip:count", "named twice"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%q is missing in %v", part, err)
		}
	}
}

func TestNothingIsSwitchedOn(t *testing.T) {
	var none *Set
	if none.Has(Push) || none.At(t.Context(), Push) != nil {
		t.Error("a fault of nothing")
	}
	l := listener{}
	if none.Listener(l) != net.Listener(l) || set(t, "ack.before_write=error").Listener(l) != net.Listener(l) {
		t.Error("connections are wrapped without a point that is theirs")
	}
	if n := testing.AllocsPerRun(100, func() { _ = none.At(context.Background(), SendBeforeCommit) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestActions(t *testing.T) {
	s := set(t, "send.before_insert=exit,send.before_commit=error,gw.request.ack=drop,send.reply_first=on")
	code := 0
	s.exit = func(c int) { code = c }
	ctx := t.Context()
	if err := s.At(ctx, AfterSendCommit); err != nil {
		t.Errorf("a point that is off: %v", err)
	}
	if err := s.At(ctx, SendBeforeInsert); err != nil || code != 137 {
		t.Errorf("exit: %v, status %d", err, code)
	}
	if err := s.At(ctx, SendBeforeCommit); !errors.Is(err, ErrInjected) {
		t.Errorf("error: %v", err)
	}
	if err := s.At(ctx, AckRequest); !errors.Is(err, ErrDropped) {
		t.Errorf("drop: %v", err)
	}
	if err := s.At(ctx, ReplyFirst); err != nil || !s.Has(ReplyFirst) || s.Has(Push, Hint) {
		t.Errorf("on: %v", err)
	}
}

func TestHitsAreCounted(t *testing.T) {
	for text, want := range map[string]string{"gw.push=drop": "xxxxx", "gw.push=drop:2": "..xxx", "gw.push=drop:0:1": "x....", "gw.push=drop:1:2": ".xx.."} {
		s, got := set(t, text), ""
		for range 5 {
			if s.At(t.Context(), Push) != nil {
				got += "x"
			} else {
				got += "."
			}
		}
		if got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

func TestBarrier(t *testing.T) {
	path := filepath.Join(t.TempDir(), "b")
	s, err := Parse("gw.push=pause,send.before_commit=pause", path)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.At(t.Context(), Push); err != nil {
		t.Errorf("without a barrier: %v", err)
	}
	b, err := NewBarrier(path)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	arrive := func(p Point) <-chan error {
		done := make(chan error, 1)
		go func() { done <- s.At(context.Background(), p) }()
		return done
	}
	push, commit := arrive(Push), arrive(SendBeforeCommit)
	for _, c := range []struct {
		point Point
		do    Action
		done  <-chan error
		want  error
	}{{SendBeforeCommit, Fail, commit, ErrInjected}, {Push, "", push, nil}} {
		h, err := b.Wait(t.Context(), c.point)
		if err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-c.done:
			t.Errorf("%s is not held: %v", c.point, err)
		default:
		}
		if err := h.Release(c.do); err != nil {
			t.Error(err)
		}
		if err := <-c.done; !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.point, err, c.want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Wait(ctx, Push); !errors.Is(err, context.Canceled) {
		t.Errorf("nobody comes: %v", err)
	}
	if err := s.At(ctx, Push); !errors.Is(err, context.Canceled) {
		t.Errorf("a pause whose context has ended: %v", err)
	}
	last := arrive(Push)
	h, err := b.Wait(t.Context(), Push)
	if err != nil {
		t.Fatal(err)
	}
	other := arrive(SendBeforeCommit)
	b.Close()
	b.Close()
	if err := <-other; err != nil {
		t.Errorf("a barrier that has gone holds: %v", err)
	}
	select {
	case err := <-last:
		t.Errorf("what Wait gave out is the caller's to release: %v", err)
	default:
	}
	if err := errors.Join(h.Release(""), <-last); err != nil {
		t.Error(err)
	}
}

// frame is a text frame as a server writes it.
func frame(text string) []byte {
	b := []byte{0x81}
	switch n := len(text); {
	case n < 126:
		b = append(b, byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, 126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 127), uint64(n))
	}
	return append(b, text...)
}

// sink is a connection that keeps what is written.
type sink struct {
	net.Conn
	got []byte
}

func (s *sink) Write(b []byte) (int, error) { s.got = append(s.got, b...); return len(b), nil }

// Frames come through whole and in order but for those that are to be lost, however the writes cut them.
func TestFramesAreLost(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := set(t, "gw.push=drop")
		reply := "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n"
		in, want := []byte(reply), []byte(reply)
		sizes := rapid.OneOf(rapid.IntRange(0, 140), rapid.SampledFrom([]int{125, 126, 65535, 65536}))
		for range rapid.IntRange(0, 6).Draw(rt, "frames") {
			text := rapid.SampledFrom([]string{`{"t":"event","ev":`, `{"t":"event","rid":"1"`, `{"t":"hint",`, ``}).Draw(rt, "begin")
			f := frame(text + strings.Repeat("x", sizes.Draw(rt, "size")))
			in = append(in, f...)
			if text != `{"t":"event","ev":` {
				want = append(want, f...)
			}
		}
		to := &sink{}
		c := &conn{Conn: to, set: s}
		for len(in) > 0 {
			n := rapid.IntRange(1, len(in)).Draw(rt, "write")
			if m, err := c.Write(in[:n]); m != n || err != nil {
				rt.Fatalf("%d of %d, %v", m, n, err)
			}
			in = in[n:]
		}
		if string(to.got) != string(want) {
			rt.Fatalf("got %d bytes, want %d", len(to.got), len(want))
		}
	})
}

func TestOtherRepliesAreNotLookedAt(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	text := "HTTP/1.1 200 OK\r\n\r\n" + string(frame(`{"t":"hint",}`))
	written := make(chan error, 1)
	go func() {
		c, err := set(t, "gw.hint=drop").Listener(l).Accept()
		if err == nil {
			_, err = io.WriteString(c, text[:30])
			_, err2 := io.WriteString(c, text[30:])
			err = errors.Join(err, err2, c.Close())
		}
		written <- err
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	got, err := io.ReadAll(c)
	if err = errors.Join(err, <-written); err != nil || string(got) != text {
		t.Errorf("%q, %v", got, err)
	}
}

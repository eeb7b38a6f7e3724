package rawsock

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// both runs a test with connections that the runtime waits for, and with those that a Loop does.
func both(t *testing.T, f func(t *testing.T, loop *Loop)) {
	t.Run("runtime", func(t *testing.T) { f(t, nil) })
	t.Run("loop", func(t *testing.T) { f(t, new(Loop)) })
}

// pair is a connected pair over the loopback, both ends of this package.
func pair(t testing.TB, loop *Loop) (a, b net.Conn) {
	t.Helper()
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if loop == nil {
		a, err = Dial(t.Context(), "tcp", plain.Addr().String())
	} else if a, err = net.Dial("tcp", plain.Addr().String()); err == nil {
		a = loop.Take(a)
	}
	if err != nil {
		t.Fatal(err)
	}
	if loop == nil {
		b, err = Listener{plain}.Accept()
	} else if b, err = plain.Accept(); err == nil {
		b = loop.Take(b)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = a.Close(), b.Close() })
	for _, c := range []net.Conn{a, b} {
		if _, ok := c.(*Conn); !ok {
			t.Fatalf("%T is not wrapped", c)
		}
	}
	return a, b
}

// More than the socket buffers hold goes through whole, while the reader is slow to begin.
func TestConnCarriesALargeWrite(t *testing.T) { both(t, carriesALargeWrite) }

func carriesALargeWrite(t *testing.T, loop *Loop) {
	a, b := pair(t, loop)
	want := make([]byte, 16<<20)
	_, _ = rand.Read(want)
	written := make(chan error, 1)
	go func() {
		n, err := a.Write(want)
		if err == nil && n != len(want) {
			err = io.ErrShortWrite
		}
		written <- errors.Join(err, a.Close())
	}()
	got, err := io.ReadAll(b)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d of %d bytes, %v", len(got), len(want), err)
	}
	if err := <-written; err != nil {
		t.Error(err)
	}
}

func TestConnEndsAndDeadlines(t *testing.T) { both(t, endsAndDeadlines) }

func endsAndDeadlines(t *testing.T, loop *Loop) {
	a, b := pair(t, loop)
	if err := a.SetReadDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("past the deadline: %v", err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := a.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	if n, err := a.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("the other side is gone: %d, %v", n, err)
	}
	if n, err := a.Read(nil); n != 0 || err != nil {
		t.Errorf("no room: %d, %v", n, err)
	}
	if _, err := b.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("read on a closed connection: %v", err)
	}
	if _, err := b.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("write on a closed connection: %v", err)
	}
}

func TestWrapLeavesWhatHasNoDescriptor(t *testing.T) {
	p, q := net.Pipe()
	defer p.Close()
	defer q.Close()
	if Wrap(p) != p || new(Loop).Take(p) != p {
		t.Error("a pipe was wrapped")
	}
}

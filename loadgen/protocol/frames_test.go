package protocol

import (
	"bytes"
	"errors"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"imbench/server/wire"
	"imbench/server/wire/rawsock"

	"github.com/gobwas/ws"
	"pgregory.net/rapid"
)

// TestSeal: another implementation reads our frames back, whatever their size.
func TestSeal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.OneOf(rapid.IntRange(0, 300), rapid.IntRange(65_500, 65_600)).Draw(t, "size")
		payload := strings.Repeat("payload ", n/8+1)[:n]
		r := bytes.NewReader(seal(append(make([]byte, headerRoom), payload...), opText))
		h, err := ws.ReadHeader(r)
		if err != nil || !h.Masked || h.OpCode != ws.OpText || !h.Fin || h.Length != int64(n) || r.Len() != n {
			t.Fatalf("header %+v, %v, %d bytes left", h, err, r.Len())
		}
		got, _ := io.ReadAll(r)
		ws.Cipher(got, h.Mask, 0)
		if string(got) != payload {
			t.Fatal("the payload was damaged")
		}
	})
}

// TestRID: every request's id comes back from the text of its rid, which always has four characters.
func TestRID(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		op := Op(rapid.IntRange(1, int(NumOps)-1).Draw(t, "op"))
		id := rapid.Uint32Range(0, MaxRequestID).Draw(t, "id")
		s := RID(op, id)
		if re, got := parseRID(s); len(s) != 4 || re != op || got != id {
			t.Fatalf("%v %d became %q became %v %d", op, id, s, re, got)
		}
	})
	for _, s := range []string{"", "s00", "s0000", "z000", "s0 0", "S000", "\x00000"} {
		if re, id := parseRID(s); re != OpNone || id != 0 {
			t.Errorf("%q became %v %d", s, re, id)
		}
	}
}

// connected gives both ends of a connection that is read in one of the ways there are: in a Loop, by the runtime, or
// without a descriptor, as under TLS.
func connected(t *testing.T, way string) (ours, theirs net.Conn) {
	t.Helper()
	if way == "none" {
		return net.Pipe()
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if ours, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if theirs, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	if way == "loop" {
		ours = new(rawsock.Loop).Take(ours)
	}
	return ours, theirs
}

// TestWaysToRead: whichever way a connection is read, and however the bytes are cut, the same frames are handed on, large ones
// and those that came with the handshake among them, and the end that lies right behind them is seen.
func TestWaysToRead(t *testing.T) {
	conv := func(n int) string {
		payload := `{"t":"hint","conv":"` + strings.Repeat("c", n) + `","head":7}`
		var b bytes.Buffer
		_ = ws.WriteFrame(&b, ws.NewTextFrame([]byte(payload)))
		return b.String()
	}
	sizes := []int{1, 5, bufSize - 100, bufSize, 3, bufSize + 1, 64, 5 * bufSize, 2}
	all := ""
	for _, n := range sizes {
		all += conv(n)
	}
	for _, way := range []string{"loop", "runtime", "none"} {
		for _, step := range []int{len(all), bufSize, 5000, 333} {
			for _, early := range []int{0, 1, len(conv(1)), 300} {
				ours, theirs := connected(t, way)
				go func() {
					for rest := all[early:]; rest != ""; {
						n, err := io.WriteString(theirs, rest[:min(step, len(rest))])
						if err != nil {
							t.Error(err)
							break
						}
						rest = rest[n:]
					}
					_ = theirs.Close()
				}()
				var got []int
				err := newConn(ours, []byte(all[:early])).Serve(func(f *Frame) { got = append(got, len(f.Conv)) })
				if !slices.Equal(got, sizes) || !errors.Is(err, io.EOF) {
					t.Errorf("%s, in steps of %d behind %d: %v, ended with %v; want %v", way, step, early, got, err, sizes)
				}
			}
		}
	}
}

// TestHold: what comes while a connection is held is handed on when it is over, in order; one that cannot be held says so.
func TestHold(t *testing.T) {
	for _, way := range []string{"loop", "runtime", "none"} {
		ours, theirs := connected(t, way)
		c := newConn(ours, nil)
		if can := c.Hold(0); can != (way == "loop" && runtime.GOOS == "linux") {
			t.Errorf("%s: Hold says %v", way, can)
		} else if !can {
			_ = theirs.Close()
			continue
		}
		const hold = 60 * time.Millisecond
		begun := time.Now()
		c.Hold(hold)
		got := make(chan time.Duration, 4)
		go func() {
			for range 2 {
				_ = ws.WriteFrame(theirs, ws.NewTextFrame([]byte(`{"t":"pong"}`)))
				time.Sleep(hold / 6) // so that they come one by one while it lasts
			}
			<-got
			<-got
			_ = theirs.Close()
		}()
		n := 0
		err := c.Serve(func(f *Frame) {
			if at := time.Since(begun); at < hold || f.Arrived.Sub(begun) < hold {
				t.Errorf("a frame was handed on after %v of %v, as if it had come after %v", at, hold, f.Arrived.Sub(begun))
			}
			n++
			got <- 0
		})
		if n != 2 || !errors.Is(err, io.EOF) {
			t.Errorf("%d frames, ended with %v", n, err)
		}
	}
}

// TestCloseEndsAHold: who hangs up a connection that is held still reads what the other side says to it.
func TestCloseEndsAHold(t *testing.T) {
	ours, theirs := connected(t, "loop")
	c := newConn(ours, nil)
	if !c.Hold(time.Hour) {
		t.Skip("connections cannot be held here")
	}
	go func() {
		h, _ := ws.ReadHeader(theirs) // our close
		_, _ = io.CopyN(io.Discard, theirs, h.Length)
		_ = ws.WriteFrame(theirs, ws.NewTextFrame([]byte(`{"t":"pong"}`)))
		_ = ws.WriteFrame(theirs, ws.NewCloseFrame(ws.NewCloseFrameBody(ws.StatusNormalClosure, "")))
	}()
	c.Close(1000)
	n := 0
	if err := c.Serve(func(*Frame) { n++ }); n != 1 || !errors.Is(err, ErrClosed) {
		t.Errorf("%d frames, ended with %v", n, err)
	}
	_ = theirs.Close()
}

// watched is a connection of which the last write deadline is known.
type watched struct {
	net.Conn
	until atomic.Pointer[time.Time]
}

func (w *watched) SetWriteDeadline(t time.Time) error {
	w.until.Store(&t)
	return w.Conn.SetWriteDeadline(t)
}

// SyscallConn implements syscall.Conn.
func (w *watched) SyscallConn() (syscall.RawConn, error) {
	if sc, ok := w.Conn.(syscall.Conn); ok {
		return sc.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

// TestDeadlineOfAStall: the time that is given to a write which the socket did not take at once is no limit for later ones.
func TestDeadlineOfAStall(t *testing.T) {
	for _, way := range []string{"loop", "runtime", "none"} {
		ours, theirs := connected(t, way)
		w := &watched{Conn: ours}
		c := newConn(w, nil)
		stalled := func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.flushing
		}
		for !stalled() {
			if _, err := c.Write(&Request{Op: OpSend, Conv: "c", Key: "k", Body: strings.Repeat("b", 8000)}); err != nil {
				t.Fatal(way, err)
			}
		}
		go func() { _, _ = io.Copy(io.Discard, theirs) }()
		c.flusher.Wait()
		if until := w.until.Load(); until == nil || !until.IsZero() {
			t.Errorf("%s: when all was written the deadline was %v", way, until)
		}
		c.Close(0)
		_ = theirs.Close()
	}
}

// FuzzParse: no bytes of a peer make the reader panic, hand on a frame beyond the limit, or use more than there is.
func FuzzParse(f *testing.F) {
	f.Add([]byte("\x81\x0c{\"t\":\"pong\"}"))
	f.Add([]byte("\x01\x06{\"t\":\"\x80\x06pong\"}\x89\x01x\x88\x02\x03\xe8"))
	f.Add([]byte("\x81\x7f\xff\xff\xff\xff\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		ours, theirs := net.Pipe()
		defer theirs.Close()
		go func() { _, _ = io.Copy(io.Discard, theirs) }()
		c := newConn(ours, nil)
		used, need, _ := c.parse(b, func(f *Frame) {
			if f.Bytes > wire.MaxReply {
				t.Errorf("a frame of %d bytes", f.Bytes)
			}
		})
		if used > len(b) || need < 0 || need > wire.MaxReply+10 {
			t.Errorf("used %d of %d, needs %d", used, len(b), need)
		}
		c.Close(0)
		c.flusher.Wait()
	})
}

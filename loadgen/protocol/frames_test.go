package protocol

import (
	"bytes"
	"io"
	"net"
	"strings"
	"testing"

	"imbench/server/wire"

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

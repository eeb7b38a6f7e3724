package payload

import (
	"crypto/sha256"
	"encoding/binary"
	"testing"

	"imbench/loadgen/internal/clock"

	"pgregory.net/rapid"
)

// TestRoundTrip: what a body was made from is read back, at the size that was asked for.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		run := rapid.Uint32().Draw(t, "run")
		plan := rapid.Int64Range(0, 999_999_999_999).Draw(t, "plan")
		at := clock.Time(rapid.Int64Range(0, 1<<62).Draw(t, "intended"))
		size := rapid.IntRange(0, 2000).Draw(t, "size")
		body := string(Append([]byte("x"), run, plan, at, size)[1:])
		if len(body) != max(size, MinSize) {
			t.Fatalf("%d bytes, want %d", len(body), size)
		}
		r, p, a, ok := Parse(body)
		if !ok || r != run || p != plan || a != at {
			t.Fatalf("read back run %d plan %d intended %d, %v", r, p, a, ok)
		}
	})
	for _, body := range []string{"", "hello", "imb1 " + string(make([]byte, 100))} {
		if _, _, _, ok := Parse(body); ok {
			t.Errorf("%q was taken for one of ours", body)
		}
	}
}

// TestHash: the first eight bytes of SHA-256, of the empty body too, without a copy.
func TestHash(t *testing.T) {
	body := string(Append(nil, 1, 2, 3, 200))
	for _, b := range []string{"", "a", body} {
		sum := sha256.Sum256([]byte(b))
		if Hash(b) != binary.BigEndian.Uint64(sum[:8]) {
			t.Errorf("hash of %q", b)
		}
	}
	if n := testing.AllocsPerRun(100, func() { Hash(body) }); n != 0 {
		t.Errorf("%v allocations a hash", n)
	}
}

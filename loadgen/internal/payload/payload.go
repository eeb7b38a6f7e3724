// Package payload is the body of a generated message: it carries the run, the index in the arrival plan and the intended
// time, so that whoever receives it can tell how long it took and which message it was, without shared state.
//
// Layout, ASCII, fixed width: "imb1 " run(8 hex) " " plan(12 decimal) " " intended(19 decimal, CLOCK_MONOTONIC ns) " "
// then letters up to the wanted size. MinSize is the least size that holds all of it.
//
// The package holds no state; its functions are safe for concurrent use.
package payload

import (
	"crypto/sha256"
	"encoding/binary"
	"strconv"
	"unsafe"

	"imbench/loadgen/internal/clock"
)

const (
	magic = "imb1 "
	// MinSize is the smallest body in bytes.
	MinSize = len(magic) + 8 + 1 + 12 + 1 + 19 + 1
	filler  = "the quick brown fox jumps over the lazy dog and runs along the river "
)

// Append appends a body of size bytes (at least MinSize) to dst.
func Append(dst []byte, run uint32, plan int64, intended clock.Time, size int) []byte {
	start := len(dst)
	dst = append(dst, magic...)
	dst = appendPadded(dst, strconv.AppendUint(nil, uint64(run), 16), 8)
	dst = append(dst, ' ')
	dst = appendPadded(dst, strconv.AppendInt(nil, plan, 10), 12)
	dst = append(dst, ' ')
	dst = appendPadded(dst, strconv.AppendInt(nil, int64(intended), 10), 19)
	dst = append(dst, ' ')
	for len(dst)-start < size {
		n := min(size-(len(dst)-start), len(filler))
		dst = append(dst, filler[:n]...)
	}
	return dst
}

func appendPadded(dst, digits []byte, width int) []byte {
	for range width - len(digits) {
		dst = append(dst, '0')
	}
	return append(dst, digits...)
}

// Parse reads a body back; ok is false if it is not one of ours.
func Parse(body string) (run uint32, plan int64, intended clock.Time, ok bool) {
	if len(body) < MinSize || body[:len(magic)] != magic {
		return 0, 0, 0, false
	}
	r, err1 := strconv.ParseUint(body[5:13], 16, 32)
	p, err2 := strconv.ParseInt(body[14:26], 10, 64)
	t, err3 := strconv.ParseInt(body[27:46], 10, 64)
	return uint32(r), p, clock.Time(t), err1 == nil && err2 == nil && err3 == nil
}

// Hash is the first eight bytes of a body's SHA-256, big endian: what the ledger compares, and what the gateway's log
// export calls body_hash (in hex).
func Hash(body string) uint64 {
	// A conversion would copy each body that every device receives; Sum256 only reads.
	sum := sha256.Sum256(unsafe.Slice(unsafe.StringData(body), len(body)))
	return binary.BigEndian.Uint64(sum[:8])
}

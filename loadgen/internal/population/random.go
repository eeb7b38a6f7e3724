package population

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// source is SplitMix64: small, and written down here so that a plan does not depend on a library's choice of algorithm.
type source struct{ state uint64 }

// newSource derives an independent stream from the seed and a label.
func newSource(seed uint64, label string) source {
	h := uint64(14695981039346656037) // FNV-1a
	for _, c := range []byte(label) {
		h = (h ^ uint64(c)) * 1099511628211
	}
	s := source{seed}
	return source{s.next() ^ h}
}

func (s *source) next() uint64 {
	s.state += 0x9e3779b97f4a7c15
	x := s.state
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// below is an even draw from 0..n-1; n must be positive. Taking the high word of a 128-bit product is off from even by
// less than n/2^64.
func (s *source) below(n int) int {
	hi, _ := bits.Mul64(s.next(), uint64(n))
	return int(hi)
}

// exponential draws from the exponential distribution with mean 1.
func (s *source) exponential() float64 {
	return -math.Log(s.unit())
}

// unit is an even draw from (0, 1).
func (s *source) unit() float64 { return (float64(s.next()>>11) + 0.5) / (1 << 53) }

// shuffle puts the slice into an even random order.
func shuffle[T any](s *source, x []T) {
	for i := len(x) - 1; i > 0; i-- {
		j := s.below(i + 1)
		x[i], x[j] = x[j], x[i]
	}
}

// permutation is a random order of 0..n-1.
func (s *source) permutation(n int) []int32 {
	p := make([]int32, n)
	for i := range p {
		p[i] = int32(i)
	}
	shuffle(s, p)
	return p
}

// uuid is a version 8 UUID (its bits are ours to choose) as text.
func (s *source) uuid() string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], s.next())
	binary.BigEndian.PutUint64(b[8:], s.next())
	b[6] = b[6]&0x0f | 0x80
	b[8] = b[8]&0x3f | 0x80
	const hex = "0123456789abcdef"
	out := make([]byte, 0, 36)
	for i, x := range b {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			out = append(out, '-')
		}
		out = append(out, hex[x>>4], hex[x&15])
	}
	return string(out)
}

// Package scaling holds the universal scalability law, which says what adding gateways gains. Everything is a pure
// function, safe for concurrent use.
package scaling

import "math"

// USL is the universal scalability law (Gunther, Guerrilla Capacity Planning, 2007, chapter 5):
//
//	X(n) = λn / (1 + σ(n−1) + κn(n−1))
type USL struct {
	Lambda float64 // λ, throughput of one, 1/s
	Sigma  float64 // σ ≥ 0, contention: the share that is served one after another
	Kappa  float64 // κ ≥ 0, coherency: what each pays for every other
}

// Throughput is X(n) in 1/s, for n ≥ 1.
func (u USL) Throughput(n float64) float64 {
	return u.Lambda * n / (1 + u.Sigma*(n-1) + u.Kappa*n*(n-1))
}

// Peak is the n from which on more of them do less, √((1−σ)/κ) and at least 1; +Inf if there is none.
func (u USL) Peak() float64 {
	switch {
	case u.Sigma >= 1:
		return 1
	case u.Kappa == 0:
		return math.Inf(1)
	}
	return max(1, math.Sqrt((1-u.Sigma)/u.Kappa))
}

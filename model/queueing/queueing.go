// Package queueing holds the closed formulas for waiting that the capacity model uses: batch arrivals at a gateway, a pool
// of database connections, one conversation's row lock.
//
// Utilisation ρ is from 0 to below 1; at and beyond 1 there is no steady state and the functions return +Inf. Squared
// coefficients of variation are variance over squared mean: 0 constant, 1 exponential. Everything is a pure function, safe
// for concurrent use.
package queueing

import (
	"math"
	"time"
)

// BatchWait is the mean wait in an M^[X]/G/1 queue in units of the mean service time:
//
//	Wq/E[S] = [ρ(1+c²)/2 + (b−1)/2] / (1−ρ),  b = E[X²]/E[X]
//
// (Chaudhry and Templeton, A First Course in Bulk Queues, 1983, section 3.2). One message brings X frames at once; sizeRatio
// is b, which is 1 for single arrivals, and scv the c² of the service time.
func BatchWait(rho, sizeRatio, scv float64) float64 {
	if rho >= 1 {
		return math.Inf(1)
	}
	return (rho*(1+scv)/2 + (sizeRatio-1)/2) / (1 - rho)
}

// SingleWait is the mean wait in an M/G/1 queue, the Pollaczek–Khinchine formula, in units of the mean service time. With
// ρ = rate × hold time it is the wait for a conversation's row lock.
func SingleWait(rho, scv float64) float64 { return BatchWait(rho, 1, scv) }

// ErlangC is the probability of waiting in an M/M/c queue with an offered load of a = rate × service time erlangs. It
// recurs over Erlang B (Cooper, Introduction to Queueing Theory, 1981, section 3.5), which neither overflows nor cancels.
// It is 1 where a ≥ servers.
func ErlangC(servers int, a float64) float64 {
	if servers < 1 || a >= float64(servers) {
		return 1
	}
	b := 1.0
	for n := 1; n <= servers; n++ {
		b = a * b / (float64(n) + a*b)
	}
	rho := a / float64(servers)
	return b / (1 - rho*(1-b))
}

// PoolWait is the mean wait for one of the servers of a G/G/c queue by the approximation of Allen and Cunneen (Allen,
// Probability, Statistics, and Queueing Theory, 1990, section 5.3):
//
//	Wq ≈ C(c, a)·E[S] / (c·(1−ρ)) · (ca² + cs²)/2
//
// It is exact for M/M/c. ok is false where there is no steady state.
func PoolWait(servers int, rate float64, service time.Duration, arrivalSCV, serviceSCV float64) (wait time.Duration, ok bool) {
	s := service.Seconds()
	a := rate * s
	c := float64(servers)
	if servers < 1 || a >= c {
		return 0, false
	}
	w := ErlangC(servers, a) * s / (c - a) * (arrivalSCV + serviceSCV) / 2
	return time.Duration(w * float64(time.Second)), true
}

// Batch is a kind of message and the number of frames it brings.
type Batch struct {
	Share    float64 // of the messages
	Mean     float64 // E[X]
	Variance float64 // Var X
}

// SizeRatio is b = E[X²]/E[X] over a mix of messages; 1 if none brings a frame.
func SizeRatio(mix ...Batch) float64 {
	var first, second float64
	for _, m := range mix {
		first += m.Share * m.Mean
		second += m.Share * (m.Variance + m.Mean*m.Mean)
	}
	if first == 0 {
		return 1
	}
	return second / first
}

// Receivers is the batch that a message to n members brings, if each has one or two devices, d in the mean, and each
// device but the sender's is online with probability p, independently.
func Receivers(share, n, d, p float64) Batch {
	devices := n*d - 1
	spread := (n - 1) * (d - 1) * (2 - d) // variance of the number of the other members' devices
	return Batch{Share: share, Mean: devices * p, Variance: devices*p*(1-p) + spread*p*p}
}

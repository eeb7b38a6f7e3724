package capacity

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// Without losses and without an end, a batch is 1 + min(N, k−1) events, N Poisson(λ·delay).
func TestAcksClosedForm(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := rapid.IntRange(1, 20).Draw(t, "k")
		lambda := rapid.Float64Range(0.01, 50).Draw(t, "lambda")
		delay := rapid.Float64Range(0, 5).Draw(t, "delay")
		mean, square := 0.0, 0.0
		p, below := math.Exp(-lambda*delay), 0.0
		for n := range k - 1 {
			size := float64(n + 1)
			mean, square, below = mean+p*size, square+p*size*size, below+p
			p *= lambda * delay / float64(n+1)
		}
		mean += (1 - below) * float64(k)
		square += (1 - below) * float64(k*k)
		a := countAcks(burst{lambda: lambda}, ackPolicy{every: k, delay: delay, grace: 10, sweep: 1})
		if math.Abs(a.perAck-mean) > 1e-6*mean {
			t.Fatalf("%g events an ack, want %g", a.perAck, mean)
		}
		if want := (square - mean*mean) / (mean * mean * mean); math.Abs(a.noise-want) > 1e-6 {
			t.Fatalf("noise %g, want %g", a.noise, want)
		}
	})
}

// Bursts of one message far apart: each is acknowledged alone, and each loss needs the sweep.
func TestLonelyMessages(t *testing.T) {
	a := countAcks(burst{size: 1, lambda: 100, nu: 1e-7}, ackPolicy{every: 4, delay: 2.5, loss: 0.1, grace: 4, sweep: 1})
	near(t, "events an ack", a.perAck, 1, 1e-4)
	near(t, "hints", a.hints, 0.1, 1e-4)
	near(t, "syncs", a.syncs, 0.1, 1e-4)
}

// Long bursts are worked out from shorter ones.
func TestLongBursts(t *testing.T) {
	p := ackPolicy{every: 4, delay: 2.5, loss: 0.03, grace: 4, sweep: 1}
	long, exact := countAcks(burst{200, 2, 0.02}, p), solveAcks(burst{200, 2, 0.02}, p)
	near(t, "acks, relative", long.acks/exact.acks, 1, 3e-4)
	near(t, "hints, relative", long.hints/exact.hints, 1, 0.01)
}

// The stages of a birth process are a distribution, and with equal rates a Poisson one.
func TestBirth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rates := rapid.SliceOfN(rapid.Float64Range(0, 100), 1, 30).Draw(t, "rates")
		rates = append(rates, 0) // the last stage is never left, so that nothing is missing
		var sum float64
		for _, p := range birth(rates, rapid.Float64Range(0, 60).Draw(t, "t")) {
			if p < -1e-12 {
				t.Fatalf("probability %g", p)
			}
			sum += p
		}
		if math.Abs(sum-1) > 1e-9 {
			t.Fatalf("sum %g", sum)
		}
	})
	near(t, "Poisson(5) at 2", birth([]float64{2, 2, 2, 2}, 2.5)[2], math.Exp(-5)*12.5, 1e-12)
}

// With few of many conversations active, those that speak are drawn by size: E[c | speaking] = E[c²]/E[c].
func TestPresence(t *testing.T) {
	in := BaselineRun()
	p, err := newPresence(in, 2, 1_000_000, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	var first, second, speaking float64
	for i, c := range p.c {
		first, second, speaking = first+p.prob[i]*c, second+p.prob[i]*c*c, speaking+p.share[i]
	}
	near(t, "mean of connected devices", first, 2*1.6*0.35, 1e-9)
	near(t, "shares", speaking, 1, 1e-9)
	near(t, "speaking", p.mean(p.c), second/first, 1e-4)
	near(t, "D(2), close to that of independent devices", p.mean(p.c)-1, 0.8225, 0.001)
	// With all but one of them active, hardly any choice is left.
	if p, err = newPresence(in, 30, 1500, 1499, 1); err != nil {
		t.Fatal(err)
	}
	near(t, "all speak", p.mean(p.c), 30*1.6*0.35, 0.02)
}

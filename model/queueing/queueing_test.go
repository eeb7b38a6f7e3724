package queueing

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The reference values are those of the documents and of the books named beside the functions.
func TestReferenceValues(t *testing.T) {
	mix := SizeRatio(Receivers(0.4, 30, 1.6, 0.35), Receivers(0.6, 2, 1.6, 0.35))
	for _, c := range []struct {
		name           string
		got, want, tol float64
	}{
		{"b of the baseline's mix", mix, 16.1, 0.05},
		{"frames a message", 0.4*Receivers(1, 30, 1.6, 0.35).Mean + 0.6*Receivers(1, 2, 1.6, 0.35).Mean, 7.042, 1e-9},
		{"batch wait at 0.7, exponential service", BatchWait(0.7, 16.1, 1), 27.5, 0.01},
		{"M/M/1 at 0.7", SingleWait(0.7, 1), 0.7 / 0.3, 1e-12},
		{"M/D/1 at 0.7", SingleWait(0.7, 0), 0.7 / 0.6, 1e-12},
		{"C(1, 0.8)", ErlangC(1, 0.8), 0.8, 1e-12},
		{"C(10, 8)", ErlangC(10, 8), 0.4092, 5e-5},
		{"C(2, 1)", ErlangC(2, 1), 1. / 3, 1e-12},
	} {
		if math.Abs(c.got-c.want) > c.tol {
			t.Errorf("%s = %.6g, want %.6g", c.name, c.got, c.want)
		}
	}
	if ratio := BatchWait(0.7, mix, 1) / SingleWait(0.7, 1); math.Abs(ratio-12) > 0.3 {
		t.Errorf("M/M/1 is %.2f times too low, want about 12", ratio)
	}
}

func TestPoolWait(t *testing.T) {
	// M/M/1 at ρ = 0.5 waits one service time; constant service half of it.
	for _, c := range []struct {
		scv  float64
		want time.Duration
	}{{1, 10 * time.Millisecond}, {0, 5 * time.Millisecond}} {
		if got, ok := PoolWait(1, 50, 10*time.Millisecond, 1, c.scv); !ok || (got-c.want).Abs() > time.Microsecond {
			t.Errorf("scv %g: wait %v (steady %v), want %v", c.scv, got, ok, c.want)
		}
	}
	if got, ok := PoolWait(10, 800, 10*time.Millisecond, 1, 1); !ok || (got-2046*time.Microsecond).Abs() > time.Microsecond {
		t.Errorf("pool of ten at 0.8: %v (steady %v), want 0.4092 × 10 ms / 2", got, ok)
	}
}

func TestNoSteadyState(t *testing.T) {
	if !math.IsInf(BatchWait(1, 3, 1), 1) || !math.IsInf(SingleWait(1.2, 0), 1) {
		t.Error("a full server has a finite wait")
	}
	if ErlangC(4, 4) != 1 || ErlangC(0, 0.1) != 1 {
		t.Error("a full pool does not make everyone wait")
	}
	if _, ok := PoolWait(2, 200, 10*time.Millisecond, 1, 1); ok {
		t.Error("a full pool has a steady state")
	}
	if SizeRatio() != 1 {
		t.Error("no frames: want the ratio of single arrivals")
	}
}

// Waiting grows with load, batch size and variation; more servers for the same load wait less.
func TestMonotonic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rho := rapid.Float64Range(0, 0.98).Draw(t, "rho")
		b := rapid.Float64Range(1, 500).Draw(t, "b")
		scv := rapid.Float64Range(0, 20).Draw(t, "scv")
		w := BatchWait(rho, b, scv)
		if w < 0 || BatchWait(rho+0.01, b, scv) <= w || BatchWait(rho, b+1, scv) <= w || BatchWait(rho, b, scv+1) < w {
			t.Fatalf("wait %g is not monotonic", w)
		}
		c := rapid.IntRange(1, 300).Draw(t, "servers")
		a := rapid.Float64Range(0, 0.999).Draw(t, "load") * float64(c)
		if p, q := ErlangC(c, a), ErlangC(c+1, a); p < 0 || p > 1 || q > p {
			t.Fatalf("C(%d, %g) = %g, C(%d, %g) = %g", c, a, p, c+1, a, q)
		}
	})
}

func ExampleBatchWait() {
	b := SizeRatio(Receivers(0.4, 30, 1.6, 0.35), Receivers(0.6, 2, 1.6, 0.35))
	fmt.Printf("b = %.1f, wait at 70 %% load: %.1f service times\n", b, BatchWait(0.7, b, 1))
	// Output: b = 16.1, wait at 70 % load: 27.5 service times
}

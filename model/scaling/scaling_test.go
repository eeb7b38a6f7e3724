package scaling

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestThroughput(t *testing.T) {
	for _, c := range []struct {
		name    string
		u       USL
		n, want float64
	}{
		{"one", USL{1000, 0.05, 0.01}, 1, 1000},
		{"linear", USL{1000, 0, 0}, 8, 8000},
		{"Amdahl", USL{1000, 0.1, 0}, 10, 10000 / 1.9},
		{"both", USL{1000, 0.05, 0.02}, 4, 4000 / (1 + 0.15 + 0.24)},
	} {
		if got := c.u.Throughput(c.n); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: X(%g) = %g, want %g", c.name, c.n, got, c.want)
		}
	}
	if p := (USL{1, 0.02, 0.0005}).Peak(); math.Abs(p-math.Sqrt(0.98/0.0005)) > 1e-9 {
		t.Errorf("peak at %g", p)
	}
	if p := (USL{1, 0.5, 0}).Peak(); !math.IsInf(p, 1) {
		t.Errorf("without coherency cost the peak is at %g", p)
	}
	if p := (USL{1, 1, 0}).Peak(); p != 1 {
		t.Errorf("fully serial: peak at %g", p)
	}
}

// No whole number beats the peak, and nothing beats linear growth.
func TestPeakIsBest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u := USL{rapid.Float64Range(1, 1e5).Draw(t, "lambda"), rapid.Float64Range(0, 1).Draw(t, "sigma"), rapid.Float64Range(1e-6, 1).Draw(t, "kappa")}
		n := float64(rapid.IntRange(1, 5000).Draw(t, "n"))
		if x := u.Throughput(n); x > u.Throughput(u.Peak())*(1+1e-9) || x > u.Lambda*n*(1+1e-9) {
			t.Fatalf("X(%g) = %g, at the peak %g: %g", n, x, u.Peak(), u.Throughput(u.Peak()))
		}
	})
}

package behavior

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestLostIsPinned: the losses of a seed never change, or plans and digests of earlier runs would be void.
func TestLostIsPinned(t *testing.T) {
	var got []int64
	for seq := range int64(200) {
		if Lost(42, 7, 11, seq, 0.03) {
			got = append(got, seq)
		}
	}
	want := []int64{55, 65, 81, 114, 133, 163, 171}
	if len(got) != len(want) {
		t.Fatalf("lost %v, want %v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("lost %v, want %v", got, want)
		}
	}
}

// TestShares: over many independent keys each share is met within four standard deviations, along every argument.
func TestShares(t *testing.T) {
	const n = 200_000
	for _, share := range []float64{0, 0.03, 0.2, 1} {
		for name, f := range map[string]func(i int) bool{
			"lost by seq":     func(i int) bool { return Lost(1, 2, 3, int64(i), share) },
			"lost by device":  func(i int) bool { return Lost(1, int32(i), 3, 4, share) },
			"lost by conv":    func(i int) bool { return Lost(1, 2, int32(i), 4, share) },
			"lost by seed":    func(i int) bool { return Lost(uint64(i), 2, 3, 4, share) },
			"reads by device": func(i int) bool { return Reads(1, int32(i), 3, share) },
			"reads by conv":   func(i int) bool { return Reads(1, 2, int32(i), share) },
		} {
			c := 0
			for i := range n {
				if f(i) {
					c++
				}
			}
			if off := math.Abs(float64(c) - n*share); off > 4*math.Sqrt(n*share*(1-share)) {
				t.Errorf("%s: %d of %d at a share of %v", name, c, n, share)
			}
		}
	}
}

// TestBackoff: never less than the gateway asked for, never more than that and the cap, and spread over the whole range.
func TestBackoff(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := time.Duration(rapid.Int64Range(1, 1e10).Draw(t, "base"))
		limit := base + time.Duration(rapid.Int64Range(0, 1e12).Draw(t, "more"))
		least := time.Duration(rapid.Int64Range(0, 1e11).Draw(t, "at least"))
		n := rapid.IntRange(0, 1000).Draw(t, "attempt")
		d := Backoff(rapid.Uint64().Draw(t, "seed"), rapid.Int32().Draw(t, "device"), n, base, limit, least)
		if d < least || d > least+limit || (n == 0 && d > least+base) {
			t.Fatalf("Backoff = %v", d)
		}
	})
	low, high := 0, 0
	for dev := range int32(1000) {
		switch d := Backoff(1, dev, 3, time.Second, time.Minute, 0); {
		case d < time.Second:
			low++
		case d > 7*time.Second:
			high++
		}
	}
	if low < 90 || low > 160 || high < 90 || high > 160 { // an eighth each: 125 ± 3.3 σ
		t.Errorf("full jitter over 8 s: %d of 1000 in the first second, %d in the last", low, high)
	}
}

// TestOther: never the same one again where there is a choice, and evenly over the rest.
func TestOther(t *testing.T) {
	if got := Other(1, 2, 3, 0, 1); got != 0 {
		t.Errorf("the only one is %d", got)
	}
	var hits [4]int
	for dev := range int32(3000) {
		hits[Other(1, dev, 0, 2, 4)]++
	}
	for i, n := range hits {
		if i == 2 && n != 0 || i != 2 && (n < 900 || n > 1100) { // 1000 ± 3.9 σ
			t.Errorf("%d of 3000 devices of gateway 2 go to gateway %d", n, i)
		}
	}
}

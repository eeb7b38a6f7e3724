package selftest

import (
	"strings"
	"testing"

	"imbench/loadgen/internal/testgate"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// small does as much wrong as the full size in a tenth of the deliveries.
func small() Config { return Config{Deliveries: 9_000, Honest: 18_000, Every: 900, Rate: 900, Seed: 1} }

// TestSelf: in small, every kind is caught and the honest gateway is clean.
func TestSelf(t *testing.T) {
	n := 0
	err := Run(t.Context(), small(), func(r Result) {
		n++
		if r.Why != "" || !r.Honest && (r.Injected < 3 || r.Caught != r.Injected) || r.Honest && r.Deliveries != 18_000 {
			t.Errorf("%+v", r)
		}
	})
	if err != nil || n != len(kinds) {
		t.Errorf("%d of %d kinds: %v", n, len(kinds), err)
	}
}

// TestSelfCanFail: what is not caught is said, and so is what nobody did.
func TestSelfCanFail(t *testing.T) {
	cfg := small()
	cfg.defaults()
	cfg.Deliveries, cfg.Honest = 4_500, 4_500
	for _, c := range []struct {
		kind kind
		says string
	}{
		{kind{name: "passes for honest, and loses", tamper: lose, seen: func(*sighting) bool { return true }}, "lost, which the gateway did not do"},
		{kind{name: "nobody sees it", tamper: repeat, seen: func(*sighting) bool { return false }}, "were not seen"},
		{kind{name: "the ledger blames nobody", tamper: repeat, judged: "duplicated", device: true}, "were not seen"},
		{kind{name: "does nothing", tamper: func(i *injector) (t testgate.Tamper) { return t }, judged: "lost", device: true}, "too few deliveries"},
	} {
		r, err := drive(t.Context(), cfg, &c.kind)
		if err != nil || !strings.Contains(r.Why, c.says) {
			t.Errorf("%s: %+v, %v, want %q", c.kind.name, r, err, c.says)
		}
	}
}

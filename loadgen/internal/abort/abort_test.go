package abort

import (
	"strings"
	"testing"
	"time"

	"imbench/loadgen/internal/scenario"
)

func rules(t *testing.T, yaml string) []scenario.AbortRule {
	t.Helper()
	s, err := scenario.Parse("x.yaml", []byte("name: x\nabort:\n"+yaml))
	if err != nil {
		t.Fatal(err)
	}
	return s.Abort
}

// play gives a reading a second and returns the second in which the first breach is found, 0 = none.
func play(t *testing.T, yaml string, seconds int, at func(s int64, r *Reading)) (int, string) {
	t.Helper()
	w := NewWatch(rules(t, yaml))
	r := Reading{Devices: 100, Connected: 100}
	for s := range seconds {
		r.At = time.Duration(s) * time.Second
		if s > 0 {
			r.Due, r.Done = r.Due+10, r.Done+10
		}
		at(int64(s), &r)
		if b := w.Add(r); b != nil {
			return s, b.String()
		}
	}
	return 0, ""
}

func TestRules(t *testing.T) {
	errors, achieved, connected := "  - {metric: error_rate, max: 5%, for: 10s}", "  - {metric: achieved_rate, min: 50%, for: 5s}", "  - {metric: connected, min: 0.5, for: 3s}"
	p99 := "  - {metric: send.intended.p99, max: 1s, for: 3s}"
	for name, c := range map[string]struct {
		rule string
		at   func(s int64, r *Reading)
		when int
		say  string
	}{
		"all is well": {errors + "\n" + achieved + "\n" + connected + "\n" + p99, func(int64, *Reading) {}, 0, ""},
		// One failure a second from 21 on: 1 of 11 ended. The share of the last ten seconds passes 5 % with the sixth.
		"errors": {errors, func(s int64, r *Reading) { r.Failed = max(0, s-20) }, 26, "error_rate > 5% for 10s: it was 5.7 %, 26 s after the load began"},
		"a burst of errors at the start is in the first ten seconds": {errors, func(s int64, r *Reading) { r.Failed = min(s, 10) }, 10, "error_rate > 5%"},
		"few errors": {errors, func(s int64, r *Reading) { r.Failed = s / 3 }, 0, ""},
		// Nothing is done any more from second 7 on: half of the last five seconds' are missing at 9.5.
		"a stall": {achieved, func(s int64, r *Reading) {
			r.Done = 10 * min(s, 6)
		}, 9, "achieved_rate < 50% for 5s: it was 40.0 %"},
		"half are gone": {connected, func(s int64, r *Reading) {
			if s >= 4 {
				r.Connected = 49
			}
		}, 6, "connected < 0.5 for 3s: it was 49.0 %"},
		"they come back": {connected, func(s int64, r *Reading) {
			r.Connected = 49
			if s%3 == 0 {
				r.Connected = 60
			}
		}, 0, ""},
		"slow": {p99, func(s int64, r *Reading) {
			if s >= 4 {
				r.SendP99 = 1200 * time.Millisecond
			}
		}, 6, "send.intended.p99 > 1s for 3s: it was 1200 ms, 6 s"},
		"slow now and then": {p99, func(s int64, r *Reading) {
			r.SendP99 = 2 * time.Second
			if s%3 == 0 {
				r.SendP99 = time.Second
			}
		}, 0, ""},
		"seconds in which nothing ended say nothing": {p99, func(s int64, r *Reading) {
			r.SendP99, r.Done = 2*time.Second, s/5
		}, 15, ""},
		"at once":      {"  - {metric: generator.late.p99, max: 50ms}", func(s int64, r *Reading) { r.Late99 = time.Duration(s) * 20 * time.Millisecond }, 3, "for 1s"},
		"deliver":      {"  - {metric: deliver.p99, max: 50ms, for: 2s}", func(s int64, r *Reading) { r.DeliverP99 = time.Duration(s) * 20 * time.Millisecond }, 4, ""},
		"both bounds":  {"  - {metric: achieved_rate, max: 1, min: 10%}", func(s int64, r *Reading) { r.Done = 10*s + 11*(s/5) }, 5, "achieved_rate > 1 or achieved_rate < 10%"},
		"nothing due":  {achieved, func(_ int64, r *Reading) { r.Due, r.Done = 0, 0 }, 0, ""},
		"no devices":   {connected, func(_ int64, r *Reading) { r.Devices, r.Connected = 0, 0 }, 0, ""},
		"two of these": {connected + "\n" + achieved, func(_ int64, r *Reading) { r.Done = 0 }, 5, "achieved_rate"},
	} {
		t.Run(name, func(t *testing.T) {
			when, say := play(t, c.rule, 40, c.at)
			if when != c.when || !strings.Contains(say, c.say) {
				t.Errorf("after %d s %q, want %d and %q", when, say, c.when, c.say)
			}
		})
	}
}

// A watch keeps what its longest rule needs, however long the run.
func TestWatchIsBounded(t *testing.T) {
	w := NewWatch(rules(t, "  - {metric: error_rate, max: 1, for: 7s}"))
	for s := range 10_000 {
		w.Add(Reading{At: time.Duration(s) * time.Second, Due: int64(s), Done: int64(s)})
		if len(w.readings) > 9 {
			t.Fatalf("%d readings after %d s", len(w.readings), s)
		}
	}
}

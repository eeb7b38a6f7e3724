package postgres

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/bits"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// propertyFor makes TestProperty and TestLinearizable run for half of this time each, instead of a few histories.
var propertyFor = flag.Duration("property", 0, "how long random histories run; 0 = a few of them")

// interrupted ends with Ctrl-C, so that a long run tells what it did until then.
var interrupted = sync.OnceValue(func() context.Context {
	ctx, _ := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	return ctx
})

// drawn lets rapid choose, which shrinks a history that failed and keeps it under testdata/rapid.
type drawn struct{ *rapid.T }

// Int draws evenly, unlike rapid.IntRange, which prefers small numbers: there all operations but the first are rare.
func (d drawn) Int(label string, lo, hi int) int {
	return rapid.Custom(func(t *rapid.T) int {
		n := 0
		for range bits.Len(uint(hi-lo)) + 2 {
			n *= 2
			if rapid.Bool().Draw(t, "bit") {
				n++
			}
		}
		return lo + n%(hi-lo+1)
	}).Draw(d.T, label)
}

// tally counts the steps of all histories, and says in the end what was done. It belongs to one goroutine.
type tally struct {
	began     time.Time
	histories int
	steps     map[string]int
}

func newTally() *tally { return &tally{began: time.Now(), steps: map[string]int{}} }

func (c *tally) log(t *testing.T) {
	total := 0
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(c.steps)) {
		total += c.steps[name]
		parts = append(parts, fmt.Sprintf("%s %d", name, c.steps[name]))
	}
	d := time.Since(c.began)
	t.Logf("%d histories, %d steps in %v (%.0f/s): %s", c.histories, total, d.Round(time.Second), float64(total)/d.Seconds(), strings.Join(parts, ", "))
}

// until says how long a test goes on: n histories, or with -property until the time is over or someone interrupts it.
func until(t *testing.T, c *tally, n int) (more func() bool) {
	if *propertyFor == 0 {
		return func() bool { return c.histories < n }
	}
	ctx, cancel := context.WithTimeout(interrupted(), *propertyFor/2)
	t.Cleanup(cancel)
	return func() bool { return ctx.Err() == nil }
}

// TestProperty runs random histories of many users, devices and conversations, one step at a time, against the store and
// its model: results and invariants are compared after each step.
func TestProperty(t *testing.T) {
	if *propertyFor == 0 {
		t.Parallel()
	}
	s := openRig(t)
	c := newTally()
	defer c.log(t)
	more, failed := until(t, c, 50), false
	history := func(rt *rapid.T) {
		// Enough is enough, except when rapid replays and shrinks a history that failed.
		if !failed && !more() {
			return
		}
		passed := false
		defer func() { failed = failed || !passed }()
		c.histories++
		w, err := newWorld(context.Background(), s, drawn{rt}, c.steps)
		if err != nil {
			rt.Fatal(err)
		}
		rt.Repeat(map[string]func(*rapid.T){"step": func(rt *rapid.T) {
			w.c = drawn{rt}
			if err := w.step(); err != nil {
				// Ids and times are others each time: what failed says no more than rapid needs to find it again.
				rt.Logf("%v\n%s", err, w.history())
				rt.Fatal("the store differs from its model")
			}
		}})
		passed = true
	}
	for rapid.Check(t, history); more(); {
		rapid.Check(t, history)
	}
}

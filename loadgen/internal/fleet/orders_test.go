package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"imbench/loadgen/internal/scenario"
)

// TestOrders: an order comes to all workers whole, from many at once, before their job, within it and from the sink; the answers
// are in the order of Members; what a worker makes of one is told with its name; and who has settled waits for the other.
func TestOrders(t *testing.T) {
	t.Parallel()
	url := natsServer(t)
	var settled atomic.Int32
	for _, name := range []string{"x", "y"} {
		obey := func(_ context.Context, order []byte) ([]byte, error) {
			if string(order) == "refuse" && name == "y" {
				return nil, errors.New("not this")
			}
			return append([]byte(fmt.Sprint(settled.Load())), order...), nil
		}
		serveWith(t, url, time.Hour, obey, func(load context.Context, job []byte, s *Session) error {
			if _, err := s.Ready(); err != nil {
				return err
			}
			if _, err := s.Connected(); err != nil {
				return err
			}
			settled.Add(1)
			if err := s.Settled(); err != nil {
				return err
			}
			if settled.Load() != 2 {
				return errors.New("it left before the other had settled")
			}
			return s.Result(job)
		})
	}
	f := gather(t, url, "r", 2)
	answers, err := f.Ask(t.Context(), append([]byte("a"), bulk...), append([]byte("b"), bulk...))
	if err != nil || len(answers) != 2 || !bytes.Equal(answers[0], append([]byte("0a"), bulk...)) || !bytes.Equal(answers[1], append([]byte("0b"), bulk...)) {
		t.Fatalf("%v, answers of %d bytes", err, len(answers))
	}
	if _, err := f.Ask(t.Context(), []byte("refuse")); err == nil || !regexp.MustCompile("^worker-[12]: not this$").MatchString(err.Error()) {
		t.Error(err)
	}
	l := newLog()
	l.settled = func() {
		if answers, err := f.Ask(t.Context(), []byte("s")); err != nil || string(answers[0]) != "2s" || string(answers[1]) != "2s" {
			t.Errorf("%v, %q", err, answers)
		}
	}
	var asking sync.WaitGroup
	for i := range 4 {
		asking.Go(func() {
			want := strings.Repeat(fmt.Sprint(i), 100_000)
			for range 3 {
				if answers, err := f.Ask(t.Context(), []byte(want)); err != nil || string(answers[0][1:]) != want || string(answers[1][1:]) != want {
					t.Errorf("%d: %v, answers of %d bytes", i, err, len(answers))
					return
				}
			}
		})
	}
	err = f.Run(t.Context(), [][]byte{[]byte("a"), []byte("b")}, l)
	asking.Wait()
	if err != nil || len(l.results) != 2 {
		t.Errorf("%v, %v", err, l.results)
	}
}

// TestOrderToALostWorker: it does not wait for ever.
func TestOrderToALostWorker(t *testing.T) {
	t.Parallel()
	url := natsServer(t)
	deaf(t, url, window+2, false)
	f := gather(t, url, "r", 1)
	ctx, cancel := context.WithTimeoutCause(t.Context(), 200*time.Millisecond, errors.New("too long"))
	defer cancel()
	if _, err := f.Ask(ctx, []byte("x")); err == nil || err.Error() != "worker-1: too long" {
		t.Error(err)
	}
	f.lose(f.members[0], "it is deaf")
	var lost *LostError
	if _, err := f.Ask(t.Context(), []byte("x")); !errors.As(err, &lost) {
		t.Error(err)
	}
}

// TestManyOrders: as many may wait at a worker as the longest timeline of faults has, each of them done and followed; not any number.
func TestManyOrders(t *testing.T) {
	w := &serving{session: newSession(nil, "", "", goneAfter)}
	for i := range 2 * scenario.MaxFaults {
		if err := w.hear(kindOrder, make([]byte, numberBytes)); err != nil {
			t.Fatalf("order %d: %v", i+1, err)
		}
	}
	var err error
	for i := 0; i < 1000 && err == nil; i++ {
		err = w.hear(kindOrder, make([]byte, numberBytes))
	}
	if err == nil {
		t.Error("any number of orders may wait")
	}
}

package device

import (
	"context"
	"fmt"
	"testing"
	"time"

	"imbench/loadgen/internal/clock"
	"imbench/loadgen/internal/population"
	"imbench/loadgen/internal/sample"
	"imbench/loadgen/internal/testgate"
	"imbench/loadgen/protocol"
	"imbench/server/wire"
)

// answers are the operations of a kind so far.
func (w *world) answers(kind sample.OpKind) (list []sample.Op) {
	w.sink.mu.Lock()
	defer w.sink.mu.Unlock()
	for _, o := range w.sink.ops {
		if o.Kind == kind {
			list = append(list, o)
		}
	}
	return list
}

// TestFetch: what is fetched is drawn among the last join and all that the device has since, and the time runs from when it was
// intended.
func TestFetch(t *testing.T) {
	virtual(t, func(t *testing.T) {
		w := newWorld(t, 2, "push")
		w.start()
		for range 3 {
			w.post("t-g0") // seqs 3 to 5, behind two joins
		}
		w.wait(time.Second)
		intended := clock.Now().Add(-40 * time.Millisecond)
		for _, draw := range []float64{0.001, 0.26, 0.999} {
			w.g.Fetch(&population.Arrival{Device: 1, Conv: 0, Draw: draw}, intended)
		}
		w.wait(time.Second)
		var seqs []int64
		for _, r := range w.requests(wire.TFetch) {
			seqs = append(seqs, r.Seq)
		}
		if fmt.Sprint(seqs) != "[2 3 5]" {
			t.Errorf("fetched %v, want the join 2, and 3 and 5", seqs)
		}
		got := w.answers(sample.OpFetch)
		if len(got) != 3 {
			t.Fatalf("answers %+v", got)
		}
		for _, o := range got {
			if o.Code != "" || o.Start != intended || o.Done.Sub(o.Start) != 45*time.Millisecond || o.Device != 1 {
				t.Errorf("%+v, want 45 ms from the intended time on", o)
			}
		}
		if up, down := w.sink.frameCount(sample.FFetch, sample.Up), w.sink.frameCount(sample.FFetched, sample.Down); up != 3 || down != 3 {
			t.Errorf("%d requests and %d answers counted", up, down)
		}
		told := map[int64]string{}
		for _, d := range w.sink.applied(1, 0) {
			told[d.Seq] = fmt.Sprint(d.MID, d.BodyHash, d.Plan, d.Kind)
		}
		w.sink.mu.Lock()
		var shown []int64
		for _, d := range w.sink.deliveries {
			if d.Path != sample.Fetched {
				continue
			}
			shown = append(shown, d.Seq)
			if is := fmt.Sprint(d.MID, d.BodyHash, d.Plan, d.Kind); d.Seq > 2 && is != told[d.Seq] {
				t.Errorf("seq %d was reported as %s when it was fetched, %s before", d.Seq, is, told[d.Seq])
			}
		}
		w.sink.mu.Unlock()
		if fmt.Sprint(shown) != "[2 3 5]" {
			t.Errorf("the events %v were reported as fetched", shown)
		}
		if n := w.sink.frameCount(sample.FEvent, sample.Down); n != 6 {
			t.Errorf("%d pushes counted: an answer is none", n)
		}
		w.complete(1, 0)
		w.wait(w.cfg.AckDelay)
		w.settled()
	})
}

// TestListAsked: a list is asked for page by page, is one operation, and changes nothing of what the device knows.
func TestListAsked(t *testing.T) {
	virtual(t, func(t *testing.T) {
		w := newWorld(t, 1, "push", "push", "push", "push", "push") // five conversations are three pages
		w.start()
		before := len(w.requests(wire.TConvs))
		w.g.List(&population.Arrival{Device: 0}, clock.Now())
		w.wait(time.Second)
		got := w.answers(sample.OpList)
		if pages := len(w.requests(wire.TConvs)) - before; pages != 3 || len(got) != 1 || got[0].Code != "" || got[0].Done.Sub(got[0].Start) != 15*time.Millisecond {
			t.Errorf("%d pages, %+v, want three pages of 5 ms each", pages, got)
		}
		w.post("t-g3")
		w.wait(10 * time.Second)
		w.complete(0, 3)
		w.settled()
	})
}

// TestListAskedTwice: a page that was late is asked for again, and its second answer is not taken for one to the page after it.
func TestListAskedTwice(t *testing.T) {
	virtual(t, func(t *testing.T) {
		w := newWorld(t, 1, "push", "push", "push", "push", "push")
		late := time.Time{}
		w.wire.Stalled = func(at time.Time) time.Time {
			if at.Before(late) {
				return late
			}
			return at
		}
		w.start()
		before := len(w.requests(wire.TConvs))
		late = time.Now().Add(w.cfg.ResendAfter + time.Second)
		w.g.List(&population.Arrival{Device: 0}, clock.Now())
		w.wait(w.cfg.ResendAfter + 2*time.Second)
		got := w.answers(sample.OpList)
		if pages := len(w.requests(wire.TConvs)) - before; pages != 4 || len(got) != 1 || got[0].Code != "" {
			t.Errorf("%d pages asked for, %+v, want the first one twice and then the two others", pages, got)
		}
		w.settled()
	})
}

// TestAsksWait: what is asked without a connection waits for the next, what had no answer is asked again, and so is what was
// refused for now. What is refused for good has failed.
func TestAsksWait(t *testing.T) {
	virtual(t, func(t *testing.T) {
		w := newWorld(t, 1, "push")
		refused := 0
		w.gate.Refuse = func(r *wire.Request, _ int) (wire.Code, int) {
			if r.T != wire.TFetch {
				return "", 0
			}
			switch refused++; refused {
			case 1:
				return wire.RateLimited, 300
			case 2:
				return wire.Expired, 0
			}
			return "", 0
		}
		w.start()
		begun := clock.Now()
		w.g.Fetch(&population.Arrival{}, begun) // refused for now, and then for good
		w.wait(3 * time.Second)
		got := w.answers(sample.OpFetch)
		if len(got) != 1 || got[0].Code != string(wire.Expired) || got[0].Done.Sub(begun) < 300*time.Millisecond {
			t.Fatalf("%+v, want EXPIRED at the second try", got)
		}
		w.gate.Silent.Store(true)
		w.g.Fetch(&population.Arrival{}, clock.Now())
		w.wait(time.Second)
		w.gate.Silent.Store(false)
		if n, why := w.g.Unsettled(1); n != 1 || why[0] != "t-u0-d1: 1 requests without an answer" {
			t.Errorf("unsettled %d, %q", n, why)
		}
		w.wait(w.cfg.ResendAfter)
		if got = w.answers(sample.OpFetch); len(got) != 2 || got[1].Code != "" || got[1].Done.Sub(got[1].Start) < w.cfg.ResendAfter {
			t.Fatalf("%+v, want the second one answered after it was asked again", got)
		}
		w.g.Cut(0, 0)
		cut := clock.Now()
		w.g.List(&population.Arrival{}, cut)
		w.wait(time.Minute)
		if got = w.answers(sample.OpList); len(got) != 1 || got[0].Code != "" || got[0].Start != cut {
			t.Fatalf("%+v, want the list after the reconnect", got)
		}
		w.settled()
	})
}

// TestAsksEnd: what cannot be asked fails at once, and what has no answer at the end is reported with the time that it waited.
func TestAsksEnd(t *testing.T) {
	virtual(t, func(t *testing.T) {
		w := newWorld(t, 2, "push")
		w.pop.Devices[1].Connected = false
		w.open()
		w.g.Start(0, "mem")
		w.wait(time.Second)
		w.gate.Silent.Store(true)
		begun := clock.Now()
		for range maxAsks + 1 {
			w.g.Fetch(&population.Arrival{}, begun)
		}
		w.g.Fetch(&population.Arrival{Device: 1}, begun)
		w.g.Fetch(&population.Arrival{Conv: 7}, begun)
		w.wait(2 * time.Second)
		w.g.Close()
		codes := map[string]int{}
		for _, o := range w.answers(sample.OpFetch) {
			codes[o.Code]++
			if o.Censored != (o.Code == CodeTimeout) || o.Censored && o.Done.Sub(begun) != 2*time.Second {
				t.Errorf("%+v", o)
			}
		}
		if want := map[string]int{CodeTimeout: maxAsks, CodeOverflow: 1, CodeNoDevice: 1, CodeNotMember: 1}; fmt.Sprint(codes) != fmt.Sprint(want) {
			t.Errorf("codes %v, want %v", codes, want)
		}
	})
}

// withoutFetch is a wire that has seqs, and no request for one event.
type withoutFetch struct{ *testgate.Wire }

type withoutFetchConn struct{ protocol.Conn }

func (w withoutFetch) Dial(ctx context.Context, target, token string) (protocol.Conn, error) {
	c, err := w.Wire.Dial(ctx, target, token)
	return withoutFetchConn{c}, err
}

func (c withoutFetchConn) Write(r *protocol.Request) (int, error) {
	if r.Op == protocol.OpFetch {
		return 0, nil
	}
	return c.Conn.Write(r)
}

// TestFetchOnAWireWithoutIt: it fails at once, or when there is a connection to learn that on, and keeps nothing from settling.
func TestFetchOnAWireWithoutIt(t *testing.T) {
	virtual(t, func(t *testing.T) {
		w := newWorld(t, 1, "push")
		w.openOn(withoutFetch{w.wire})
		w.g.Start(0, "mem")
		w.wait(time.Second)
		w.g.Fetch(&population.Arrival{}, clock.Now())
		w.g.Cut(0, 0)
		w.wait(time.Microsecond)
		w.g.Fetch(&population.Arrival{}, clock.Now())
		w.g.Fetch(&population.Arrival{}, clock.Now())
		w.g.List(&population.Arrival{}, clock.Now())
		w.wait(time.Minute)
		got := w.answers(sample.OpFetch)
		for _, o := range got {
			if o.Code != codeNotOnWire || o.Censored {
				t.Errorf("%+v", o)
			}
		}
		if lists := w.answers(sample.OpList); len(got) != 3 || len(lists) != 1 || lists[0].Code != "" {
			t.Errorf("%d fetches have ended, and of lists %+v; want three, and one", len(got), lists)
		}
		w.settled()
	})
}

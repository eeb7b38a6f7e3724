package record

import (
	"context"
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"imbench/loadgen/internal/clock"
	"imbench/loadgen/internal/sample"
	"imbench/model/capacity"
	"imbench/reports/rundir"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	from = clock.Time(100e9)
	to   = clock.Time(110e9) // a window of 10 s
	in   = clock.Time(105e9)
	out  = clock.Time(99e9)
	ms   = clock.Time(time.Millisecond)
)

func newRecorder(t *testing.T, cfg Config) (*Recorder, *rundir.Reader) {
	t.Helper()
	w, err := rundir.Create(filepath.Join(t.TempDir(), "run"), rundir.Manifest{Scenario: "t"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	r, err := rundir.Open(w.Dir())
	if err != nil {
		t.Fatal(err)
	}
	cfg.Out = w
	rec := New(cfg)
	rec.SetWindow(from, to)
	return rec, r
}

func finish(t *testing.T, r *Recorder) Result {
	t.Helper()
	res, err := r.Finish()
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// A frame, a send, an ack or a delivery counts for the window by the intended time of its message alone.
func TestWindowByIntendedTime(t *testing.T) {
	r, _ := newRecorder(t, Config{})
	for _, at := range []clock.Time{0, out, from - 1, from, in, to - 1, to} {
		for i, f := range []sample.FrameType{sample.FEvent, sample.FEventDiscarded, sample.FHint, sample.FSynced, sample.FAcked, sample.FSent,
			sample.FConvs} {
			r.Frame(sample.Frame{Dir: sample.Down, Type: f, Bytes: 100 * (i + 1), Msg: at, At: to + 5})
		}
		r.Frame(sample.Frame{Dir: sample.Up, Type: sample.FSync, Bytes: 10, Msg: at})
		r.Frame(sample.Frame{Dir: sample.Up, Type: sample.FAck, Bytes: 10, Msg: at})
		r.Send(sample.Send{Intended: at, Start: at + ms, Done: at + 3*ms})
		for range 4 {
			r.Deliver(sample.Delivery{Intended: at, At: at + 5*ms, Kind: "msg"})
		}
		r.Deliver(sample.Delivery{Intended: at, At: at + 5*ms, Own: true})
	}
	res := finish(t, r)
	if res.WindowS != 10 || res.Offered != 3 || res.Done != 3 {
		t.Errorf("%v s, %d offered, %d done", res.WindowS, res.Offered, res.Done)
	}
	want := map[string]float64{capacity.Messages: 0.3, capacity.PushFrames: 0.3, capacity.DiscardedFrames: 0.3, capacity.HintFrames: 0.3,
		capacity.SyncFrames: 0.3, capacity.AckFrames: 0.3, capacity.DownFrames: 1.5, capacity.PushBytes: 30,
		capacity.DownBytes: 0.3 * (100 + 300 + 400 + 500 + 600), capacity.Deliveries: 1, capacity.EffectiveAck: 5}
	for name, v := range want {
		if got, ok := res.Measured[name]; !ok || math.Abs(got-v) > 1e-9 {
			t.Errorf("%s = %v, want %v", name, got, v)
		}
	}
	if len(res.Measured) != len(want) || res.EffectiveAck != 5 {
		t.Errorf("%v", res.Measured)
	}
	if n := res.Metrics[rundir.Deliver].Count; n != 12 {
		t.Errorf("%d in the histogram, want 12: own ones have no latency", n)
	}
}

func TestLatencies(t *testing.T) {
	type fed func(r *Recorder)
	deliver := func(d sample.Delivery) fed {
		d.Intended, d.Device = in, 3
		if d.At == 0 {
			d.At = in + 20*ms
		}
		return func(r *Recorder) { r.Deliver(d) }
	}
	send := func(s sample.Send) fed {
		s.Intended = in
		return func(r *Recorder) { r.Send(s) }
	}
	op := func(o sample.Op) fed { return func(r *Recorder) { r.Op(o) } }
	tests := []struct {
		name   string
		feed   fed
		metric string
		want   rundir.Metric // P50 to 0.1 %, counts exactly
	}{
		{"first push", deliver(sample.Delivery{}), rundir.Deliver, rundir.Metric{Count: 1, P50: 20}},
		{"hint and sync of a reader", deliver(sample.Delivery{Path: sample.PulledHint}), rundir.Deliver, rundir.Metric{Count: 1, P50: 20}},
		{"repaired", deliver(sample.Delivery{Path: sample.Repaired}), rundir.DeliverRepaired, rundir.Metric{Count: 1, P50: 20}},
		{"repaired is not deliver", deliver(sample.Delivery{Path: sample.Repaired}), rundir.Deliver, rundir.Metric{}},
		{"backfill", deliver(sample.Delivery{Path: sample.Backfill}), rundir.Deliver, rundir.Metric{}},
		{"own", deliver(sample.Delivery{Own: true}), rundir.Deliver, rundir.Metric{}},
		{"wire repeat", deliver(sample.Delivery{WireRepeat: true}), rundir.Deliver, rundir.Metric{}},
		{"negative is counted, not clamped", deliver(sample.Delivery{At: in - ms}), rundir.Deliver, rundir.Metric{Negative: 1}},
		{"over range", deliver(sample.Delivery{At: in.Add(time.Hour)}), rundir.Deliver, rundir.Metric{Count: 1, P50: 600_000, OverRange: 1}},
		{"send from intended", send(sample.Send{Start: in + 2*ms, Done: in + 10*ms}), rundir.SendIntended, rundir.Metric{Count: 1, P50: 10}},
		{"send service", send(sample.Send{Start: in + 2*ms, Done: in + 10*ms}), rundir.SendService, rundir.Metric{Count: 1, P50: 8}},
		{"late", send(sample.Send{Start: in + 2*ms, Done: in + 10*ms}), rundir.Late, rundir.Metric{Count: 1, P50: 2}},
		{"censored enters with the time waited", send(sample.Send{Start: in + ms, Done: in + 900*ms, Censored: true}),
			rundir.SendIntended, rundir.Metric{Count: 1, P50: 900, Censored: 1}},
		{"censored has no service time", send(sample.Send{Start: in + ms, Done: in + 900*ms, Censored: true}), rundir.SendService, rundir.Metric{}},
		{"never started is late by all the time", send(sample.Send{Done: in + 900*ms, Censored: true}), rundir.Late,
			rundir.Metric{Count: 1, P50: 900, Censored: 1}},
		{"unknown outcome", send(sample.Send{Start: in + ms, Done: in + 900*ms, Code: "timeout"}), rundir.SendIntended,
			rundir.Metric{Count: 1, P50: 900, Censored: 1}},
		{"refused is no latency", send(sample.Send{Start: in + ms, Done: in + 2*ms, Code: "NOT_MEMBER"}), rundir.SendIntended, rundir.Metric{}},
		{"sync by its message", op(sample.Op{Kind: sample.OpSync, Start: to + ms, Done: to + 4*ms, Msg: in}), rundir.Sync, rundir.Metric{Count: 1, P50: 3}},
		{"sync of an old message", op(sample.Op{Kind: sample.OpSync, Start: in, Done: in + 4*ms, Msg: out}), rundir.Sync, rundir.Metric{}},
		{"sync of no message by its start", op(sample.Op{Kind: sample.OpSync, Start: in, Done: in + 4*ms}), rundir.Sync, rundir.Metric{Count: 1, P50: 4}},
		{"ack", op(sample.Op{Kind: sample.OpAck, Start: in, Done: in + 4*ms, Msg: in}), rundir.Ack, rundir.Metric{Count: 1, P50: 4}},
		{"a failed ack", op(sample.Op{Kind: sample.OpAck, Start: in, Done: in + 4*ms, Msg: in, Code: "NOT_MEMBER"}), rundir.Ack, rundir.Metric{}},
		{"connect counts always", op(sample.Op{Kind: sample.OpConnect, Start: out, Done: out + 7*ms}), rundir.Connect, rundir.Metric{Count: 1, P50: 7}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, _ := newRecorder(t, Config{Shards: 1})
			tt.feed(r)
			got := finish(t, r).Metrics[tt.metric]
			if math.Abs(got.P50-tt.want.P50) > tt.want.P50*0.001 {
				t.Errorf("p50 %v ms, want %v", got.P50, tt.want.P50)
			}
			got = rundir.Metric{Count: got.Count, P50: tt.want.P50, Negative: got.Negative, OverRange: got.OverRange, Censored: got.Censored}
			if got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestSendsByOutcome(t *testing.T) {
	r, _ := newRecorder(t, Config{LateLimit: 5 * time.Millisecond})
	for _, s := range []sample.Send{
		{Start: in + ms, Done: in + 2*ms},
		{Start: in + 6*ms, Done: in + 7*ms, Dup: true}, // late
		{Start: in + ms, Done: in + 2*ms, Code: "NOT_MEMBER"},
		{Start: in + ms, Done: in + 2*ms, Code: "timeout"},
		{Start: in + ms, Done: in + 99*ms, Censored: true},
		{Done: in + 99*ms, Censored: true}, // late: it never started
	} {
		s.Intended = in
		r.Send(s)
	}
	res := finish(t, r)
	if res.Offered != 6 || res.Started != 5 || res.Done != 2 || res.Censored != 2 || res.Failed["NOT_MEMBER"] != 1 || res.Failed["timeout"] != 1 {
		t.Errorf("%+v", res)
	}
	if g := res.Generator; math.Abs(g.LateShare-2.0/6) > 1e-9 || g.LateLimitMS != 5 || g.LateMaxMS < 98 {
		t.Errorf("%+v", g)
	}
	var s rundir.Summary
	res.Fill(&s)
	if s.Offered != 6 || s.OfferedRate != 0.6 || s.AchievedRate != 0.2 || math.Abs(s.AchievedShare-1.0/3) > 1e-9 {
		t.Errorf("%+v", s)
	}
}

// Each line of counters.ndjson is the growth of one second, and histograms are written by interval.
func TestLinesAreDifferences(t *testing.T) {
	live := int64(0)
	r, dir := newRecorder(t, Config{Live: func() (int64, int64) { live += 10; return live, live - 1 }})
	begin := time.Now()
	r.Op(sample.Op{Kind: sample.OpAck, Start: in, Done: in - ms, Msg: in}) // negative: once, not once a second
	for i := range 3 {
		for range i + 1 {
			r.Send(sample.Send{Intended: in, Start: in + ms, Done: in + 2*ms})
			r.Frame(sample.Frame{Dir: sample.Up, Type: sample.FSend, Bytes: 300})
			r.Deliver(sample.Delivery{Intended: in, At: in + 9*ms})
			r.Deliver(sample.Delivery{WireRepeat: true})
			r.Op(sample.Op{Kind: sample.OpSync, Code: "NOT_MEMBER"})
			r.Reconnect(0, 4009)
		}
		if err := r.Tick(begin.Add(time.Duration(i+1) * time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	if s := r.Snapshot(); s.Offered != 30 || s.Done != 6 || s.Applied != 6 || s.Reconnects != 6 || s.DoneRate != 2.5 ||
		s.DeliverP99 < 8900*time.Microsecond || s.SendP99 < 1900*time.Microsecond || s.LateP99 < 900*time.Microsecond {
		t.Errorf("%+v", s)
	}
	lines, _, err := dir.Counters()
	if err != nil || len(lines) != 3 {
		t.Fatalf("%v %v", lines, err)
	}
	for i, l := range lines {
		n := int64(i + 1)
		offered := int64(10)
		if l.Offered != offered || l.Done != n || l.Frames.Up["send"] != n || l.Bytes.Up["send"] != 300*n || l.Applied != n ||
			l.WireRepeats != n || l.Reconnects["4009"] != n || l.OpsFailed["sync NOT_MEMBER"] != n || l.Dropped != 0 {
			t.Errorf("line %d: %+v", i, l)
		}
		if l.Generator.Goroutines == 0 || l.Generator.HeapBytes == 0 {
			t.Errorf("the generator does not see itself: %+v", l.Generator)
		}
	}
	h, err := dir.Histograms()
	if err != nil {
		t.Fatal(err)
	}
	d := h[rundir.Deliver]
	if len(d.Intervals) != 3 || d.Intervals[2].Count != 3 || d.Total.TotalCount() != 6 {
		t.Errorf("%+v", d.Intervals)
	}
	res := finish(t, r)
	if res.Negative != 1 || len(res.Notes) != 1 {
		t.Errorf("%d negative, notes %v", res.Negative, res.Notes)
	}
	if res.Metrics[rundir.Deliver] != rundir.MetricOf(d.Total) {
		t.Errorf("the file has %+v, the summary %+v", rundir.MetricOf(d.Total), res.Metrics[rundir.Deliver])
	}
}

// However devices and intervals fall, nothing is lost or counted twice.
func TestNothingIsLostBetweenShardsAndTicks(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for round := range 6 {
		r, dir := newRecorder(t, Config{Shards: 1 + round%3})
		var want int64
		at := time.Now()
		for range round {
			for range rng.IntN(20) {
				r.Deliver(sample.Delivery{Device: int32(rng.Uint32()), Intended: in, At: in + 5*ms})
				want++
			}
			at = at.Add(time.Second)
			if err := r.Tick(at); err != nil {
				t.Fatal(err)
			}
		}
		r.Deliver(sample.Delivery{Intended: in, At: in + 5*ms}) // for Finish to find
		got := finish(t, r).Metrics[rundir.Deliver].Count
		h, err := dir.Histograms()
		if err != nil {
			t.Fatal(err)
		}
		if filed := h[rundir.Deliver].Total.TotalCount(); got != want+1 || filed != want+1 {
			t.Fatalf("%d fed, %d in the result, %d in the file", want+1, got, filed)
		}
	}
}

// Whatever the codes, each second's growth adds up to the whole.
func TestGrowthAddsUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now, before, total := map[string]int64{}, map[string]int64{}, map[string]int64{}
		for _, code := range rapid.SliceOf(rapid.StringMatching("[A-C]?")).Draw(t, "codes") {
			if code == "" {
				for k, n := range since(now, before) {
					total[k] += n
				}
				before = maps.Clone(now)
				continue
			}
			bump(now, code)
		}
		for k, n := range since(now, before) {
			total[k] += n
		}
		if !maps.Equal(total, now) {
			t.Fatalf("%v in seconds, %v in all", total, now)
		}
	})
}

func TestConcurrentReports(t *testing.T) {
	r, _ := newRecorder(t, Config{Shards: 2})
	var wg sync.WaitGroup
	const devices, each = 8, 200
	for d := range int32(devices) {
		wg.Go(func() {
			for range each {
				r.Frame(sample.Frame{Dir: sample.Down, Type: sample.FEvent, Bytes: 1, Msg: in})
				r.Deliver(sample.Delivery{Device: d, Intended: in, At: in + ms})
				r.Send(sample.Send{Device: d, Intended: in, Start: in, Done: in + ms})
				r.Op(sample.Op{Kind: sample.OpAck, Device: d, Start: in, Done: in + ms, Msg: in})
			}
		})
	}
	wg.Go(func() {
		at := time.Now()
		for i := range 5 {
			if err := r.Tick(at.Add(time.Duration(i) * time.Second)); err != nil {
				t.Error(err)
			}
			r.Snapshot()
		}
	})
	wg.Wait()
	res := finish(t, r)
	const n = devices * each
	if res.Metrics[rundir.Deliver].Count != n || res.Metrics[rundir.Ack].Count != n || res.Done != n ||
		res.Measured[capacity.PushFrames] != n/10 || res.Generator.Dropped != 0 {
		t.Errorf("%+v", res)
	}
}

func TestHotPathDoesNotAllocate(t *testing.T) {
	r, _ := newRecorder(t, Config{})
	for name, f := range map[string]func(){
		"Frame":   func() { r.Frame(sample.Frame{Dir: sample.Down, Type: sample.FEvent, Bytes: 400, Msg: in}) },
		"Deliver": func() { r.Deliver(sample.Delivery{Device: 5, Intended: in, At: in + ms}) },
		"Send":    func() { r.Send(sample.Send{Device: 5, Intended: in, Start: in + ms, Done: in + 2*ms}) },
		"Op":      func() { r.Op(sample.Op{Kind: sample.OpAck, Start: in, Done: in + ms, Msg: in}) },
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func TestSamplesAfterFinishAreDropped(t *testing.T) {
	r, _ := newRecorder(t, Config{})
	finish(t, r)
	r.Frame(sample.Frame{})
	r.Send(sample.Send{})
	r.Deliver(sample.Delivery{})
	r.Op(sample.Op{})
	r.Reconnect(0, 0)
	if n := r.result().Generator.Dropped; n != 5 {
		t.Errorf("%d dropped, want 5", n)
	}
}

func TestUnknownFrameTypeIsOther(t *testing.T) {
	r, dir := newRecorder(t, Config{})
	r.Frame(sample.Frame{Type: 200, Bytes: 9})
	finish(t, r)
	lines, _, err := dir.Counters()
	if err != nil || lines[0].Bytes.Up["other"] != 9 {
		t.Errorf("%+v %v", lines, err)
	}
}

func TestCodesAreBounded(t *testing.T) {
	m := map[string]int64{}
	for i := range 1000 {
		bump(m, time.Duration(i).String())
	}
	if len(m) != maxCodes+1 || m["other"] != 1000-maxCodes {
		t.Errorf("%d codes, %d others", len(m), m["other"])
	}
}

// Run writes a line a second, and returns when its context ends.
func TestRunTicksEachSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, dir := newRecorder(t, Config{})
		ctx, cancel := context.WithTimeout(t.Context(), 3500*time.Millisecond)
		defer cancel()
		if err := r.Run(ctx); err != nil {
			t.Fatal(err)
		}
		lines, _, err := dir.Counters()
		if err != nil || len(lines) != 3 || lines[1].Seconds != 1 {
			t.Errorf("%+v %v", lines, err)
		}
	})
}

func TestRunReturnsTheRunDirectorysError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := newRecorder(t, Config{})
		r.cfg.Out.Close()
		if err := r.Run(t.Context()); err == nil {
			t.Error("no error")
		}
	})
}

// The window may be cut short; rates are those of the shorter one.
func TestWindowCutShort(t *testing.T) {
	r, _ := newRecorder(t, Config{})
	r.Send(sample.Send{Intended: from, Start: from, Done: from + ms})
	r.SetWindow(from, from.Add(2*time.Second))
	if res := finish(t, r); res.WindowS != 2 || res.Measured[capacity.Messages] != 0.5 {
		t.Errorf("%+v", res)
	}
}

// Without a window nothing is measured, and nothing breaks.
func TestNoWindow(t *testing.T) {
	r, _ := newRecorder(t, Config{})
	r.SetWindow(0, 0)
	r.Send(sample.Send{Intended: in, Start: in, Done: in})
	if res := finish(t, r); res.Offered != 0 || len(res.Measured) != 0 {
		t.Errorf("%+v", res)
	}
}

// The package's document says what a recorder takes.
func TestMemoryBound(t *testing.T) {
	const shards, spareAndTotal, intervalAndLate = 8, 2, 2
	histograms := int(numMetrics)*(shards+spareAndTotal) + intervalAndLate
	if b := histograms * rundir.NewHistogram().ByteSize(); b > 23_000_000 || b < 21_000_000 {
		t.Errorf("%d bytes", b)
	}
}

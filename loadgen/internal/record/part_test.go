package record

import (
	"bytes"
	"encoding/gob"
	"maps"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"imbench/loadgen/internal/clock"
	"imbench/loadgen/internal/sample"
	"imbench/reports/rundir"
)

// observe hands a random observation to a sink, from one second of which the middle lies in the window.
func observe(rng *rand.Rand, s sample.Sink) {
	at := out + clock.Time(rng.Int64N(int64(12*time.Second)))
	took := clock.Time(rng.ExpFloat64() * float64(20*time.Millisecond))
	device := rng.Int32N(50)
	codes := []string{"", "", "", "timeout", "TOO_LARGE"}
	switch rng.IntN(5) {
	case 0:
		s.Frame(sample.Frame{Dir: sample.Dir(rng.IntN(2)), Type: sample.FrameType(rng.IntN(int(sample.NumFrameTypes))), Bytes: rng.IntN(500), Msg: at})
	case 1:
		x := sample.Send{Device: device, Intended: at, Start: at + took/4, Done: at + took, Code: codes[rng.IntN(len(codes))]}
		switch rng.IntN(8) {
		case 0:
			x.Start, x.Censored = 0, true
		case 1:
			x.Start = at - took // a clock that is behind
		}
		s.Send(x)
	case 2:
		if rng.IntN(20) == 0 {
			took = clock.Time(time.Hour)
		}
		s.Deliver(sample.Delivery{Device: device, Intended: at, At: at + took - ms, Own: rng.IntN(7) == 0, Path: sample.Path(rng.IntN(4)),
			WireRepeat: rng.IntN(9) == 0})
	case 3:
		s.Op(sample.Op{Kind: sample.OpKind(rng.IntN(int(sample.NumOps))), Device: device, Start: at, Done: at + took, Code: codes[rng.IntN(len(codes))]})
	case 4:
		s.Reconnect(device, 4000+rng.IntN(12))
	}
}

// What three workers saw, cut at any moments and carried to a fourth recorder, is what one recorder would have seen: every
// count, every histogram, and so every percentile.
func TestPartsAreAsOne(t *testing.T) {
	for seed := range uint64(6) { // few: a recorder is 10 MB
		rng := rand.New(rand.NewPCG(seed, 1))
		one, oneDir := newRecorder(t, Config{Shards: 2})
		merged, mergedDir := newRecorder(t, Config{Shards: 2})
		var workers [3]*Recorder
		for i := range workers {
			workers[i] = New(Config{Shards: 1})
			workers[i].SetWindow(from, to)
		}
		begun := time.Now()
		cut := func(w int, final bool) {
			p, err := workers[w].Cut(begun.Add(time.Second), final)
			if err != nil {
				t.Fatal(err)
			}
			p.Worker = string(rune('a' + w))
			if err := merged.Absorb(carried(t, p)); err != nil {
				t.Fatal(err)
			}
		}
		for range rng.IntN(1000) {
			observe(rng, sample.Tee{one, workers[rng.IntN(3)]})
			if rng.IntN(100) == 0 {
				cut(rng.IntN(3), false)
			}
			if rng.IntN(200) == 0 {
				if err := merged.Tick(begun.Add(time.Second)); err != nil {
					t.Fatal(err)
				}
			}
		}
		for w := range workers {
			cut(w, true)
		}
		want, got := finish(t, one), finish(t, merged)
		for _, r := range []*Result{&want, &got} {
			g := &r.Generator
			g.CPUCores, g.GCPauseMaxMS, g.HeapMaxBytes, g.Goroutines, g.CPULimit = 0, 0, 0, 0, 0
			r.Processes = nil
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("seed %d: merged %+v\nwant   %+v", seed, got, want)
		}
		if got, want := total(t, mergedDir), total(t, oneDir); !reflect.DeepEqual(got, want) {
			t.Errorf("seed %d: counters %+v\nwant     %+v", seed, got, want)
		}
	}
}

// carried is a part after its way between two processes.
func carried(t *testing.T, p Part) (got Part) {
	t.Helper()
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(p); err != nil {
		t.Fatal(err)
	}
	if err := gob.NewDecoder(&b).Decode(&got); err != nil {
		t.Fatal(err)
	}
	return got
}

// total adds up the counters of a run directory.
func total(t *testing.T, d *rundir.Reader) (sum rundir.CounterLine) {
	t.Helper()
	lines, _, err := d.Counters()
	if err != nil {
		t.Fatal(err)
	}
	sum.Failed, sum.OpsFailed, sum.Reconnects = map[string]int64{}, map[string]int64{}, map[string]int64{}
	sum.Frames, sum.Bytes = rundir.ByDirection{Up: map[string]int64{}, Down: map[string]int64{}}, rundir.ByDirection{Up: map[string]int64{}, Down: map[string]int64{}}
	for _, l := range lines {
		sum.Offered, sum.Started, sum.Done, sum.Censored = sum.Offered+l.Offered, sum.Started+l.Started, sum.Done+l.Done, sum.Censored+l.Censored
		sum.Applied, sum.WireRepeats, sum.Dropped = sum.Applied+l.Applied, sum.WireRepeats+l.WireRepeats, sum.Dropped+l.Dropped
		for to, more := range map[*map[string]int64]map[string]int64{&sum.Failed: l.Failed, &sum.OpsFailed: l.OpsFailed, &sum.Reconnects: l.Reconnects,
			&sum.Frames.Up: l.Frames.Up, &sum.Frames.Down: l.Frames.Down, &sum.Bytes.Up: l.Bytes.Up, &sum.Bytes.Down: l.Bytes.Down} {
			absorb(*to, more)
		}
	}
	return sum
}

// A part's look at its own process is in the line of the second and in the summary, once.
func TestPeersInTheWindow(t *testing.T) {
	r, d := newRecorder(t, Config{})
	now := time.Now()
	r.SetWindow(clock.Now().Add(-time.Hour), clock.Now().Add(time.Hour))
	for i := range 2 {
		for _, w := range []string{"worker-1", "worker-2"} {
			err := r.Absorb(Part{Worker: w, Seconds: 1, InWindow: true, Generator: rundir.GeneratorSecond{CPUCores: 0.5, HeapBytes: 1 << 30, Goroutines: 1000, GCPauseMaxMS: 77},
				Processes: []rundir.ProcessLine{{At: now, Role: w, PID: 40 + i, RSSBytes: int64(100 * (i + 1))}}})
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := r.Tick(now.Add(time.Duration(i+1) * time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	res := finish(t, r)
	if g := res.Generator; g.CPUCores < 1 || g.CPUCores > 1.5 || g.HeapMaxBytes < 2<<30 || g.Goroutines < 2000 || g.GCPauseMaxMS < 77 {
		t.Errorf("%+v", g)
	}
	want := []rundir.ProcessUse{{Role: "worker-1", PID: 41, CPUCores: 0.5, RSSMaxBytes: 200}, {Role: "worker-2", PID: 41, CPUCores: 0.5, RSSMaxBytes: 200}}
	if !reflect.DeepEqual(res.Processes, want) {
		t.Errorf("%+v", res.Processes)
	}
	lines, _, err := d.Processes()
	if err != nil || len(lines) != 4 {
		t.Errorf("%d lines, %v", len(lines), err)
	}
	counters, _, err := d.Counters()
	if err != nil || counters[0].Generator.CPUCores < 1 || counters[0].Generator.Goroutines < 2000 {
		t.Errorf("%+v, %v", counters[0].Generator, err)
	}
}

// A part from elsewhere is refused as a whole.
func TestForeignPart(t *testing.T) {
	r, _ := newRecorder(t, Config{})
	r.Frame(sample.Frame{Type: sample.FSent, Msg: in})
	before := maps.Clone(finish(t, r).Measured)
	r, _ = newRecorder(t, Config{})
	r.Frame(sample.Frame{Type: sample.FSent, Msg: in})
	for _, b := range [][]byte{[]byte("x"), []byte("HISTFAAAAEV42pNpmSzMwMCgyAABzFCaEURcm7yEwf4DRGBihBEA")} {
		p := Part{Applied: 5, Histograms: map[string][]byte{rundir.Deliver: b}}
		p.WindowFrames[sample.Down][sample.FSent] = 100
		if r.Absorb(p) == nil {
			t.Errorf("%q was taken", b)
		}
	}
	if got := finish(t, r).Measured; !maps.Equal(got, before) {
		t.Errorf("%v, want %v", got, before)
	}
}

package calibrate

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"imbench/loadgen/internal/child"
	"imbench/loadgen/internal/clock"
	"imbench/reports/rundir"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	child.Main(map[string]child.Program{Role: Serve})
	goleak.VerifyTestMain(m)
}

// TestCalibration: every figure is there and they agree with each other; how large they are is the machine's affair.
func TestCalibration(t *testing.T) {
	c, err := Run(t.Context(), Config{Rate: 200, Fanout: 6.8, BodyBytes: 200})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", c.Calibration)
	if c.Fanout != 7 || c.SendsPerS <= 0 || c.MixSendsPerS <= 0 || c.CPUCores <= 0 || c.ServerCores <= 0 || c.TookS <= 0 {
		t.Errorf("calibration %+v", *c)
	}
	// A message is seven pushes and a reply; acknowledgements come on top. What is in flight at both ends blurs it.
	if per := c.FramesPerS / c.MixSendsPerS; per < 5 || per > 13 {
		t.Errorf("%.1f frames a send, want about 10", per)
	}
	if len(c.Floor) == 0 {
		t.Error("no latencies of the floor")
	}
	if c.OfferedShare != 200/c.MixSendsPerS || c.FloorRate != min(200, floorShare*c.MixSendsPerS) {
		t.Errorf("calibration %+v", *c)
	}
	if c.FloorSends == 0 || c.FloorP50MS <= 0 || c.FloorP99MS < c.FloorP50MS {
		t.Errorf("floor of %+v", *c)
	}
}

func TestCalibrationEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, Config{Rate: 10, BodyBytes: 200}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// TestMerge: what can be counted adds up, percentiles are those of all latencies, and each part is still there.
func TestMerge(t *testing.T) {
	part := func(name string, sends float64, share float64, ms ...float64) Part {
		h := rundir.NewHistogram()
		for _, x := range ms {
			if err := h.RecordValue(int64(x * 1e6)); err != nil {
				t.Fatal(err)
			}
		}
		r := Result{Calibration: rundir.Calibration{Devices: 128, Fanout: 7, SendsPerS: 3 * sends, MixSendsPerS: sends, FramesPerS: 9 * sends, CPUCores: 0.5, ServerCores: 0.25,
			OfferedShare: share, FloorRate: 100, TookS: sends / 1000}}
		if err := r.setFloor(h); err != nil {
			t.Fatal(err)
		}
		return Part{name, r}
	}
	got, err := Merge([]Part{part("a", 1000, 0.2, 1, 1, 1), part("b", 3000, 0.1, 5, 5, 5, 5, 5), part("c", 500, 0.3)}, 900)
	if err != nil {
		t.Fatal(err)
	}
	c := got.Calibration
	if c.Devices != 384 || c.Fanout != 7 || c.SendsPerS != 13_500 || c.MixSendsPerS != 4500 || c.FramesPerS != 40_500 || c.CPUCores != 1.5 || c.ServerCores != 0.75 ||
		c.OfferedShare != 0.2 || c.FloorRate != 300 || c.FloorSends != 8 || c.TookS != 3 {
		t.Errorf("%+v", c)
	}
	if math.Abs(c.FloorP50MS-5) > 0.01 || math.Abs(c.FloorP99MS-5) > 0.01 { // the mean of the medians would be 3
		t.Errorf("floor %v, %v, want 5 ms", c.FloorP50MS, c.FloorP99MS)
	}
	if len(c.Workers) != 3 || c.Workers[1].Name != "b" || c.Workers[1].MixSendsPerS != 3000 || c.Workers[2].OfferedShare != 0.3 || math.Abs(c.Workers[0].FloorP50MS-1) > 0.01 {
		t.Errorf("workers %+v", c.Workers)
	}
	bad := part("d", 1, 1, 1)
	bad.Floor = []byte("no histogram")
	if _, err := Merge([]Part{bad}, 1); err == nil || !strings.Contains(err.Error(), "the latency floor of d") {
		t.Error(err)
	}
}

// TestTooLateForTheOthers: who is not ready when the others begin measures nothing.
func TestTooLateForTheOthers(t *testing.T) {
	if _, err := Run(t.Context(), Config{Rate: 10, BodyBytes: 200, Start: clock.Now().Add(-time.Hour)}); err == nil || !strings.Contains(err.Error(), "before the devices here were ready") {
		t.Error(err)
	}
}

package calibrate

import (
	"context"
	"errors"
	"testing"

	"imbench/loadgen/internal/child"

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
	t.Logf("%+v", *c)
	if c.Fanout != 7 || c.SendsPerS <= 0 || c.MixSendsPerS <= 0 || c.CPUCores <= 0 || c.ServerCores <= 0 || c.TookS <= 0 {
		t.Errorf("calibration %+v", *c)
	}
	// A message is seven pushes and a reply; acknowledgements come on top. What is in flight at both ends blurs it.
	if per := c.FramesPerS / c.MixSendsPerS; per < 5 || per > 13 {
		t.Errorf("%.1f frames a send, want about 10", per)
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

package app

import (
	"bytes"
	"strings"
	"testing"

	"imbench/loadgen/internal/fleet"
	"imbench/loadgen/internal/scenario"
	"imbench/reports/rundir"
)

// A run is calibrated if it is long, or if that is asked for.
func TestWhoIsCalibrated(t *testing.T) {
	for _, c := range []struct {
		flags []string
		long  bool
		want  bool
	}{
		{nil, true, true}, {nil, false, false}, {[]string{"-calibrate"}, false, true}, {[]string{"-calibrate=false"}, true, false},
	} {
		measure := "29s"
		if c.long {
			measure = "30s"
		}
		sc, err := scenario.Parse("f.yaml", []byte("phases: {measure: "+measure+"}\n"))
		if err != nil {
			t.Fatal(err)
		}
		o, err := parseFlags(Program{Args: append([]string{"-scenario", "baseline"}, c.flags...)})
		if err != nil {
			t.Fatal(err)
		}
		r := &runner{scenario: sc, options: o}
		if got := r.calibrates(); got != c.want {
			t.Errorf("%v, measure %s: %v", c.flags, measure, got)
		}
	}
	var say bytes.Buffer
	if code := Run(t.Context(), Program{Args: []string{"-scenario", "baseline", "-calibrate=maybe"}, Stderr: &say}); code != ExitUsage || !strings.Contains(say.String(), "want true or false") {
		t.Errorf("exit %d, %s", code, say.String())
	}
}

// What the generator does near its ceiling is noted.
func TestNearTheCeiling(t *testing.T) {
	for share, want := range map[float64]bool{0.69: false, 0.71: true} {
		r := &runner{}
		r.calibrated(&rundir.Calibration{OfferedShare: share, MixSendsPerS: 1000, Fanout: 7})
		var s rundir.Summary
		r.tellCalibration(&s)
		if s.Calibration == nil || (len(s.Notes) == 1) != want || want && !strings.Contains(s.Notes[0], "71 % of what the generator can do") {
			t.Errorf("share %v: %q", share, s.Notes)
		}
	}
}

// Workers that are slower than the others are named, each of them, though all together are well below the ceiling.
func TestWorkersNearTheirCeiling(t *testing.T) {
	r := &runner{}
	r.calibrated(&rundir.Calibration{OfferedShare: 0.4, MixSendsPerS: 1000, Fanout: 7, Workers: []rundir.WorkerCalibration{
		{Name: "worker-1", OfferedShare: 0.3, MixSendsPerS: 800}, {Name: "worker-2", OfferedShare: 0.8, MixSendsPerS: 200}, {Name: "worker-3", OfferedShare: 0.9, MixSendsPerS: 180}}})
	if !strings.Contains(r.calibrationNote, "the share of worker-2 is 80 % of what it can do, 200 messages a second") ||
		!strings.Contains(r.calibrationNote, "the share of worker-3 is 90 %") || strings.Contains(r.calibrationNote, "worker-1") {
		t.Errorf("%q", r.calibrationNote)
	}
}

// A worker of another machine cannot reach an embedded stack, and is named before anything is started.
func TestWorkersElsewhere(t *testing.T) {
	here := fleet.Member{Name: "worker-1", Boot: "b1"}
	there := fleet.Member{Name: "worker-2", Boot: "b2", PID: 7, Host: rundir.Host{Name: "far"}}
	if err := away([]fleet.Member{here, {Name: "worker-3"}}, "b1"); err != nil {
		t.Error(err)
	}
	if err := away([]fleet.Member{here, there}, "b1"); err == nil || !strings.Contains(err.Error(), "worker-2 (process 7 on far) is on another machine") || errorExit(err) != ExitUsage {
		t.Error(err)
	}
}

package page

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"imbench/reports/rundir"
)

var began = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func ptr(v float64) *float64 { return &v }

// recipe is a small run: edit changes what it leaves behind.
type recipe struct {
	manifest rundir.Manifest
	summary  rundir.Summary
	ledger   *rundir.Ledger
	tags     []string
	counters []rundir.CounterLine
	scenario string
}

func small() recipe {
	m := rundir.Manifest{RunID: 7, Scenario: "baseline", Started: began, Seed: 42, Revision: "abc123", Go: "go1.26.0", Command: []string{"loadgen", "-scenario", "baseline"},
		Hosts:    []rundir.Host{{Name: "h1", Role: "loadgen", OS: "linux", Arch: "amd64", CPUs: 2, MemoryBytes: 24 << 30}},
		Target:   rundir.Target{Kind: "embedded", URLs: []string{"http://127.0.0.1:1"}, Environment: "embedded", Gateways: 2},
		Postgres: rundir.Postgres{Version: "16.14", Settings: map[string]string{"fsync": "on", "synchronous_commit": "on"}},
		Phases: []rundir.Phase{{Name: "connect", From: 0, To: 1}, {Name: "warmup", From: 1, To: 2}, {Name: "measure", From: 2, To: 5},
			{Name: "settle", From: 5, To: 6}},
		Window:     &rundir.Window{From: 2, To: 5},
		Population: rundir.PopulationDigest{Namespace: "ns1", Users: 9000, Devices: 14400, Connected: 5040, Conversations: 46500, CursorRows: 216000, Digest: "d1"},
		Arrivals:   rundir.ArrivalsDigest{Messages: 6250, Digest: "d2"},
		Model:      map[string]float64{"M": 1250, "N": 30, "k": 4}}
	s := rundir.Summary{Verdict: rundir.Missed, Reasons: []string{"deliver.p99 is 260.5 ms, at most 250 ms are allowed"}, WindowS: 3,
		Offered: 3750, Started: 3750, Done: 3749, Failed: map[string]int64{"UNAVAILABLE": 1}, OfferedRate: 1250, AchievedRate: 1249.7, AchievedShare: 0.9997,
		EffectiveAck: 3.61, NominalAck: 4,
		Metrics: map[string]rundir.Metric{
			rundir.SendIntended: {Count: 3750, P50: 6.2, P95: 13.4, P99: 21.5, P999: 48.1, Max: 102.4, Mean: 7, Censored: 1},
			rundir.Deliver:      {Count: 26400, P50: 9.1, P95: 31, P99: 260.5, P999: 312, Max: 401, Mean: 12},
		},
		Criteria: []rundir.Criterion{
			{Metric: "send.intended.p99", Op: "<=", Limit: 100, Unit: "ms", Value: ptr(21.5), Result: rundir.Met},
			{Metric: "deliver.p99", Op: "<=", Limit: 250, Unit: "ms", Value: ptr(260.5), Result: rundir.NotMet},
			{Metric: "achieved_rate", Op: ">=", Limit: 0.99, Unit: "of offered", Value: ptr(0.9986), Result: rundir.Met},
			{Metric: "sync.p99", Op: "<=", Limit: 50, Unit: "ms", Result: rundir.NoData}},
		Ledger: rundir.LedgerSummary{Expected: 32650, Delivered: 32649, Lost: 1, Messages: 6250, Settled: true, Exported: true, Pairs: 75600},
		Predictions: []rundir.Prediction{
			rundir.Prediction{Name: "frames.event", Unit: "1/s", Predicted: 8802.5, Low: 8670, High: 8935, Planned: ptr(8810), Note: "physics"}.WithMeasured(8811),
			rundir.Prediction{Name: "frames.hint", Unit: "1/s", Predicted: 16, Low: 15, High: 17, Planned: ptr(15)}.WithMeasured(466),
			{Name: "bytes.event", Unit: "B/s", Predicted: 3.55e6, Low: 3.5e6, High: 3.6e6}},
		Calibration: &rundir.Calibration{Devices: 128, SendsPerS: 21_500, Fanout: 7, MixSendsPerS: 6400, FramesPerS: 64_000, CPUCores: 0.9, ServerCores: 1.05,
			OfferedShare: 0.195, FloorRate: 1250, FloorSends: 1125, FloorP50MS: 0.21, FloorP99MS: 1.4, TookS: 3.1},
		Generator: rundir.Generator{LateP50MS: 0.05, LateP99MS: 0.4, LateMaxMS: 9, LateShare: 0.0001, LateLimitMS: 10, CPUCores: 0.4, GCPauseMaxMS: 1.2,
			HeapMaxBytes: 80 << 20, Goroutines: 5100},
		Processes: []rundir.ProcessUse{{Role: "loadgen", PID: 1, CPUCores: 0.2, RSSMaxBytes: 250 << 20}, {Role: "gateway-1", PID: 2, CPUCores: 0.17, RSSMaxBytes: 75 << 20},
			{Role: "gateway-2", PID: 3, CPUCores: 0.17, RSSMaxBytes: 75 << 20}, {Role: "postgres", PID: 4, CPUCores: 0.61, RSSMaxBytes: 300 << 20}}}
	r := recipe{manifest: m, summary: s, scenario: "name: baseline\n", tags: []string{rundir.SendIntended, rundir.SendService, rundir.Deliver, rundir.DeliverRepaired},
		ledger: &rundir.Ledger{LedgerSummary: s.Ledger, Counts: map[string]int64{"lost": 1},
			Culprits: []rundir.Culprit{{Kind: "lost", Device: "dev-77", User: "u-9", Conv: "g-3", Seq: 41, Detail: "never applied"}}}}
	for i := range 6 {
		r.counters = append(r.counters, rundir.CounterLine{At: at(i), Seconds: 1, Offered: 1250, Done: 1250, Applied: 10000,
			Frames: rundir.ByDirection{Down: map[string]int64{"event": 4400, "hint": 3, "synced": 120, "sent": 1250}},
			Bytes:  rundir.ByDirection{Down: map[string]int64{"event": 4400 * 416, "hint": 3 * 62, "synced": 120 * 1200, "sent": 1250 * 127}}, LateP99MS: 0.4})
	}
	return r
}

func at(second int) time.Time { return began.Add(time.Duration(second) * time.Second) }

// write makes the run directory, finished.
func (r recipe) write(t *testing.T) *rundir.Reader {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "baseline-20260301T120000Z")
	w, err := rundir.Create(dir, r.manifest, []byte(r.scenario))
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(err)
	for _, tag := range r.tags {
		for i := 2; i < 5; i++ {
			h := rundir.NewHistogram()
			for _, ms := range []int64{2, 3, 3, 5, 8, 40} {
				check(h.RecordValue(ms * 1e6))
			}
			check(w.Latency(tag, at(i), at(i+1), h))
		}
	}
	for _, c := range r.counters {
		check(w.Counters(c))
	}
	for i := range 6 {
		check(w.Process(rundir.ProcessLine{At: at(i), Role: "postgres", PID: 4, CPUSec: float64(i) * 0.6, RSSBytes: 300 << 20}))
		for g := range 2 {
			check(w.Server(rundir.ServerLine{At: at(i), Source: fmt.Sprintf("http://gateway-%d/metrics", g), Values: map[string]float64{
				`im_batch_size_sum{batcher="send"}`: float64(i * 625), `im_batch_size_count{batcher="send"}`: float64(i * 125), "im_sweep_hints_total": float64(i * 2)}}))
		}
	}
	check(w.Event(rundir.EventLine{At: at(3), Kind: "warning", Name: "slow disk", Detail: "a flush took 2 s"}))
	check(w.Event(rundir.EventLine{At: at(2), Kind: "phase", Name: "measure"}))
	if r.ledger != nil {
		check(w.Ledger(*r.ledger))
	}
	check(w.Finish(r.summary, func(m *rundir.Manifest) { e := at(6); m.Ended = &e }))
	reader, err := rundir.Open(dir)
	check(err)
	return reader
}

// tear cuts the last line of a file.
func tear(t *testing.T, dir, name string) {
	t.Helper()
	path := filepath.Join(dir, name)
	b, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, b[:len(b)-5], 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

package rundir

import "time"

var began = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func ptr[T any](v T) *T { return &v }

func testManifest() Manifest {
	return Manifest{RunID: 7, Scenario: "baseline", Started: began, Seed: 42, Revision: "abc",
		Target:   Target{Kind: "embedded", URLs: []string{"ws://127.0.0.1:1"}, Environment: "embedded", Gateways: 2},
		Postgres: Postgres{Version: "16.14", Settings: map[string]string{"fsync": "on"}},
		Model:    map[string]float64{"ack_every": 4}}
}

func testSummary() Summary {
	return Summary{Verdict: Missed, Reasons: []string{"deliver.p99 is 260 ms, at most 250 ms are allowed"},
		Notes:   []string{"a note with a | bar and\na line break"},
		WindowS: 60, Offered: 75012, Started: 75012, Done: 75010, Failed: map[string]int64{"UNAVAILABLE": 2},
		OfferedRate: 1250.2, AchievedRate: 1250.1667, AchievedShare: 0.99997, EffectiveAck: 3.61, NominalAck: 4,
		Metrics: map[string]Metric{
			SendIntended: {Count: 75012, P50: 6.2, P95: 13.4, P99: 21.5, P999: 48.1, Max: 102.4, Mean: 7, Negative: 3},
			Deliver:      {Count: 1234567, P50: 9.1, P95: 31, P99: 260.5, P999: 312, Max: 401},
			Sync:         {},
		},
		Criteria: []Criterion{
			{Metric: "send.intended.p99", Op: "<=", Limit: 100, Unit: "ms", Value: ptr(21.5), Result: Met},
			{Metric: "deliver.p99", Op: "<=", Limit: 250, Unit: "ms", Value: ptr(260.5), Result: NotMet},
			{Metric: "sync.p99", Op: "<=", Limit: 50, Unit: "ms", Result: NoData},
		},
		Ledger: LedgerSummary{Expected: 700000, Delivered: 700000, Messages: 107000, Settled: true, Exported: true, WireRepeats: 5},
		Predictions: []Prediction{
			Prediction{Name: "frames.event", Unit: "1/s", Predicted: 8802.5, Low: 8670, High: 8935, Planned: ptr(8810.0)}.WithMeasured(8811),
			Prediction{Name: "deliveries_per_message", Unit: "1", Predicted: 7.04, Low: 6.94, High: 7.15}.WithMeasured(7.05),
			{Name: "bytes.event", Unit: "B/s", Predicted: 3.55e6, Low: 3.5e6, High: 3.6e6},
		},
		Calibration: &Calibration{Devices: 128, SendsPerS: 21_500, Fanout: 7, MixSendsPerS: 6400, FramesPerS: 64_000, CPUCores: 0.9, ServerCores: 1.05,
			OfferedShare: 0.195, FloorRate: 1250, FloorSends: 1125, FloorP50MS: 0.21, FloorP99MS: 1.4, TookS: 3.1},
		Generator: Generator{LateP50MS: 0.05, LateP99MS: 0.4, LateMaxMS: 9, LateShare: 0.0001, LateLimitMS: 10, CPUCores: 0.4,
			GCPauseMaxMS: 1.2, HeapMaxBytes: 80 << 20, Goroutines: 5100},
		Processes: []ProcessUse{{Role: "postgres", PID: 12, CPUCores: 0.61, RSSMaxBytes: 300 << 20}},
	}
}

package app

import (
	"slices"
	"testing"

	"imbench/loadgen/internal/population"
	"imbench/loadgen/internal/scenario"
	"imbench/model/capacity"
)

// What the model does not describe is said not to be predicted, and what it does keeps its number; the plan counts all.
func TestOnlyWhatIsModelledIsPredicted(t *testing.T) {
	arrivals := []string{capacity.Messages, capacity.EventRows}
	for yaml, predicted := range map[string][]string{
		"load: {stages: [{for: 3s, rate: 2}, {for: 4s, to: 0.5}]}":                                          arrivals,
		"load: {arrivals: even}":                                                                            {},
		"population: {groups: [{count: 2, size: 90}]}":                                                      arrivals,
		"population: {groups: [{count: 2, size: 30}]}":                                                      nil,
		"population: {groups_per_user: 0, groups: [{count: 30, size: 90, mode: pull, reading_share: 0.2}]}": nil,
		"population: {groups_per_user: 0, groups: [{count: 30, size: 90, mode: pull, reading_share: 0.2, open_only_above: 50}]}": {capacity.Messages, capacity.EventRows, capacity.PushFrames,
			capacity.DiscardedFrames, capacity.SyncFrames, capacity.AckFrames, capacity.CursorRows, capacity.PushBytes, capacity.Deliveries, capacity.EffectiveAck},
		"load: {bodies: [{bytes: 100, sigma: 1}]}": {capacity.Messages, capacity.EventRows, capacity.PushFrames, capacity.DiscardedFrames, capacity.HintFrames, capacity.SyncFrames,
			capacity.AckFrames, capacity.DownFrames, capacity.CursorRows, capacity.Deliveries, capacity.EffectiveAck},
		"seed: 4": nil, // all
	} {
		sc, err := scenario.Parse("m.yaml", []byte("extends: smoke\n"+yaml+"\n"))
		if err != nil {
			t.Fatal(err)
		}
		pop, err := population.Build(sc, sc.Seed, "t")
		if err != nil {
			t.Fatal(err)
		}
		plan, err := population.NewPlan(pop, sc, sc.Seed)
		if err != nil {
			t.Fatal(err)
		}
		p, _, err := predict(sc, pop, plan)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range p.Predictions {
			want := predicted == nil || slices.Contains(predicted, f.Name)
			if f.NotPredicted == want || f.Planned == nil || f.NotPredicted && (f.Predicted != 0 || f.Note == "") {
				t.Errorf("%s: %+v, want it predicted: %v", yaml, f, want)
			}
			if f.NotPredicted {
				continue
			}
			// A wide net over one seed: what is predicted is about what is planned.
			if off := f.Predicted / *f.Planned; f.Predicted > 1 && (off < 0.7 || off > 1.4) {
				t.Errorf("%s: %s is predicted as %v and planned as %v", yaml, f.Name, f.Predicted, *f.Planned)
			}
		}
	}
}

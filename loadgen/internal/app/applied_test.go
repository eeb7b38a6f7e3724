package app

import (
	"testing"

	"imbench/loadgen/internal/population"
	"imbench/model/capacity"
	"imbench/reports/rundir"
)

// With hints, what devices applied is no count of event frames: neither the model nor that figure of the plan is held to it.
func TestAppliedInstead(t *testing.T) {
	planned := 2.0
	p := rundir.Prediction{Name: capacity.Deliveries, Predicted: 2.5, Low: 2, High: 3, Planned: &planned}
	figures := map[string]float64{capacity.Deliveries: 2}
	if got := appliedInstead(p, population.Expected{Figures: figures, Due: 5}, 5); *got.Planned != 5 || *got.PlanError != 0 || !got.NotPredicted || got.Error != nil {
		t.Errorf("with hints: %+v", got)
	}
	if got := appliedInstead(p, population.Expected{Figures: figures, Due: 2}, 2); *got.Planned != 2 || *got.PlanError != 0 || got.NotPredicted || *got.Error > -0.19 {
		t.Errorf("pushed alone: %+v", got)
	}
}

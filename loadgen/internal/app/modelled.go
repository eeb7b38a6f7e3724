package app

import (
	"slices"

	"imbench/loadgen/internal/scenario"
	"imbench/model/capacity"
	"imbench/reports/rundir"
)

// modelFactor is the mean of the stages' factor in the measured window: the model knows one rate.
func modelFactor(sc *scenario.Scenario) float64 {
	return sc.Load.MeanFactor(sc.Phases.Warmup, sc.Phases.Warmup+sc.Phases.Measure)
}

// modelKind is the one kind of groups that the model knows. With several, one says false, and it is the one that most
// messages go to: a conversation enters its set in proportion to its devices, so a kind counts by its seats.
func modelKind(sc *scenario.Scenario) (k scenario.GroupKind, one bool) {
	one = true
	for i, next := range sc.GroupKinds() {
		if i > 0 && (next.Size != k.Size || next.Mode != k.Mode || *next.ReadingShare != *k.ReadingShare || next.Hinted(sc.Delivery) != k.Hinted(sc.Delivery)) {
			one = false
		}
		if i == 0 || next.Count*next.Size > k.Count*k.Size {
			k = next
		}
	}
	if k.ReadingShare == nil { // no groups
		share := sc.Devices.ReadingShare
		k = scenario.GroupKind{Size: sc.Population.GroupSize, Mode: sc.Delivery.Mode, ReadingShare: &share}
	}
	return k, one
}

// openOnly says whether there are groups whose hints do not go to every device: those that read have them open.
func openOnly(sc *scenario.Scenario) bool {
	return slices.ContainsFunc(sc.GroupKinds(), func(k scenario.GroupKind) bool {
		_, above := k.Thresholds(sc.Delivery)
		return k.Count > 0 && k.Hinted(sc.Delivery) && above > 0 && k.Size > above && *k.ReadingShare < 1
	})
}

// notModelled says why the model does not describe a figure of the scenario; "" if it does. The plan counts all of it
// in any case.
func notModelled(sc *scenario.Scenario, name string) string {
	_, oneKind := modelKind(sc)
	arrivals := name == capacity.Messages || name == capacity.EventRows
	bytes := name == capacity.PushBytes || name == capacity.DownBytes
	hints := name == capacity.HintFrames || name == capacity.DownFrames || name == capacity.DownBytes
	switch {
	case sc.Load.Arrivals != scenario.Poisson:
		return "the model knows Poisson arrivals only"
	case arrivals:
		return ""
	case !sc.Load.Steady(sc.Phases.Warmup, sc.Phases.Warmup+sc.Phases.Measure):
		return "the model knows one rate, and this load has stages in the measured window"
	case !oneKind && sc.Load.GroupRate > 0:
		return "the model knows one kind of groups, and here are several"
	case hints && openOnly(sc) && sc.Load.GroupRate > 0:
		return "the model knows hints to every device, and here they go to those that have the group open"
	case bytes && len(sc.Load.Bodies) > 0:
		return "the model knows one size of bodies, and here are several"
	}
	return ""
}

// onlyModelled takes out what the model does not describe.
func onlyModelled(sc *scenario.Scenario, p rundir.Prediction) rundir.Prediction {
	if why := notModelled(sc, p.Name); why != "" {
		p.Predicted, p.Low, p.High, p.NotPredicted, p.Note = 0, 0, 0, true, why
	}
	return p
}

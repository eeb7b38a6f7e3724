package app

import (
	"slices"
	"sort"
	"time"

	"imbench/loadgen/internal/device"
	"imbench/loadgen/internal/population"
	"imbench/loadgen/internal/scenario"
	"imbench/model/capacity"
	"imbench/reports/rundir"
)

// ridBytes is the length of a device's request ids (a letter and three base-36 digits), which the payload predictions need.
const ridBytes = 4

// What the plan and the model take for granted of a gateway that is not overloaded, before the run. They hold for the
// quiet baseline on two cores, where an acknowledgement takes 42 ms in the median, half of the window of 50 ms included,
// and a sync 3 ms. Hints depend on them little: 50 ms more for an acknowledgement make 0.7 % more hints.
const (
	ackService  = 20 * time.Millisecond // beyond half of the gateway's window: the way there, and the write of a batch
	syncService = 5 * time.Millisecond
)

// timing is what passes between cause and effect in a run of the scenario.
func timing(sc *scenario.Scenario) population.Timing {
	return population.Timing{Ack: sc.Server.AckWindow/2 + ackService, Sync: syncService, Gap: deviceConfig(sc).GapWait,
		Timer: device.TimerLate}
}

// modelInputs are the rules of a scenario in the model's terms. Lengths of ids come from the population.
func modelInputs(sc *scenario.Scenario, pop *population.Population) capacity.RunInputs {
	factor := modelFactor(sc)
	kind, _ := modelKind(sc)
	hintAbove, _ := kind.Thresholds(sc.Delivery)
	in := capacity.RunInputs{
		GroupRate: capacity.PerSecond(float64(sc.Load.GroupRate) * factor), DirectRate: capacity.PerSecond(float64(sc.Load.DirectRate) * factor),
		Users: sc.Population.Users, TwoDeviceUsers: sc.Population.TwoDeviceUsers, ConnectedDevices: sc.Population.ConnectedDevices,
		GroupSize:    kind.Size,
		ActiveGroups: sc.Load.ActiveGroups, ActiveDirects: sc.Load.ActiveDirects, Burst: sc.Load.Burst,
		Mode: capacity.Mode(kind.Mode), HintAbove: hintAbove, Reading: capacity.Share(*kind.ReadingShare),
		HintWindow: capacity.Seconds(sc.Delivery.HintWindow.Seconds()),
		AckEvery:   sc.Devices.AckEvery, AckDelay: capacity.Seconds(sc.Devices.AckDelay.Seconds()), Loss: capacity.Share(sc.Devices.Loss),
		Grace: capacity.Seconds(sc.Server.Grace.Seconds()), Sweep: capacity.Seconds(sc.Server.Sweep.Seconds()),
		AckTrip: capacity.Seconds(timing(sc).Ack.Seconds()), GapWait: capacity.Seconds(timing(sc).Gap.Seconds()),
		Warmup: capacity.Seconds(sc.Phases.Warmup.Seconds()), Measure: capacity.Seconds(sc.Phases.Measure.Seconds()),
		BodyBytes: capacity.Bytes(sc.Load.BodyBytes), RIDBytes: ridBytes,
		UserBytes: capacity.Bytes(len(pop.Users[0].ID)),
	}
	for _, c := range pop.Convs {
		if c.Kind == "group" {
			in.Groups++
		} else {
			in.Directs++
		}
		in.ConvBytes = capacity.Bytes(len(c.ID))
	}
	return in
}

// predict asks the model, and counts the realised plan, before anything is sent.
func predict(sc *scenario.Scenario, pop *population.Population, plan *population.Plan) (rundir.Predictions, population.Expected, error) {
	expected := plan.Expect(ridBytes, timing(sc))
	figures, err := capacity.PredictRun(modelInputs(sc, pop))
	if err != nil {
		return rundir.Predictions{}, expected, err
	}
	var out rundir.Predictions
	for _, f := range figures {
		p := rundir.Prediction{Name: f.Name, Unit: f.Unit, Predicted: f.Predicted, Low: f.Low, High: f.High, Note: f.Note}
		if v, ok := expected.Figures[f.Name]; ok {
			p.Planned = &v
		}
		out.Predictions = append(out.Predictions, onlyModelled(sc, p))
	}
	for _, name := range []string{rundir.FetchRate, rundir.ConvsRate} {
		if v, ok := expected.Figures[name]; ok {
			out.Predictions = append(out.Predictions, rundir.Prediction{Name: name, Unit: "1/s", Planned: &v, NotPredicted: true,
				Note: "the model knows sends and what follows from them only"})
		}
	}
	return out, expected, nil
}

// recount counts the plan again with the run's own mean latencies, which say how long the sweep hints in vain. What does
// not depend on latency comes out as before the run.
func recount(sc *scenario.Scenario, plan *population.Plan, predictions []rundir.Prediction, measured map[string]rundir.Metric) []rundir.Prediction {
	t := timing(sc)
	for metric, d := range map[string]*time.Duration{rundir.Ack: &t.Ack, rundir.Sync: &t.Sync} {
		if m := measured[metric]; m.Count > 0 {
			*d = time.Duration(m.Mean * float64(time.Millisecond))
		}
	}
	figures := plan.Expect(ridBytes, t).Figures
	out := slices.Clone(predictions)
	for i := range out {
		if v, ok := figures[out[i].Name]; ok {
			out[i].Planned = &v
		}
	}
	return out
}

// compare fills in what was measured. What the recorder could not know stays open.
func compare(predictions []rundir.Prediction, measured map[string]float64) []rundir.Prediction {
	out := make([]rundir.Prediction, len(predictions))
	for i, p := range predictions {
		if v, ok := measured[p.Name]; ok {
			p = p.WithMeasured(v)
		}
		out[i] = p
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out
}

package page

import (
	"imbench/model/capacity"
	"imbench/reports/internal/figure"
	"imbench/reports/rundir"
)

// byPlan are the figures that the plan fixes, whatever the latencies are: 0.1 % is allowed. Others depend on when things
// arrive: 1 %.
var byPlan = map[string]bool{
	capacity.Messages: true, capacity.PushFrames: true, capacity.DiscardedFrames: true, capacity.EventRows: true,
	capacity.PushBytes: true, capacity.Deliveries: true,
}

func planLimit(name string) float64 {
	if byPlan[name] {
		return 0.001
	}
	return 0.01
}

func (b *builder) predictions() section {
	out := section{ID: "predictions", Title: "Predicted, measured, error", Lead: []string{
		"The model spoke before the run. Beside its prediction stands the plan: what the realised arrivals and population ask for. Errors are " +
			"measured ÷ predicted − 1 and measured ÷ planned − 1, inside or outside of the model's 95 % interval and of what the plan allows. Of so many figures one outside of its 95 % interval is normal, and none " +
			"decides the verdict."}}
	list := b.run.Summary.Predictions
	if len(list) == 0 {
		out.Lead = []string{"The run has no predictions."}
		return out
	}
	t := table{Head: columns("figure", ">predicted, 95 % interval", ">measured", ">error", ">planned", ">plan error"),
		Origin: "Formula: model/capacity, PredictRun. Plan and run: summary.json. Against the plan, counts and bytes of pushes may be off by " +
			"0.1 %, what depends on latency by 1 %."}
	for _, p := range list {
		t.Rows = append(t.Rows, predictionRow(p))
	}
	out.Blocks = []block{
		b.draw(figure.PredictionErrors(list), "How far each measured figure is from the prediction and from the plan.", "Run: summary.json."),
		{Table: &t}}
	return out
}

func predictionRow(p rundir.Prediction) row {
	off, plan := cell{Text: optional(p.Error, percent)}, cell{Text: optional(p.PlanError, percent)}
	predicted := cell{Text: num(p.Predicted), Note: num(p.Low) + " – " + num(p.High)}
	if p.NotPredicted {
		predicted = cell{Text: "not predicted"}
	} else if p.Measured != nil {
		off.judge(*p.Measured >= p.Low && *p.Measured <= p.High)
	}
	if p.PlanError != nil {
		plan.judge(max(*p.PlanError, -*p.PlanError) <= planLimit(p.Name))
	}
	return row{{Text: p.Name + ", " + p.Unit, Note: p.Note}, predicted,
		{Text: optional(p.Measured, num)}, off, {Text: optional(p.Planned, num)}, plan}
}

func (c *cell) judge(inside bool) {
	c.Note, c.Class = "inside", "good"
	if !inside {
		c.Note, c.Class = "outside", "bad"
	}
}

package page

import (
	"fmt"
	"math"

	"imbench/model/capacity"
	"imbench/reports/internal/figure"
)

func (b *builder) pushHint() section {
	bytes := capacity.Documents08()
	out := section{ID: "push-hint", Title: "Bytes: push against hint", Lead: []string{
		"A hinted message costs a hint for every connected device and, for each that reads, its share of a sync reply. With ρ the reading share and s the " +
			"syncs for each event and reader, bytes relative to push are [hint + ρ·(b + s·h)] ÷ push. Below the break-even ρ* hints are cheaper. The size " +
			"of the group does not enter: a threshold of group size cannot come from bytes alone."}}
	points, measured := documentPoints(bytes), b.measured()
	t := table{Caption: "Observed", Head: columns("arm", ">announced", ">reading share ρ", ">syncs", ">B announced", ">B in syncs", ">÷ push"),
		Origin: "Documents, chapter 08: 30 devices, 20 messages of 200 characters."}
	for _, p := range capacity.Points08() {
		t.Rows = append(t.Rows, bytesRow(p, float64(p.Total())/float64(p.Deliveries)/float64(bytes.Push)))
	}
	if measured != nil {
		points = append(points, measured.RatioPoint)
		t.Rows = append(t.Rows, bytesRow(measured.BytesPoint, measured.Ratio))
		t.Origin += " This run: counters.ndjson and ledger.json, the whole load; ρ is the share of the hinted deliveries that devices fetched, and the syncs include those that repaired lost pushes."
	}
	even := table{Caption: "Break-even", Head: columns(">s, syncs for each event and reader", ">ρ*", ">bytes at ρ = 1, relative to push"),
		Origin: fmt.Sprintf("Formula: ρ* = (push − hint) ÷ (b + s·h) with push = %s B, hint = %s B, b = %s B an event in a sync reply and h = %s B a reply, fitted "+
			"to the two hinted arms of the documents.", num(float64(bytes.Push)), num(float64(bytes.Hint)), num(float64(bytes.SyncEvent)), num(float64(bytes.SyncReply)))}
	for _, s := range figure.SyncsPerEvent() {
		even.Rows = append(even.Rows, cells(num(s), num(bytes.BreakEven(s)), num(bytes.Ratio(1, s))))
	}
	out.Blocks = []block{
		b.draw(figure.PushHint(bytes, points), "Bytes of hinted delivery relative to push; JSON payload without headers.",
			"Formula: model/capacity, PushHintBytes. Points: the documents, and this run where it had both kinds."),
		{Table: &even}, {Table: &t}}
	if frames := b.frameTable(bytes); frames != nil {
		out.Blocks = append(out.Blocks, block{Table: frames})
	}
	return out
}

func bytesRow(p capacity.BytesPoint, ratio float64) row {
	return cells(p.Name, num(float64(p.Deliveries)), num(float64(p.Reading)), num(float64(p.Syncs)), num(float64(p.FrameBytes)),
		num(float64(p.SyncBytes)), num(ratio))
}

// documentPoints are the hinted arms of the documents' experiment.
func documentPoints(bytes capacity.PushHintBytes) (list []figure.RatioPoint) {
	for _, p := range capacity.Points08() {
		if p.Reading > 0 {
			list = append(list, figure.RatioPoint{Name: p.Name, Reading: float64(p.Reading),
				Ratio: float64(p.Total()) / float64(p.Deliveries) / float64(bytes.Push)})
		}
	}
	return list
}

// measuredPoint is a run's own arm of hints.
type measuredPoint struct {
	capacity.BytesPoint
	figure.RatioPoint
}

// traffic sums frames and bytes to devices by type over the whole load.
func (r *Run) traffic() (frames, bytes map[string]float64) {
	frames, bytes = map[string]float64{}, map[string]float64{}
	for _, l := range r.Counters {
		for name, n := range l.Frames.Down {
			frames[name] += float64(n)
		}
		for name, n := range l.Bytes.Down {
			bytes[name] += float64(n)
		}
	}
	return frames, bytes
}

// measured is the arm of a run that both pushed and hinted; nil for others. Expected deliveries are those of all connected
// members, own messages included: what was not pushed of them was announced by hints. ρ is the share of these that devices
// applied.
func (b *builder) measured() *measuredPoint {
	if b.run == nil || b.run.Ledger == nil {
		return nil
	}
	frames, bytes := b.run.traffic()
	var applied float64
	for _, l := range b.run.Counters {
		applied += float64(l.Applied)
	}
	hinted := float64(b.run.Ledger.Expected-b.run.Ledger.Messages) - frames["event"]
	reading := (applied - frames["sent"] - frames["event"]) / hinted
	// Repairs leave a small rest in a run of nothing but pushes, which is no arm of hints.
	if frames["event"] == 0 || hinted < 0.05*frames["event"] || !(reading >= 0 && reading <= 1) {
		return nil
	}
	p := capacity.BytesPoint{Name: "this run", Deliveries: capacity.Count(hinted), Reading: capacity.Share(reading),
		Syncs: capacity.Count(frames["synced"]), FrameBytes: capacity.Bytes(bytes["hint"]), SyncBytes: capacity.Bytes(bytes["synced"])}
	ratio := float64(p.Total()) / float64(p.Deliveries) / (bytes["event"] / frames["event"])
	if math.IsNaN(ratio) || math.IsInf(ratio, 0) {
		return nil
	}
	return &measuredPoint{p, figure.RatioPoint{Name: p.Name, Reading: reading, Ratio: ratio, Measured: true}}
}

// frameTable sets the run's mean frame lengths beside the documents'; nil without a run.
func (b *builder) frameTable(doc capacity.PushHintBytes) *table {
	if b.run == nil {
		return nil
	}
	frames, bytes := b.run.traffic()
	t := table{Caption: "Frames, mean payload", Head: columns("frame", ">documents, B", ">this run, B", ">frames"),
		Origin: "Documents: chapter 08. Run: counters.ndjson, the whole load. A sweep's hint carries its reason and is longer; a sync reply is as long as what it repairs."}
	for _, f := range []struct{ name, doc string }{
		{"event", num(float64(doc.Push))}, {"hint", num(float64(doc.Hint))}, {"synced", none}, {"sent", none}, {"acked", none},
	} {
		mean := noData
		if frames[f.name] > 0 {
			mean = num(bytes[f.name] / frames[f.name])
		}
		t.Rows = append(t.Rows, cells(f.name, f.doc, mean, num(frames[f.name])))
	}
	return &t
}

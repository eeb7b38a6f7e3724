package page

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"imbench/model/capacity"
	"imbench/reports/internal/figure"
)

func words(name string) string { return strings.ReplaceAll(name, "_", " ") }

// quantity writes pure numbers and rates without the 1 of their units.
func quantity(v float64, unit string) string {
	switch unit {
	case "1":
		return num(v)
	case "1/s":
		return num(v) + "/s"
	}
	return figure.Quantity(v, unit)
}

func (b *builder) capacity() section {
	t := capacity.Predict(b.inputs)
	out := section{ID: "capacity", Title: "Capacity by the model"}
	for _, r := range t.Resources {
		if r.Standing == capacity.Assumed || r.Standing == capacity.Bounded {
			out.Title += " (assumed)"
			out.Lead = append(out.Lead, "Budgets that are not measured are assumptions, or lie somewhere between bounds that the documents imply. "+
				"So the headroom is an assumption too, and so is the resource that runs out first.")
			break
		}
	}
	out.Lead = append(out.Lead, fmt.Sprintf("Of preset %s, the resource that runs out first is %s.", t.Preset, words(t.Binding)))
	resources := b.resourceTable(t)
	derived, conditions, inputs := derivedTable(t), conditionTable(t), inputTable(t)
	out.Blocks = []block{
		{Table: &resources},
		b.draw(figure.Utilization(t), "How much of each budget the load takes.", "Formula: model/capacity, Predict: demand ÷ budget."),
		{Table: &conditions}, {Table: &derived, Fold: "Figures on the way"}, {Table: &inputs, Fold: "Inputs and their standing"}}
	return out
}

// resourceTable has the preset's figures and, where a run had another load, that one's beside them.
func (b *builder) resourceTable(t capacity.Table) table {
	out := table{Caption: "Five resources", Head: columns("resource", ">demand", ">budget", "budget is", ">used"),
		Origin: "Formula: model/capacity, Predict, of the inputs below."}
	run, unknown := b.runTable(t)
	if run != nil {
		out.Head = append(out.Head, columns(">demand of this run's load", ">used")...)
		out.Origin += " This run's load: the inputs " + strings.Join(slices.Sorted(maps.Keys(b.run.Manifest.Model)), ", ") + " of manifest.json, the rest as in the preset."
	}
	if len(unknown) > 0 {
		out.Origin += " Inputs of the run that this model does not take: " + strings.Join(unknown, ", ") + "."
	}
	used := func(r capacity.Resource) cell {
		c := cell{Text: num(100*r.Utilization) + "\u00a0%"}
		if r.Utilization > 1 {
			c.Class = "bad"
		}
		return c
	}
	for i, r := range t.Resources {
		row := row{{Text: words(r.Name), Note: r.Note}}
		row = append(row, cells(figure.Quantity(r.Demand, r.Unit), figure.Quantity(r.Budget, r.Unit), string(r.Standing))...)
		row = append(row, used(r))
		if r.Name == t.Binding {
			row[0].Text += ", binds"
			row[0].Class = "total"
		}
		if run != nil {
			row = append(row, cell{Text: figure.Quantity(run.Resources[i].Demand, r.Unit)}, used(run.Resources[i]))
		}
		out.Rows = append(out.Rows, row)
	}
	return out
}

// runTable is the model's table of the run's own inputs; nil if there are none, or if they are the preset's.
func (b *builder) runTable(preset capacity.Table) (t *capacity.Table, unknown []string) {
	if b.run == nil {
		return nil, nil
	}
	in, changed := b.inputs, false
	for _, name := range slices.Sorted(maps.Keys(b.run.Manifest.Model)) {
		v := b.run.Manifest.Model[name]
		next, err := in.Set(name, v)
		if err != nil {
			unknown = append(unknown, name)
			continue
		}
		for _, i := range preset.Inputs {
			changed = changed || (i.Name == name || i.Symbol == name) && i.Value != v
		}
		in = next
	}
	if !changed {
		return nil, unknown
	}
	own := capacity.Predict(in)
	return &own, unknown
}

func conditionTable(t capacity.Table) table {
	out := table{Caption: "Side conditions that no mean rate shows", Head: columns("condition", ">value", ">limit"),
		Origin: "Formula: model/capacity, of the inputs below."}
	for _, c := range t.Conditions {
		r := row{{Text: words(c.Name), Note: c.Note}}
		out.Rows = append(out.Rows, append(r, cells(quantity(c.Value, c.Unit), quantity(c.Limit, c.Unit))...))
	}
	return out
}

func derivedTable(t capacity.Table) table {
	d := t.Derived
	out := table{Head: columns("figure", ">value"), Origin: "Formula: model/capacity, Predict."}
	for _, f := range []struct {
		name  string
		value float64
		unit  string
	}{
		{"deliveries of a group message, (N·d − 1)·p", d.DeliveriesPerGroupMessage, "frames"},
		{"deliveries of a direct message, (2·d − 1)·p", d.DeliveriesPerDirectMessage, "frames"},
		{"frames, redeliveries included", d.FramesPerSecond, "1/s"},
		{"frames a message", d.FramesPerMessage, "1"},
		{"frames of all kinds, both ways", d.AllFramesPerSecond, "1/s"},
		{"cursor writes", d.CursorWritesPerSecond, "rows/s"},
		{"sync replies to readers", d.SyncRepliesPerSecond, "1/s"},
		{"commits of messages", d.CommitsPerSecond, "1/s"},
		{"WAL", d.WALBytesPerSecond, "B/s"},
		{"retention, off-peak", d.RetentionRowsPerSecond, "rows/s"},
		{"inbox rows a message, had it fan-out on write", d.FanoutOnWriteRows, "rows"},
	} {
		out.Rows = append(out.Rows, cells(f.name, quantity(f.value, f.unit)))
	}
	return out
}

func inputTable(t capacity.Table) table {
	out := table{Head: columns("input", "symbol", ">value", "unit", "standing", "what it is"),
		Origin: "Given: the source documents state it. Bounded: they only imply an interval. Measured: from the project's own runs. Assumed: to be measured."}
	for _, i := range t.Inputs {
		out.Rows = append(out.Rows, cells(i.Name, i.Symbol, num(i.Value), i.Unit, string(i.Standing), i.Doc))
	}
	return out
}

package app

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"

	"imbench/model/capacity"
)

func renderTable(t capacity.Table) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "Capacity of %s\n\n", t.Preset)
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "resource\tdemand\tbudget\tunit\tused\tbudget is\t\t")
	for _, r := range t.Resources {
		mark := ""
		if r.Name == t.Binding {
			mark = "<- binds"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%.1f %%\t%s\t%s\t\n", words(r.Name), number(r.Demand), number(r.Budget), r.Unit,
			100*r.Utilization, r.Standing, mark)
	}
	w.Flush()
	fmt.Fprintln(&b)

	w = tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	d := t.Derived
	for _, row := range []struct {
		name  string
		value float64
		unit  string
	}{
		{"deliveries of a group message", d.DeliveriesPerGroupMessage, "frames"},
		{"deliveries of a direct message", d.DeliveriesPerDirectMessage, "frames"},
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
		fmt.Fprintf(w, "%s\t%s\t%s\t\n", row.name, number(row.value), row.unit)
	}
	w.Flush()
	fmt.Fprintln(&b, "\nSide conditions")
	w = tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, c := range t.Conditions {
		fmt.Fprintf(w, "%s\t%s\tof %s\t%s\t\n", words(c.Name), number(c.Value), number(c.Limit), c.Unit)
	}
	w.Flush()
	fmt.Fprintln(&b, "\nInputs")
	b.Write(renderInputs(t.Inputs))
	return b.Bytes()
}

func renderInputs(list []capacity.Input) []byte {
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, i := range list {
		name := i.Name
		if i.Symbol != "" {
			name += " (" + i.Symbol + ")"
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\t%s\n", name, number(i.Value), i.Unit, i.Standing, i.Doc)
	}
	w.Flush()
	return b.Bytes()
}

func renderList(in capacity.Inputs) []byte {
	var b bytes.Buffer
	fmt.Fprintln(&b, "Presets")
	for _, p := range capacity.Presets() {
		fmt.Fprintf(&b, "  %-12s %s\n", p.Name, p.Doc)
	}
	fmt.Fprintf(&b, "\nInputs of %s\n", in.Preset)
	b.Write(renderInputs(in.All()))
	return b.Bytes()
}

func words(name string) string { return strings.ReplaceAll(name, "_", " ") }

// number has four significant digits and more where they stand before the point, with the thousands set apart.
func number(v float64) string {
	if v == 0 {
		return "0"
	}
	places := 3 - int(math.Floor(math.Log10(math.Abs(v))))
	text := strconv.FormatFloat(v, 'f', max(0, places), 64)
	whole, fraction, point := strings.Cut(text, ".")
	for i := len(whole) - 3; i > 0 && whole[i-1] != '-'; i -= 3 {
		whole = whole[:i] + " " + whole[i:]
	}
	fraction = strings.TrimRight(fraction, "0")
	if point && fraction != "" {
		return whole + "." + fraction
	}
	return whole
}

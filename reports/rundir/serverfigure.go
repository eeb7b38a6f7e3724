package rundir

// ServerFigure is what a Prometheus server saw of the system under load. Means that are not known are nil.
type ServerFigure struct {
	Name   string   `json:"name"`
	Unit   string   `json:"unit,omitempty"`
	Query  string   `json:"query"`
	Mean   *float64 `json:"mean"`   // of the measured window
	Before *float64 `json:"before"` // of the quiet time before the run
	After  *float64 `json:"after"`  // and of that after it
	Net    *float64 `json:"net"`    // mean − background: what the run added
}

// server tells the figures with the background taken off.
func (r *renderer) server(list []ServerFigure) {
	if len(list) == 0 {
		return
	}
	r.head("Server, as Prometheus saw it")
	value := func(v *float64) string {
		if v == nil {
			return NoData
		}
		return figure(*v)
	}
	rows := [][]string{{"figure", "window", "before", "after", "net of background"}}
	for _, f := range list {
		name := f.Name
		if f.Unit != "" {
			name += " " + f.Unit
		}
		rows = append(rows, []string{name, value(f.Mean), value(f.Before), value(f.After), value(f.Net)})
	}
	r.table(rows, "lrrrr")
}

package dashboard

import (
	"bytes"
	"slices"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
)

// units are Grafana's names of those that the dashboard uses.
var units = []string{"ops", "s", "Bps", "bytes", "short", "percentunit"}

// What a storm shows stands on the dashboard: who is let in, who waits, and who is closed.
func TestAStormIsSeen(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"im_handshakes_total", "im_admission_limit", "im_admission_waiting", "im_closes_total", "im_connections"} {
		if !bytes.Contains(Grafana, []byte(name+"{")) {
			t.Errorf("no panel shows %s", name)
		}
	}
}

func TestPanels(t *testing.T) {
	t.Parallel()
	panels, err := Panels()
	if err != nil {
		t.Fatal(err)
	}
	ids, rows, titles := map[int]bool{}, []string{}, map[string]bool{}
	for _, p := range panels {
		if ids[p.ID] || titles[p.Title] {
			t.Errorf("panel %d %q: the id or the title is another's too", p.ID, p.Title)
		}
		ids[p.ID], titles[p.Title] = true, true
		if p.GridPos.W == 0 || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("%s: lies at %+v", p.Title, p.GridPos)
		}
		if p.Type == "row" {
			rows = append(rows, p.Title)
			continue
		}
		if p.Description == "" || !slices.Contains(units, p.FieldConfig.Defaults.Unit) || len(p.Targets) == 0 {
			t.Errorf("%s: description %q, unit %q, %d queries", p.Title, p.Description, p.FieldConfig.Defaults.Unit, len(p.Targets))
		}
		for _, q := range p.Targets {
			if _, err := parser.ParseExpr(Query(q.Expr, "1m")); err != nil || q.LegendFormat == "" {
				t.Errorf("%s: legend %q: %s: %v", p.Title, q.LegendFormat, q.Expr, err)
			}
		}
	}
	want := []string{"Traffic", "Latency", "Delivery repair", "Connections", "Database", "Process"}
	if !slices.Equal(rows, want) {
		t.Errorf("rows %q, want %q", rows, want)
	}
	for i, p := range panels {
		for _, q := range panels[:i] {
			a, b := p.GridPos, q.GridPos
			if a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H {
				t.Errorf("%s and %s lie upon each other", p.Title, q.Title)
			}
		}
	}
}

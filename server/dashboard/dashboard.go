// Package dashboard holds what a person on call looks at and is woken by: a dashboard for Grafana and alert rules for
// Prometheus, both over the metrics of the gateway. The package only reads them, for the tests and for the picture of the
// dashboard; whoever runs gateways takes the two files.
package dashboard

import (
	_ "embed" // the two files
	"encoding/json"
	"fmt"
	"strings"
)

// Grafana is the dashboard as Grafana imports it.
//
//go:embed grafana.json
var Grafana []byte

// Alerts are the rules as Prometheus reads them.
//
//go:embed alerts.yml
var Alerts []byte

// Panel is one panel of the dashboard; a row is a panel too, without queries.
type Panel struct {
	ID          int
	Type        string // row, timeseries
	Title       string
	Description string
	GridPos     struct{ H, W, X, Y int }
	FieldConfig struct {
		Defaults struct{ Unit string }
	}
	Targets []struct{ Expr, LegendFormat string }
}

// Panels are the dashboard's, in its order.
func Panels() ([]Panel, error) {
	var d struct{ Panels []Panel }
	if err := json.Unmarshal(Grafana, &d); err != nil {
		return nil, fmt.Errorf("grafana.json: %w", err)
	}
	return d.Panels, nil
}

// Query is a panel's expression as Prometheus takes it: for all gateways, with this interval (as in [1m]) for its rates.
func Query(expr, interval string) string {
	return strings.NewReplacer("$__rate_interval", interval, "$instance", ".*").Replace(expr)
}

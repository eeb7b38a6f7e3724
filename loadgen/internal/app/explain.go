package app

import (
	"fmt"
	"io"

	"imbench/loadgen/internal/driver"
	"imbench/loadgen/internal/population"
	"imbench/loadgen/internal/scenario"
)

// explain prints what a scenario would do, what the model predicts of it, and what it needs; nothing is started.
func explain(w io.Writer, sc *scenario.Scenario, o options) error {
	pop, err := population.Build(sc, sc.Seed, "r00000000")
	if err != nil {
		return &exitError{ExitUsage, err}
	}
	plan, err := population.NewPlan(pop, sc, sc.Seed)
	if err != nil {
		return &exitError{ExitUsage, err}
	}
	predictions, expected, err := predict(sc, pop, plan)
	if err != nil {
		return &exitError{ExitUsage, err}
	}
	fmt.Fprintf(w, "%s: %s\n\n", sc.Name, sc.Description)
	if len(o.targets) == 0 {
		fmt.Fprintf(w, "drives      an embedded stack: a private PostgreSQL and %d gateways\n", sc.Server.Gateways)
	} else {
		fmt.Fprintf(w, "drives      %v; environments allowed: %v\n", o.targets, append(append([]string(nil), sc.AllowEnvironments...), o.allowEnv...))
	}
	fmt.Fprintf(w, "population  %d users, %d devices (%d connected), %d conversations   digest %.16s\n", len(pop.Users), len(pop.Devices),
		sc.Population.ConnectedDevices, len(pop.Convs), population.Digest(pop))
	fmt.Fprintf(w, "arrivals    %d messages in all, %d in the measured window, seed %d   digest %.16s\n", expected.Total, expected.Window, sc.Seed, plan.Digest())
	p := sc.Phases
	fmt.Fprintf(w, "phases      connect %s, warm-up %s, measure %s, tail %s, settle up to %s\n",
		connectTime(sc), p.Warmup, p.Measure, p.Tail, p.Settle)
	for i, f := range sc.Faults {
		label := "faults"
		if i > 0 {
			label = ""
		}
		fmt.Fprintf(w, "%-11s at %v of the measured window: %s\n", label, f.At, f)
	}
	fmt.Fprintf(w, "needs       %d open files for the devices, as many again over the gateways\n", driver.FilesNeeded(sc.Population.ConnectedDevices))
	for i, c := range sc.Criteria {
		label := "criteria"
		if i > 0 {
			label = ""
		}
		fmt.Fprintf(w, "%-11s %s\n", label, c)
	}
	fmt.Fprintf(w, "\npredicted for the measured window: by the model with its 95 %% interval, and by this plan\n")
	for _, f := range predictions.Predictions {
		planned := "-"
		if f.Planned != nil {
			planned = fmt.Sprintf("%.5g", *f.Planned)
		}
		fmt.Fprintf(w, "  %-24s %11.5g %-8s [%.5g, %.5g]   plan %s\n", f.Name, f.Predicted, f.Unit, f.Low, f.High, planned)
	}
	return nil
}

func connectTime(sc *scenario.Scenario) string {
	return fmt.Sprintf("%.1fs", float64(sc.Population.ConnectedDevices)/float64(sc.Devices.ConnectRate))
}

package app

import (
	"slices"
	"strings"
	"testing"

	"imbench/loadgen/internal/driver"
	"imbench/loadgen/internal/scenario"
)

// What a scenario calls a phase is what the run directory, the live view and the report call it.
func TestPhasesAreCalledAsInScenarios(t *testing.T) {
	found := 0
	for _, path := range scenario.Paths() {
		if name, ok := strings.CutPrefix(path, "phases."); ok {
			found++
			if !slices.Contains(driver.Phases, driver.Phase(name)) {
				t.Errorf("no phase of a run is called %s: %v", name, driver.Phases)
			}
		}
	}
	if found < 4 {
		t.Errorf("a scenario names %d phases", found)
	}
}

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

// Passwords in addresses are not kept; everything else is.
func TestWithoutPasswords(t *testing.T) {
	got := withoutPasswords([]string{"-fleet", "nats://me:pw@h:4222", "-db=postgres://u:p@h/x?a=b", "--fleet=nats://token@h:1", "-set", "load.group_rate=5/s", "-target", "http://h:1,http://h:2"})
	want := []string{"-fleet", "nats://me:xxxxx@h:4222", "-db=postgres://u:xxxxx@h/x?a=b", "--fleet=nats://xxxxx@h:1", "-set", "load.group_rate=5/s", "-target", "http://h:1,http://h:2"}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

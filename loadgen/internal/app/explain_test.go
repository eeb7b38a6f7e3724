package app

import (
	"context"
	"strings"
	"testing"
	"unicode/utf8"

	"imbench/loadgen/internal/scenario"
)

// explained runs loadgen -explain in this process.
func explained(t *testing.T, args ...string) string {
	t.Helper()
	var out, errs strings.Builder
	if code := Run(context.Background(), Program{Args: append(args, "-explain"), Stdout: &out, Stderr: &errs}); code != ExitPassed {
		t.Fatalf("%v: exit %d: %s", args, code, errs.String())
	}
	return out.String()
}

// Every shipped scenario can be explained, in a hundred columns, with all of what it is asked for.
func TestExplainShipped(t *testing.T) {
	for _, name := range scenario.Names() {
		args := []string{"-scenario", name}
		sc, err := scenario.Load(name)
		if err != nil {
			t.Fatal(err)
		}
		if len(sc.Faults) == 0 { // else they would lie past the end
			args = append(args, "-set", "phases.measure=6s")
		}
		out := explained(t, args...)
		for _, want := range []string{name + ": ", "drives", "population", "groups", "arrivals", "bodies", "devices", "phases", "criteria", "needs", "open files", "ports", "memory", "disk", "messages "} {
			if !strings.Contains(out, want) {
				t.Errorf("%s: nothing about %q:\n%s", name, want, out)
			}
		}
		for _, line := range strings.Split(out, "\n") {
			if n := utf8.RuneCountInString(line); n > mostColumns {
				t.Errorf("%s: %d columns: %s", name, n, line)
			}
		}
	}
}

func TestExplainSaysWhatIsSpecial(t *testing.T) {
	out := explained(t, "-scenario", "soak", "-set", "phases.measure=10s", "-set", "devices.ack_every=7")
	for _, want := range []string{"4 of 500 members, hinted, read by 100 % of the devices", "45 of 150 members, pushed", "from 10m0s to 30m0s of the load: rates × 0.4 to × 0.6",
		"weight 9: lognormal, median 120 bytes, sigma 0.8, at most 8192", "acknowledge every 7 events", "frames.ack               1/s       not predicted",
		"Not predicted: the model knows one kind of groups, and here are several."} {
		if !strings.Contains(out, want) {
			t.Errorf("nothing of %q in\n%s", want, out)
		}
	}
	out = explained(t, "-scenario", "smoke", "-target", "http://gw:1", "-allow-environment", "lab")
	if !strings.Contains(out, "http://gw:1; environments allowed: embedded, staging, lab") || !strings.Contains(out, "the target's database grows") {
		t.Errorf("against a target:\n%s", out)
	}
	out = explained(t, "-scenario", "smoke", "-target", "http://gw:1", "-set", "allow_environments=production,staging")
	if !strings.Contains(out, "environments allowed: staging\n") {
		t.Errorf("a scenario that allows production, which it cannot:\n%s", out)
	}
}

func TestGrouped(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1 000", 1234567: "1 234 567"} {
		if got := grouped(n); got != want {
			t.Errorf("%d: %q", n, got)
		}
	}
}

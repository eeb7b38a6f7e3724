package rundir

import (
	"bytes"
	"strings"
	"testing"
)

// A long fault does not make the table wider than it may be, and what did not end is a dash.
func TestFaultsAreRendered(t *testing.T) {
	took, healed := 8.3, 1.551
	s := Summary{Run: "r", Faults: []Fault{
		{Fault: "kill-gateway 1, back after 8s", AtS: 10, TookS: &took, Away: 2520, BackS: &healed, HealedS: &healed},
		{Fault: "command: " + strings.Repeat("kubectl delete pod gateway-1 ", 5), AtS: 20, Detail: "deleted"},
		{Fault: "cut-listeners", AtS: 30, Error: "no such database"},
	}}
	var b bytes.Buffer
	if err := RenderSummary(&b, s, 80); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for _, want := range []string{"kill-gateway 1, back a", "2 520", "1.551", "cut-listeners was not done: no such database", "deleted"} {
		if !strings.Contains(text, want) {
			t.Errorf("it does not say %q:\n%s", want, text)
		}
	}
	for _, line := range strings.Split(text, "\n") {
		if n := len([]rune(line)); n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
		if strings.HasPrefix(line, "| command") && strings.Count(line, "–") != 3 {
			t.Errorf("what did not end: %s", line)
		}
	}
	b.Reset()
	if err := RenderSummary(&b, Summary{Run: "r"}, 80); err != nil || strings.Contains(b.String(), "Faults") {
		t.Errorf("a run without faults: %v\n%s", err, b.String())
	}
}

package rundir

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

func TestCounted(t *testing.T) {
	for _, c := range []struct {
		name             string
		server           *int64
		ours, unresolved int64
		note             string // before
		line             string
	}{
		{"equal", ptr[int64](1000), 1000, 5, "", "the server counted 1 000 messages, we counted 1 000, all phases included"},
		{"both nothing", ptr[int64](0), 0, 0, "", "the server counted 0 messages, we counted 0, all phases included"},
		{"explained", ptr[int64](1003), 1000, 5, "", "1 000, all phases included: the server has committed 3 of the 5 sends whose outcome could not be found out"},
		{"more", ptr[int64](1007), 1000, 5, "", "the server counted 2 more"},
		{"fewer", ptr[int64](990), 1000, 5, "", "the server counted 10 fewer"},
		{"not known", nil, 1000, 0, "nobody was asked", "we counted 1 000 messages; what the server counted is not known: nobody was asked"},
	} {
		s := Summary{Run: "r", Counted: &Counted{Server: c.server, Ours: c.ours, Unresolved: c.unresolved, Note: c.note}}
		s.Counted.Explain()
		var b bytes.Buffer
		must(t, RenderSummary(&b, s, 200))
		if !strings.Contains(b.String(), "- "+c.line) && !strings.Contains(b.String(), c.line) {
			t.Errorf("%s: want %q in\n%s", c.name, c.line, b.String())
		}
	}
}

// What was counted and stayed at 0 is in the summary all the same, as a number and not as a gap.
func TestZerosAreWritten(t *testing.T) {
	b, err := json.Marshal(Summary{Failed: map[string]int64{}, Metrics: map[string]Metric{Ack: {}}})
	must(t, err)
	for _, want := range []string{`"failed":{}`, `"censored":0`, `"reconnects":0`, `"lost":0`, `"log_gaps":0`, `"logged_twice":0`, `"dropped":0`,
		`"count":0`, `"negative":0,"over_range":0,"censored":0`} {
		if !strings.Contains(string(b), want) {
			t.Errorf("no %s in %s", want, b)
		}
	}
	var text bytes.Buffer
	must(t, RenderSummary(&text, Summary{Run: "r"}, 120))
	for _, want := range []string{"0 offered, 0 started, 0 done, 0 unfinished, 0 failed", "- 0 messages are in the log twice", "- 0 seqs are missing", "Samples dropped: 0"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
	if strings.Contains(text.String(), "NaN") {
		t.Error(text.String())
	}
}

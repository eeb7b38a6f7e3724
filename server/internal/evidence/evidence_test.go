package evidence

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// innerVar makes the test binary, started again, run one of the cases below.
const innerVar = "IMBENCH_EVIDENCE_CASE"

func says(s string) func(*testing.T) string { return func(*testing.T) string { return s } }

func breaks(t *testing.T) string { t.Fatal("the set-up is broken"); return "" }

// cases are checks, and how they must come out: the record's Good, and whether the test passes. No record: none is left.
var cases = map[string]struct {
	check      Check
	good, pass bool
	record     string // a part of it, as JSON
}{
	"passes": {Check{ID: "04-seq-gapless", Expected: "x", Document: "204", Observe: says("x\n12 ms"), Control: Control{"it is broken", says("y")}},
		true, true, `"measured":["12 ms"],"document":"204"`},
	"fails":           {Check{ID: "04-seq-gapless", Expected: "x", Observe: says("y"), Control: Control{"it is broken", says("z")}}, false, false, `"pass":false`},
	"control passes":  {Check{ID: "04-seq-gapless", Expected: "x", Observe: says("x"), Control: Control{"it is broken", says("x")}}, false, false, `"failed":false`},
	"broken":          {Check{ID: "04-seq-gapless", Expected: "x", Observe: breaks, Control: Control{"it is broken", says("y")}}, false, false, `"observed":"nothing: the set-up failed"`},
	"control broken":  {Check{ID: "04-seq-gapless", Expected: "x", Observe: says("x"), Control: Control{"it is broken", breaks}}, false, false, `"failed":false`},
	"observation":     {Check{ID: "04-history-uses-pk", Observe: says("x")}, true, true, `"judged":false,"pass":true`},
	"broken one":      {Check{ID: "04-history-uses-pk", Observe: breaks}, false, false, `"pass":false`},
	"unknown":         {Check{ID: "04-nothing", Expected: "x", Observe: says("x"), Control: Control{"it is broken", says("y")}}, false, false, ""},
	"without control": {Check{ID: "04-seq-gapless", Expected: "x", Observe: says("x")}, false, false, ""},
	"not run": {Check{ID: "06-power-cut", Expected: "x", Observe: breaks, Control: Control{"it is broken", breaks}, NotRun: "no FUSE", Postgres: "16.1"},
		false, true, `"not_run":"no FUSE"`},
	"expects nothing": {Check{ID: "04-seq-gapless", Observe: says("x"), Control: Control{"it is broken", says("y")}}, false, false, ""},
}

// TestInner runs the case that TestRun asks for.
func TestInner(t *testing.T) {
	if name := os.Getenv(innerVar); name != "" {
		UsePostgres("16.1")
		Run(t, cases[name].check)
	}
}

func TestRun(t *testing.T) {
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			cmd := exec.Command(os.Args[0], "-test.run=^TestInner$", "-test.count=1")
			cmd.Env = append(os.Environ(), innerVar+"="+name, DirVar+"="+dir)
			out, err := cmd.CombinedOutput()
			if (err == nil) != c.pass {
				t.Errorf("the test ends with %v:\n%s", err, out)
			}
			records, err := Load(dir)
			if err != nil {
				t.Fatal(err)
			}
			r := records[c.check.ID]
			if c.record == "" {
				if r != nil {
					t.Errorf("it leaves %+v", r)
				}
				return
			}
			if r == nil || r.Good() != c.good || r.Postgres != "16.1" || r.Seconds < 0 {
				t.Fatalf("it leaves %+v", r)
			}
			if text, err := os.ReadFile(dir + "/" + c.check.ID + ".json"); err != nil || !strings.Contains(string(text), c.record) {
				t.Errorf("%s lacks %s (%v)", text, c.record, err)
			}
		})
	}
}

func TestCatalogue(t *testing.T) {
	seen, proved := map[string]bool{}, map[string]int{}
	for _, e := range catalogue {
		if seen[e.ID] || e.ID != strings.ToLower(e.ID) {
			t.Errorf("%s stands twice, or has capitals", e.ID)
		}
		seen[e.ID] = true
		if len(e.Proves) == 0 && !e.Observation {
			t.Errorf("%s proves nothing", e.ID)
		}
		for _, p := range e.Proves {
			proved[p]++
		}
	}
	for _, i := range Invariants {
		if proved[i.ID] == 0 {
			t.Errorf("nothing proves %s", i.ID)
		}
		delete(proved, i.ID)
	}
	if len(proved) > 0 {
		t.Errorf("there are no invariants %v", proved)
	}
}

// run is the records of a run in which everything that is built passed.
func run() map[string]*Record {
	records := map[string]*Record{}
	for _, e := range catalogue {
		if e.Later != "" {
			continue
		}
		r := &Record{ID: e.ID, Invariants: e.Proves, Observed: "seen", Judged: !e.Observation, Pass: true}
		if r.Judged {
			r.Expected, r.Control = "seen", &ControlRecord{Is: "broken", Observed: "not seen", Failed: true}
		}
		records[e.ID] = r
	}
	return records
}

func TestJudge(t *testing.T) {
	if v := Judge(run()); !v.Good() || v.Passed == 0 || v.Observed == 0 || v.Later == 0 {
		t.Errorf("all is well: %v", v)
	}
	records := run()
	records["06-power-cut"] = &Record{NotRun: "no FUSE"}
	if v := Judge(records); !v.Good() || !strings.Contains(v.String(), "1 cannot be run here") {
		t.Errorf("one cannot be run here: %v", v)
	}
	for want, change := range map[string]func(map[string]*Record){
		"1 failed":                             func(m map[string]*Record) { m["04-seq-gapless"].Pass = false },
		"1 whose control was not seen to fail": func(m map[string]*Record) { m["04-seq-gapless"].Control.Failed = false },
		"1 did not run":                        func(m map[string]*Record) { delete(m, "04-seq-gapless") },
		"3 failed, 0 whose control was not": func(m map[string]*Record) {
			m["05-bad-frames"] = &Record{}
			m["10-bus-lossy"] = &Record{}
			m["08-pull-lazy-readers"].Pass = false
		},
	} {
		records := run()
		change(records)
		if v := Judge(records); v.Good() || !strings.Contains(v.String(), want) {
			t.Errorf("%v, want %s", v, want)
		}
	}
}

func TestReports(t *testing.T) {
	records := run()
	records["04-seq-gapless"].Control.Failed = false
	records["04-seq-gapless"].Measured, records["04-seq-gapless"].Document = []string{"5 ms", "2 kB"}, "204"
	delete(records, "11-recall-window")
	delete(records, "05-half-open-found")
	records["06-power-cut"] = &Record{NotRun: "no FUSE"}
	records["09-read-clamped"].Pass = false
	var checks, matrix strings.Builder
	PrintChecks(&checks, records)
	PrintMatrix(&matrix, records)
	for _, part := range []string{
		"04-seq-gapless *: PASSED, AND ITS CONTROL TOO\n    expected  seen\n    observed  seen\n    measured  5 ms; 2 kB\n    document  204\n    control   broken: DOES NOT FAIL: not seen\n",
		"04-history-uses-pk *: observed\n", "04-batch-isolates: passed\n", "control   broken: fails, as it must: not seen\n",
		"11-recall-window: did not run\n", "06-power-cut: not run: no FUSE\n", "09-read-clamped: FAILED\n", "chat-outbox-order *: not built: a later round, with a broker\n",
	} {
		if !strings.Contains(checks.String(), part) {
			t.Errorf("the checks lack %q:\n%s", part, checks.String())
		}
	}
	lines := map[string]string{}
	for line := range strings.Lines(matrix.String()) {
		id, rest, _ := strings.Cut(line, " ")
		lines[id] = rest
	}
	for id, parts := range map[string][]string{
		"P1": {"FAILED", "04.json 06.json", "04-seq-gapless (PASSED, AND ITS CONTROL TOO)"}, "M2": {"FAILED", "09-read-clamped (FAILED)"},
		"D6": {"passed in part", "06-power-cut (not run: no FUSE)"}, "L1": {"passed in part", "09.json 11.json", "11-recall-window (did not run)"}, "G3": {"not run", "–"}, "D4": {"passed ", "06-ack-monotonic-and-bounded\n"},
	} {
		for _, part := range parts {
			if !strings.Contains(lines[id], part) {
				t.Errorf("%s lacks %q: %s", id, part, lines[id])
			}
		}
	}
}

func TestWriteHoldsOneRun(t *testing.T) {
	dir := t.TempDir() + "/evidence"
	records := run()
	for range 2 {
		if err := Write(dir, records, "abc"); err != nil {
			t.Fatal(err)
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		want := []string{"04.json", "05.json", "06.json", "07.json", "08.json", "09.json", "10.json", "11.json", "chat.json"}
		if records["04-seq-gapless"] == nil {
			want = []string{"06.json"}
		}
		if !slices.Equal(names, want) {
			t.Errorf("files %v, want %v", names, want)
		}
		text, err := os.ReadFile(dir + "/06.json")
		if err != nil || !strings.HasPrefix(string(text), "[\n") || strings.Count(string(text), `"revision": "abc"`) != strings.Count(string(text), `"id": "06-`) {
			t.Errorf("%s, %v", text, err)
		}
		records = map[string]*Record{"06-lost-ack": records["06-lost-ack"]}
	}
}

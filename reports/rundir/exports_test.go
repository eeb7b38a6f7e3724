package rundir

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/perf/benchfmt"
	"pgregory.net/rapid"
)

func testRun() Run {
	m := testManifest()
	end := began.Add(90 * time.Second)
	m.Ended, m.Hosts = &end, []Host{{Name: "here", OS: "linux", Arch: "amd64"}}
	s := testSummary()
	s.Run, s.Scenario = "baseline-x", "baseline"
	return Run{m, s}
}

// node is any element, to look at the shape of a report without the types that wrote it.
type node struct {
	XMLName xml.Name
	Attrs   []xml.Attr `xml:",any,attr"`
	Nodes   []node     `xml:",any"`
}

func (n node) attr(name string) string {
	for _, a := range n.Attrs {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

// junitShape holds a report against the schema that Jenkins publishes (junit-10.xsd): which elements stand where, in what
// order, with which attributes, and that the counts are those of the cases.
func junitShape(t *testing.T, b []byte) (suites []node) {
	t.Helper()
	var root node
	must(t, xml.Unmarshal(b, &root))
	if root.XMLName.Local != "testsuites" {
		t.Fatalf("the root is %s", root.XMLName.Local)
	}
	order := map[string]int{"properties": 0, "testcase": 1}
	for _, suite := range root.Nodes {
		if suite.XMLName.Local != "testsuite" || suite.attr("name") == "" {
			t.Fatalf("%s %v in testsuites", suite.XMLName.Local, suite.Attrs)
		}
		last, count := 0, map[string]int{}
		for _, n := range suite.Nodes {
			at, known := order[n.XMLName.Local]
			if !known || at < last {
				t.Fatalf("%s stands where it may not", n.XMLName.Local)
			}
			if last = at; at == 0 {
				continue
			}
			count["tests"]++
			if n.attr("name") == "" || n.attr("classname") == "" || len(n.Nodes) > 1 {
				t.Errorf("case %v with %d outcomes", n.Attrs, len(n.Nodes))
			}
			for _, o := range n.Nodes {
				switch o.XMLName.Local {
				case "failure":
					count["failures"]++
				case "error":
					count["errors"]++
				case "skipped":
					count["skipped"]++
				default:
					t.Errorf("%s in a case", o.XMLName.Local)
				}
				if o.attr("message") == "" {
					t.Errorf("%s without a message", o.XMLName.Local)
				}
			}
		}
		for _, name := range []string{"tests", "failures", "errors", "skipped"} {
			if suite.attr(name) != fmt.Sprint(count[name]) {
				t.Errorf("%s=%q, there are %d", name, suite.attr(name), count[name])
			}
		}
		suites = append(suites, suite)
	}
	return suites
}

func TestJUnit(t *testing.T) {
	missed := testRun()
	missed.Summary.Criteria = []Criterion{{Metric: "send.intended.p99", Op: "<=", Limit: 100, Unit: "ms", Value: ptr(60.0), Result: Met},
		{Metric: "deliver.p99", Op: "<=", Limit: 250, Unit: "ms", Value: ptr(260.5), Result: NotMet},
		{Metric: "sync.p99", Op: "<=", Limit: 50, Unit: "ms", Result: NoData}}
	missed.Summary.Ledger = LedgerSummary{Settled: true, Leaked: 3}
	cut := testRun()
	cut.Summary.Verdict, cut.Summary.Reasons, cut.Summary.Criteria, cut.Summary.Ledger = Interrupted, []string{"Ctrl-C \x00 <&>"}, nil, LedgerSummary{}
	var b bytes.Buffer
	must(t, JUnit(&b, missed, cut))
	suites := junitShape(t, b.Bytes())
	if len(suites) != 2 || suites[0].attr("tests") != "14" || suites[0].attr("failures") != "3" || suites[0].attr("time") != "90.000" {
		t.Fatalf("%d suites\n%s", len(suites), b.String())
	}
	for _, want := range []string{
		`name="send.intended.p99 &lt;= 100 ms" time="0"></testcase>`,
		`message="deliver.p99 is 260.5 ms, the limit is &lt;= 250 ms" type="missed"`,
		`message="sync.p99 is no data, the limit is &lt;= 50 ms" type="no data"`,
		`message="leaked: 3, the limit is 0 (ledger.json names them)" type="broken"`,
		`message="interrupted: Ctrl-C � &lt;&amp;&gt;" type="interrupted"`,
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %s in\n%s", want, b.String())
		}
	}
	if suites[1].attr("errors") != "1" || suites[1].attr("skipped") != "1" || suites[1].attr("failures") != "0" {
		t.Errorf("a run that was cut short: %v", suites[1].Attrs)
	}
}

// What a wire cannot prove is no promise that was kept, and no figure.
func TestExportsOfWhatIsNotChecked(t *testing.T) {
	r := testRun()
	r.Summary.Criteria, r.Summary.Ledger, r.Summary.EffectiveAck = nil, LedgerSummary{Settled: true, Lost: 2}, 0
	r.Summary.NotCheck([]string{"ledger.reordered", "ledger.regressed", "effective_ack"})
	var b bytes.Buffer
	must(t, JUnit(&b, r))
	suite := junitShape(t, b.Bytes())[0]
	if suite.attr("skipped") != "2" || suite.attr("failures") != "1" || strings.Count(b.String(), `<skipped message="not checked: `) != 2 {
		t.Errorf("%s", b.String())
	}
	b.Reset()
	must(t, Benchstat(&b, r))
	if !strings.Contains(b.String(), "msg-share") || strings.Contains(b.String(), " 0 events/ack") {
		t.Errorf("%s", b.String())
	}
}

// benchstat's own reader takes the lines, with units and the figures of the summary.
func TestBenchstat(t *testing.T) {
	r := testRun()
	r.Summary.Processes = append(r.Summary.Processes, ProcessUse{Role: "gateway 1", CPUCores: 0.25}, ProcessUse{Role: "gateway 1", CPUCores: 0.5})
	var b bytes.Buffer
	must(t, Benchstat(&b, r), Benchstat(&b, r)) // a file is appended to
	got := map[string]float64{}
	n := 0
	for rd := benchfmt.NewReader(&b, "f"); rd.Scan(); {
		switch rec := rd.Result().(type) {
		case *benchfmt.SyntaxError:
			t.Error(rec)
		case *benchfmt.Result:
			n++
			if rec.GetConfig("scenario") != "baseline" || rec.GetConfig("goos") != "linux" || rec.GetConfig("revision") != "abc" {
				t.Errorf("configuration %v", rec.Config)
			}
			for _, v := range rec.Values {
				got[rec.Name.String()+" "+v.Unit] = v.Value
			}
		}
	}
	if n != 6 {
		t.Errorf("%d lines, want 3 twice", n)
	}
	for name, want := range map[string]float64{"Baseline/latency=send.intended p99-sec": 0.0215, "Baseline/latency=deliver p50-sec": 0.0091,
		"Baseline/load msg/s": 1250.17, "Baseline/load gateway_1-cores": 0.75} {
		if v, ok := got[name]; !ok || v < want*0.9999 || v > want*1.0001 {
			t.Errorf("%s = %v, want %v; all: %v", name, v, want, got)
		}
	}
	r.Summary.Verdict = Invalid
	b.Reset()
	must(t, Benchstat(&b, r))
	if strings.Contains(b.String(), "Benchmark") || !strings.Contains(b.String(), "# baseline-x: invalid, no figures") {
		t.Errorf("figures of an invalid run:\n%s", b.String())
	}
}

// Whatever a scenario is called, its lines can be read.
func TestBenchstatNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := testRun()
		r.Summary.Scenario = rapid.StringMatching(`[a-zA-Z0-9._ /é-]{0,12}`).Draw(t, "name")
		var b bytes.Buffer
		if err := Benchstat(&b, r); err != nil {
			t.Fatal(err)
		}
		n := 0
		for rd := benchfmt.NewReader(&b, "f"); rd.Scan(); {
			switch rec := rd.Result().(type) {
			case *benchfmt.SyntaxError:
				t.Fatal(rec)
			case *benchfmt.Result:
				n++
			}
		}
		if n != 3 {
			t.Fatalf("%d lines", n)
		}
	})
}

func TestRenderMarkdownGolden(t *testing.T) {
	s := testRun().Summary
	s.Reasons = append(s.Reasons, "@someone said <b>no</b> to *all* | and [this](x)")
	var b bytes.Buffer
	must(t, RenderMarkdown(&b, s))
	path := filepath.Join("testdata", "summary.github.golden")
	if *update {
		must(t, os.WriteFile(path, b.Bytes(), 0o644))
	}
	want, err := os.ReadFile(path)
	must(t, err)
	if !bytes.Equal(b.Bytes(), want) {
		t.Errorf("%s differs; got\n%s", path, b.String())
	}
	for _, bad := range []string{"@someone", "<b>", " *all*", "[this](x)"} {
		if strings.Contains(b.String(), bad) {
			t.Errorf("%q is taken for markup", bad)
		}
	}
	// A line that follows another one in a paragraph would be shown as a break.
	lines := strings.Split(b.String(), "\n")
	for i, l := range lines {
		if i > 0 && l != "" && lines[i-1] != "" && !strings.HasPrefix(l, "|") && !strings.HasPrefix(l, "-") {
			t.Errorf("line %d goes on in the next: %q", i, l)
		}
	}
}

// Nothing is lost when a writer fails: the error comes back.
func TestExportsFail(t *testing.T) {
	full := failing{}
	for name, err := range map[string]error{"JUnit": JUnit(full, testRun()), "Benchstat": Benchstat(full, testRun()), "Markdown": RenderMarkdown(full, testSummary())} {
		if err != io.ErrShortWrite {
			t.Errorf("%s: %v", name, err)
		}
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

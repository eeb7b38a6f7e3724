package page

import (
	"bytes"
	"encoding/base64"
	"errors"
	"flag"
	"html"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"imbench/model/capacity"
	"imbench/reports/internal/figure"
	"imbench/reports/rundir"
)

var update = flag.Bool("update", false, "write the golden file anew")

func inputs(t *testing.T) capacity.Inputs {
	t.Helper()
	in, err := capacity.Lookup("im-baseline")
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// makePage makes the page of a run, or of the model with r nil, without pictures.
func makePage(t *testing.T, r *rundir.Reader) Page {
	t.Helper()
	var run *Run
	if r != nil {
		var err error
		if run, err = Read(r); err != nil {
			t.Fatal(err)
		}
	}
	p, err := build(run, inputs(t), "rev1", func(d *figure.Drawing) ([]byte, error) { return []byte(d.Name), nil })
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range p.Problems {
		t.Error(problem)
	}
	return p
}

var (
	styles = regexp.MustCompile(`(?s)<style>.*?</style>`)
	breaks = regexp.MustCompile(`</(?:p|h1|h2|li|tr|dd|summary|caption|figcaption|pre|a|thead)>`)
	ends   = regexp.MustCompile(`</(?:td|th|dt)>|<small>`)
	tags   = regexp.MustCompile(`(?s)<[^>]*>`)
	blanks = regexp.MustCompile(`\n\s*`)
)

// text is what a reader sees of a page, pictures aside: a line a paragraph or row.
func text(page []byte) string {
	s := styles.ReplaceAllString(string(page), "")
	s = strings.ReplaceAll(s, "\n", " ")
	s = breaks.ReplaceAllString(s, "\n")
	s = ends.ReplaceAllString(s, " | ")
	s = html.UnescapeString(tags.ReplaceAllString(s, ""))
	return strings.TrimSpace(blanks.ReplaceAllString(strings.ReplaceAll(s, "\u00a0", " "), "\n")) + "\n"
}

func TestGolden(t *testing.T) {
	r := small().write(t)
	p := makePage(t, r)
	// The model's part changes with the model, and has a test of its own.
	got, _, _ := strings.Cut(text(p.HTML), "Budgets that are not measured")
	path := filepath.Join("testdata", "page.golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the page differs from its golden text (go test -update writes it):\n%s", got)
	}
	var names []string
	for _, f := range p.Figures {
		names = append(names, f.Name)
	}
	slices.Sort(names)
	if want := slices.Sorted(slices.Values(figure.Names())); !slices.Equal(names, want) {
		t.Errorf("figures %v, want %v", names, want)
	}
	if again := makePage(t, r); !bytes.Equal(again.HTML, p.HTML) {
		t.Error("the same run gave another page")
	}
	for _, s := range []string{"http:", "https:", "<script", "<link", "@import"} {
		outside := strings.ReplaceAll(string(p.HTML), "http://127.0.0.1:1", "") // the run's target, as text
		if strings.Contains(outside, s) {
			t.Errorf("a page that needs no network holds %q", s)
		}
	}
}

func TestModelAlone(t *testing.T) {
	p := makePage(t, nil)
	got := text(p.HTML)
	for _, s := range []string{"Capacity by the model alone", "Capacity by the model (assumed)", "database writes, binds", "Break-even", "0.8715", "0.9313", "0.6951",
		"frames, redeliveries included | 9 067/s", "g-lazy | 600 | 0.2 | 56 | 22 800 | 53 966 | 0.3179", "message_rate | M | 1 250 | 1/s | given"} {
		if !strings.Contains(got, s) {
			t.Errorf("the page lacks %q", s)
		}
	}
	if len(p.Figures) != 2 || strings.Contains(got, "Verdict and conditions") {
		t.Errorf("%d figures without a run, or a verdict", len(p.Figures))
	}
}

func TestRunWithoutMetrics(t *testing.T) {
	r := small()
	r.tags, r.counters, r.ledger = nil, nil, nil
	r.summary.Metrics, r.summary.Predictions, r.summary.Processes, r.summary.Criteria = nil, nil, nil, nil
	got := text(makePage(t, r.write(t)).HTML)
	for _, s := range []string{"send.intended | intended time", "0 | no data", "The run has no predictions.", "The run has no figures of processes",
		"The scenario has no criteria.", "The run left no ledger.json"} {
		if !strings.Contains(got, s) {
			t.Errorf("the page lacks %q", s)
		}
	}
}

func TestHostileTextsAreEscaped(t *testing.T) {
	const evil = `"><script>alert(1)</script><img src=x onerror=alert(2)>&{{.}}`
	r := small()
	r.manifest.Scenario, r.manifest.Revision, r.manifest.Command = evil, evil, []string{evil}
	r.manifest.Hosts[0].Name, r.manifest.Target.Environment, r.manifest.Postgres.Version = evil, evil, evil
	r.manifest.Postgres.Settings[evil], r.manifest.Model = evil, map[string]float64{evil: 1}
	r.manifest.Phases[0].Name, r.manifest.Population.Namespace, r.manifest.Notes = evil, evil, []string{evil}
	r.summary.Verdict, r.summary.Reasons, r.summary.Notes = evil, []string{evil}, []string{evil}
	r.summary.Failed, r.summary.Processes[0].Role = map[string]int64{evil: 1}, evil
	r.summary.Criteria[0] = rundir.Criterion{Metric: evil, Op: evil, Unit: evil, Result: evil}
	r.summary.Predictions[0].Name, r.summary.Predictions[0].Unit, r.summary.Predictions[0].Note = evil, evil, evil
	r.ledger.Culprits[0] = rundir.Culprit{Kind: evil, Device: evil, User: evil, Conv: evil, Detail: evil}
	r.ledger.Counts, r.ledger.Notes, r.scenario = map[string]int64{evil: 1}, []string{evil}, evil
	page := string(makePage(t, r.write(t)).HTML)
	for _, s := range []string{"<script", "<img src=x", "onerror=alert(2)>"} {
		if strings.Contains(page, s) {
			t.Errorf("the page holds %q unescaped", s)
		}
	}
	if n := strings.Count(page, "&lt;script&gt;alert(1)"); n < 25 {
		t.Errorf("only %d of the texts are on the page", n)
	}
}

func TestAnotherLoadStandsBesideThePreset(t *testing.T) {
	r := small()
	r.manifest.Model = map[string]float64{"M": 125, "unheard_of": 1}
	run, err := Read(r.write(t))
	if err != nil {
		t.Fatal(err)
	}
	b := builder{run: run, inputs: inputs(t)}
	got := b.resourceTable(capacity.Predict(b.inputs))
	if len(got.Head) != 7 || !strings.Contains(got.Origin, "does not take: unheard_of") {
		t.Fatalf("%d columns, origin %q", len(got.Head), got.Origin)
	}
	preset, own := got.Rows[0][1].Text, got.Rows[0][5].Text
	if preset != "4\u00a0767\u00a0rows/s" || own != "476.7\u00a0rows/s" {
		t.Errorf("writes at 1 250/s %q and at 125/s %q", preset, own)
	}
}

func TestUnfinishedIsRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "r")
	w, err := rundir.Create(dir, small().manifest, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := rundir.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Read(r); !errors.Is(err, rundir.ErrUnfinished) {
		t.Errorf("got %v", err)
	}
}

func TestTornAndBrokenFiles(t *testing.T) {
	r := small().write(t)
	tear(t, r.Dir(), rundir.CountersFile)
	run, err := Read(r)
	if err != nil || !slices.Equal(run.Torn, []string{rundir.CountersFile}) || len(run.Counters) != 5 {
		t.Fatalf("torn %v, %d lines, %v", run.Torn, len(run.Counters), err)
	}
	b := builder{run: run}
	if list := b.verdict().Blocks[2].List; !strings.Contains(strings.Join(list, "\n"), "counters.ndjson is incomplete") {
		t.Errorf("the page does not say so: %v", list)
	}
	for _, name := range []string{rundir.CountersFile, rundir.EventsFile, rundir.LedgerFile, rundir.LatencyFile} {
		r := small().write(t)
		if err := os.WriteFile(filepath.Join(r.Dir(), name), []byte("{\n{\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(r); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("broken %s: %v", name, err)
		}
	}
}

func TestProofIsOnThePage(t *testing.T) {
	r := small()
	r.summary.Ledger.Settled, r.summary.Ledger.Exported = false, false
	got := text(makePage(t, r.write(t)).HTML)
	for _, s := range []string{"none lost | 1 | deliveries", "lost | dev-77 | u-9 | g-3 | 41 | never applied", "In all: lost 1.", "nothing missing counts as lost",
		"sends started late, p99 | 0.4 | ms", "fsync | on", "namespace ns1, digest d1", "The scenario as used\nname: baseline", "event | 402.5 | 416 | 26 400"} {
		if !strings.Contains(got, s) {
			t.Errorf("the page lacks %q", s)
		}
	}
}

func TestPicturesAreInThePage(t *testing.T) {
	p, err := Build(nil, inputs(t), "rev1")
	if err != nil || len(p.Problems) > 0 || len(p.Figures) != 2 {
		t.Fatalf("%d figures, %v, %v", len(p.Figures), p.Problems, err)
	}
	for _, f := range p.Figures {
		if src := `src="data:image/png;base64,` + base64.StdEncoding.EncodeToString(f.PNG) + `"`; !bytes.HasPrefix(f.PNG, []byte("\x89PNG")) || !strings.Contains(html.UnescapeString(string(p.HTML)), src) {
			t.Errorf("%s is no PNG, or not in the page", f.Name)
		}
	}
}

func TestFigureThatCannotBeDrawn(t *testing.T) {
	p, err := build(nil, inputs(t), "rev1", func(*figure.Drawing) ([]byte, error) { return nil, errors.New("out of ink") })
	if err != nil || len(p.Problems) != 2 || len(p.Figures) != 0 || !strings.Contains(text(p.HTML), "could not be drawn: out of ink") {
		t.Errorf("%d problems, %d figures, %v", len(p.Problems), len(p.Figures), err)
	}
}

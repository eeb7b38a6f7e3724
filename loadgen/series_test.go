package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"imbench/loadgen/internal/app"
	"imbench/reports/rundir"
)

// brief is tiny, with as little of everything as makes a run.
var brief = strings.NewReplacer("warmup: 1s, measure: 2s, tail: 500ms", "warmup: 200ms, measure: 1s, tail: 100ms").Replace(tiny)

// document reads the one series under the run's directory, and what was printed.
func document[T any](r *run, kind, file string) (dir string, doc T) {
	r.t.Helper()
	dirs, err := filepath.Glob(filepath.Join(r.out, "tiny-"+kind+"-*"))
	if err != nil || len(dirs) != 1 {
		r.t.Fatalf("series %v, %v: want one\n%s", dirs, err, r.log.String())
	}
	if err := rundir.ReadSeries(dirs[0], file, &doc); err != nil {
		r.t.Fatal(err)
	}
	var printed struct{ Kind string }
	if err := json.Unmarshal(r.json.Bytes(), &printed); err != nil || printed.Kind != kind {
		r.t.Errorf("-json printed something else than the document: %v", err)
	}
	return dirs[0], doc
}

// manifest is that of a run of a series, which must have a verdict.
func manifest(t *testing.T, dir, name string, want rundir.Verdict) rundir.Manifest {
	t.Helper()
	d, err := rundir.Open(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	if m := d.Manifest(); m.Verdict == want {
		return m
	}
	t.Errorf("%s: verdict %q, want %s", name, d.Manifest().Verdict, want)
	return d.Manifest()
}

func TestSeries(t *testing.T) {
	t.Parallel()
	t.Run("repeat", func(t *testing.T) {
		t.Parallel()
		r := start(t, brief, "-repeat", "2", "-seed", "5")
		if code := r.wait(); code != app.ExitPassed {
			t.Fatalf("exit %d\n%s", code, r.log.String())
		}
		dir, doc := document[rundir.Repeat](r, "repeat", rundir.RepeatFile)
		if !doc.Complete || doc.Ended == nil || doc.Verdict != rundir.Passed || len(doc.Runs) != 2 {
			t.Fatalf("%+v", doc)
		}
		digests := map[string]bool{}
		for i, x := range doc.Runs {
			m := manifest(t, dir, x.Run, rundir.Passed)
			digests[m.Arrivals.Digest] = true
			if m.Seed != uint64(5+i) || x.Seed != m.Seed || !x.Counted {
				t.Errorf("run %d: %+v with seed %d", i, x, m.Seed)
			}
		}
		if len(digests) != 2 {
			t.Error("both runs had the same arrivals")
		}
		if f := doc.Figures[0]; f.Name != "achieved_rate" || f.Median == nil || f.Low != nil || len(f.Values) != 2 || *f.Min > *f.Max {
			t.Errorf("%+v", f)
		}
	})
	t.Run("ab", func(t *testing.T) {
		t.Parallel()
		r := start(t, brief, "-ab", "delivery.mode=push,pull", "-repeat", "2")
		if code := r.wait(); code != app.ExitPassed {
			t.Fatalf("exit %d\n%s", code, r.log.String())
		}
		dir, doc := document[rundir.Comparison](r, "ab", rundir.ComparisonFile)
		var order []string
		plans := map[string]string{}
		for _, x := range doc.Runs {
			order = append(order, fmt.Sprint(x.Variant, x.Pair))
			m := manifest(t, dir, x.Run, rundir.Passed)
			plans[fmt.Sprint(x.Variant, x.Pair)] = m.Arrivals.Digest
			src, err := os.ReadFile(filepath.Join(dir, x.Run, rundir.ScenarioFile))
			if err != nil || !strings.Contains(string(src), `mode: "`+x.Variant+`"`) && !strings.Contains(string(src), "mode: "+x.Variant) {
				t.Errorf("%s did not run in its mode: %v\n%s", x.Run, err, src)
			}
		}
		if !slices.Equal(order, []string{"push1", "pull1", "pull2", "push2"}) {
			t.Errorf("order %v", order)
		}
		if !doc.SamePlan || plans["push1"] != plans["pull1"] || plans["push2"] != plans["pull2"] || plans["push1"] == plans["push2"] {
			t.Errorf("arrivals %v: want the same in a pair, others in the other", plans)
		}
		if f := doc.Figures[0]; f.Pairs != 2 || f.A == nil || len(f.Differences) != 2 || math.Abs(*f.Differences[0]) > 0.05 || f.P != nil || f.Low != nil || f.Result != rundir.FewPairs {
			t.Errorf("the same messages were sent, in two pairs: %+v", f)
		}
	})
	t.Run("search", func(t *testing.T) {
		t.Parallel()
		r := start(t, brief, "-search", "-search-highest", "1.2", "-search-resolution", "0.2", "-search-measure", "500ms")
		if code := r.wait(); code != app.ExitPassed {
			t.Fatalf("exit %d\n%s", code, r.log.String())
		}
		dir, doc := document[rundir.SearchDocument](r, "search", rundir.SearchFile)
		if !doc.Complete || !doc.Answer.Confirmed || *doc.Answer.Held != 1.2 || *doc.Answer.HeldRate != 1.2*doc.Rate || doc.Answer.Failed != nil || len(doc.Probes) != 3 {
			t.Fatalf("%+v", doc)
		}
		for i, want := range []struct {
			multiple, measured float64
		}{{1, 0.5}, {1.2, 0.5}, {1.2, 1}} {
			p := doc.Probes[i]
			m := manifest(t, dir, p.Run, rundir.Passed)
			if p.Multiple != want.multiple || m.Window == nil || math.Abs(m.Window.To-m.Window.From-want.measured) > 1e-6 || m.Model["M"] != want.multiple*100 || len(p.Limits) == 0 {
				t.Errorf("probe %d: %+v, window %+v, rate %v", i, p, m.Window, m.Model["M"])
			}
		}
	})
	t.Run("interrupted search", func(t *testing.T) {
		t.Parallel()
		r := start(t, brief, "-search")
		r.until("probe 2:")
		r.until(`"phase":`)
		if err := r.cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		if code := r.wait(); code != app.ExitInterrupted {
			t.Errorf("exit %d, want %d\n%s", code, app.ExitInterrupted, r.log.String())
		}
		dir, doc := document[rundir.SearchDocument](r, "search", rundir.SearchFile)
		if doc.Complete || doc.Verdict != rundir.Interrupted || len(doc.Probes) != 2 || *doc.Answer.Held != 1 || doc.Answer.Confirmed {
			t.Fatalf("%+v", doc)
		}
		manifest(t, dir, doc.Probes[0].Run, rundir.Passed)
		manifest(t, dir, doc.Probes[1].Run, rundir.Interrupted)
	})
}

// comparedTargets looks at a comparison of two targets: each variant drove its own.
func comparedTargets(r *run, targets []string) {
	r.t.Helper()
	dir, doc := document[rundir.Comparison](r, "ab", rundir.ComparisonFile)
	if len(doc.Runs) != 4 || !doc.SamePlan {
		r.t.Errorf("%+v", doc)
	}
	for _, x := range doc.Runs {
		m := manifest(r.t, dir, x.Run, rundir.Passed)
		want := targets[map[string]int{"one": 0, "two": 1}[x.Variant]]
		if len(m.Target.URLs) != 1 || m.Target.URLs[0] != want {
			r.t.Errorf("%s drove %v, want %s", x.Variant, m.Target.URLs, want)
		}
	}
}

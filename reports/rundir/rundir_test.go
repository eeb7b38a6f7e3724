package rundir

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

func newRun(t *testing.T) *Writer {
	t.Helper()
	w, err := Create(filepath.Join(t.TempDir(), "runs", "baseline-x"), testManifest(), []byte("name: baseline\n"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func histogram(values ...int64) *hdrhistogram.Histogram {
	h := NewHistogram()
	for _, v := range values {
		if err := h.RecordValue(v); err != nil {
			panic(err)
		}
	}
	return h
}

// Everything that goes in comes out again.
func TestRoundTrip(t *testing.T) {
	w := newRun(t)
	at := began.Add(1500 * time.Millisecond)
	counters := CounterLine{At: at, Seconds: 1, Offered: 1250, Failed: map[string]int64{"UNAVAILABLE": 1},
		Frames: ByDirection{Down: map[string]int64{"event": 8800}}, Generator: GeneratorSecond{CPUCores: 0.5}}
	process := ProcessLine{At: at, Role: "postgres", PID: 3, CPUSec: 1.25, RSSBytes: 5, Processes: 9}
	server := ServerLine{At: at, Source: "http://127.0.0.1/db", JSON: json.RawMessage(`{"commits":5}`)}
	event := EventLine{At: at, Kind: "phase", Name: "measure"}
	predictions := Predictions{Inputs: map[string]float64{"k": 4}, Predictions: testSummary().Predictions}
	ledger := Ledger{LedgerSummary: LedgerSummary{Lost: 1}, Culprits: []Culprit{{Kind: "lost", Device: "d", Conv: "c", Seq: 4}}}
	must(t, w.Counters(counters), w.Process(process), w.Server(server), w.Event(event), w.Predictions(predictions), w.Ledger(ledger),
		w.Latency(Deliver, at, at.Add(time.Second), histogram(1e6, 2e6)),
		w.Latency(Deliver, at.Add(time.Second), at.Add(2*time.Second), histogram(3e6)),
		w.Latency(Sync, at, at.Add(time.Second), NewHistogram()),
		w.Manifest(func(m *Manifest) { m.Notes = append(m.Notes, "added later") }),
		w.Finish(testSummary(), func(m *Manifest) { m.Window = &Window{20, 80} }))

	r, err := Open(w.Dir())
	must(t, err)
	m := r.Manifest()
	if m.Format != 1 || m.Run != "baseline-x" || m.Status != Finished || m.Verdict != Missed || m.Window.To != 80 || m.Notes[0] != "added later" {
		t.Errorf("manifest %+v", m)
	}
	counters.T, process.T, server.T, event.T = 1.5, 1.5, 1.5, 1.5
	check := func(name string, got, want any, err error) {
		t.Helper()
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v\ngot  %+v\nwant %+v", name, err, got, want)
		}
	}
	c, torn, err := r.Counters()
	check("counters", c, []CounterLine{counters}, err)
	if torn {
		t.Error("torn")
	}
	p, _, err := r.Processes()
	check("processes", p, []ProcessLine{process}, err)
	s, _, err := r.Server()
	check("server", s, []ServerLine{server}, err)
	e, _, err := r.Events()
	check("events", e, []EventLine{event}, err)
	pr, err := r.Predictions()
	check("predictions", pr, predictions, err)
	l, err := r.Ledger()
	check("ledger", l, ledger, err)
	sum, err := r.Summary()
	want := testSummary()
	want.Run, want.Scenario = "baseline-x", "baseline"
	check("summary", sum, want, err)
	y, err := r.Scenario()
	check("scenario", string(y), "name: baseline\n", err)
	h, err := r.Histograms()
	must(t, err)
	d := h[Deliver]
	if len(h) != 1 || d.Total.TotalCount() != 3 || len(d.Intervals) != 2 || d.Intervals[0].Count != 2 ||
		!d.Intervals[1].Start.Equal(at.Add(time.Second)) || !d.Intervals[1].End.Equal(at.Add(2*time.Second)) {
		t.Errorf("histograms %+v", d)
	}
	text, err := os.ReadFile(filepath.Join(w.Dir(), SummaryTextFile))
	if err != nil || !bytes.Contains(text, []byte("MISSED")) {
		t.Errorf("%v %s", err, text)
	}
	if left, _ := filepath.Glob(filepath.Join(w.Dir(), ".*")); len(left) != 0 {
		t.Errorf("left over: %v", left)
	}
}

func TestCreateRefusesAnExistingDirectory(t *testing.T) {
	dir := t.TempDir()
	if _, err := Create(dir, testManifest(), nil); !errors.Is(err, ErrExists) {
		t.Errorf("%v", err)
	}
}

func TestFixedNames(t *testing.T) {
	b, err := json.Marshal(testSummary())
	must(t, err)
	var s map[string]json.RawMessage
	must(t, json.Unmarshal(b, &s))
	inside := func(part string, names ...string) {
		t.Helper()
		var m map[string]json.RawMessage
		raw := s[part]
		if part == "predictions" {
			var list []json.RawMessage
			must(t, json.Unmarshal(raw, &list))
			raw = list[0]
		}
		must(t, json.Unmarshal(raw, &m))
		if part == "metrics" {
			must(t, json.Unmarshal(m["deliver"], &m))
		}
		for _, n := range names {
			if _, ok := m[n]; !ok {
				t.Errorf("%s has no %s", part, n)
			}
		}
	}
	for _, n := range []string{"verdict", "offered", "started", "done", "achieved_rate", "effective_ack"} {
		if _, ok := s[n]; !ok {
			t.Errorf("no %s", n)
		}
	}
	inside("metrics", "count", "p50_ms", "p95_ms", "p99_ms", "p999_ms", "max_ms")
	inside("ledger", "expected", "delivered", "lost", "duplicated", "reordered", "leaked")
	inside("predictions", "name", "unit", "predicted", "low", "high", "planned", "measured", "error", "plan_error")
	inside("generator", "late_p99_ms", "late_share", "cpu_cores", "dropped")
}

// Every JSON name of the types stands in FORMAT.md.
func TestFormatNamesEveryField(t *testing.T) {
	doc, err := os.ReadFile("FORMAT.md")
	must(t, err)
	seen := map[reflect.Type]bool{}
	var walk func(ty reflect.Type)
	walk = func(ty reflect.Type) {
		switch ty.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			walk(ty.Elem())
		case reflect.Struct:
			if ty == reflect.TypeFor[time.Time]() || seen[ty] {
				return
			}
			seen[ty] = true
			for i := range ty.NumField() {
				f := ty.Field(i)
				name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				if name != "" && !regexp.MustCompile(`\b`+name+`\b`).Match(doc) {
					t.Errorf("%s.%s (%s) is not in FORMAT.md", ty.Name(), f.Name, name)
				}
				walk(f.Type)
			}
		}
	}
	for _, v := range []any{Manifest{}, CounterLine{}, ProcessLine{}, ServerLine{}, EventLine{}, Ledger{}, Predictions{}, Summary{}} {
		walk(reflect.TypeOf(v))
	}
}

func TestUnfinishedRunHasNoVerdict(t *testing.T) {
	w := newRun(t)
	must(t, w.Counters(CounterLine{At: began}), w.Close())
	r, err := Open(w.Dir())
	must(t, err)
	if r.Finished() || r.Manifest().Verdict != "" {
		t.Errorf("%+v", r.Manifest())
	}
	if _, err := r.Summary(); !errors.Is(err, ErrUnfinished) {
		t.Errorf("%v", err)
	}
	if list, _, err := r.Counters(); err != nil || len(list) != 1 {
		t.Errorf("the data of an unfinished run: %v %v", list, err)
	}
	if err := w.Counters(CounterLine{}); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a write after Close: %v", err)
	}
	// A verdict that someone wrote into a running manifest is none.
	path := filepath.Join(w.Dir(), ManifestFile)
	b, err := os.ReadFile(path)
	must(t, err)
	must(t, os.WriteFile(path, bytes.Replace(b, []byte(`"running",`), []byte(`"running", "verdict": "passed",`), 1), 0o644))
	r, err = Open(w.Dir())
	must(t, err)
	if v := r.Manifest().Verdict; v != "" {
		t.Errorf("verdict %q", v)
	}
}

func TestOpenRefuses(t *testing.T) {
	tests := []struct {
		name, manifest string
		want           error
	}{
		{"no manifest", "", ErrNotARun},
		{"torn", `{"format": 1, "sta`, ErrNotARun},
		{"no version", `{}`, ErrFormat},
		{"newer", `{"format": 2, "status": "finished"}`, ErrFormat},
		{"wrong type", `{"format": 1, "seed": "x"}`, ErrNotARun},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			if tt.manifest != "" {
				must(t, os.WriteFile(filepath.Join(dir, ManifestFile), []byte(tt.manifest), 0o644))
			}
			if _, err := Open(dir); !errors.Is(err, tt.want) {
				t.Errorf("%v, want %v", err, tt.want)
			}
		})
	}
}

func TestSummaryAgainstManifest(t *testing.T) {
	w := newRun(t)
	must(t, w.Finish(testSummary(), nil))
	path := filepath.Join(w.Dir(), SummaryFile)
	b, err := os.ReadFile(path)
	must(t, err)
	must(t, os.WriteFile(path, bytes.Replace(b, []byte(`"missed"`), []byte(`"passed"`), 1), 0o644))
	r, err := Open(w.Dir())
	must(t, err)
	if _, err := r.Summary(); err == nil {
		t.Error("a summary that contradicts the manifest was read")
	}
}

// A process that died may leave half a line at the end: it is left out. Half a line elsewhere is an error with its place.
func TestTornFiles(t *testing.T) {
	w := newRun(t)
	must(t, w.Counters(CounterLine{At: began, Done: 1}), w.Counters(CounterLine{At: began, Done: 2}),
		w.Latency(Ack, began, began.Add(time.Second), histogram(1e6)), w.Latency(Ack, began, began.Add(time.Second), histogram(2e6)),
		w.Close())
	r, err := Open(w.Dir())
	must(t, err)
	path := filepath.Join(w.Dir(), CountersFile)
	whole, err := os.ReadFile(path)
	must(t, err)
	first := bytes.IndexByte(whole, '\n') + 1
	for cut := range len(whole) {
		must(t, os.WriteFile(path, whole[:cut], 0o644))
		list, torn, err := r.Counters()
		if want := bytes.Count(whole[:cut], []byte{'\n'}); err != nil || len(list) != want || torn != (cut != 0 && cut != first) {
			t.Fatalf("cut at %d: %d lines, torn %v, %v", cut, len(list), torn, err)
		}
	}
	must(t, os.WriteFile(path, append(append([]byte{}, whole[:5]...), append([]byte{'\n'}, whole...)...), 0o644))
	if _, _, err := r.Counters(); err == nil || !strings.Contains(err.Error(), "line 1") {
		t.Errorf("%v", err)
	}

	path = filepath.Join(w.Dir(), LatencyFile)
	whole, err = os.ReadFile(path)
	must(t, err)
	must(t, os.WriteFile(path, whole[:len(whole)-10], 0o644))
	h, err := r.Histograms()
	if err != nil || h[Ack].Total.TotalCount() != 1 {
		t.Errorf("%v %v", h, err)
	}
	must(t, os.WriteFile(path, append(whole[:len(whole)-10], '\n'), 0o644))
	if _, err := r.Histograms(); err == nil || !strings.Contains(err.Error(), "line") {
		t.Errorf("%v", err)
	}
}

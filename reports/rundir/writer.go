package rundir

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// ErrExists: the directory is there already. A run directory is never reused.
var ErrExists = errors.New("the run directory exists already")

// WriteError says which file of a run directory could not be written, and what was kept of it.
type WriteError struct {
	Dir, File string
	Lines     int64 // whole lines that were written before; 0 for a document
	Err       error
}

func (e *WriteError) Error() string {
	cause := e.Err
	var pe *os.PathError
	if errors.As(cause, &pe) {
		cause = pe.Err // the path is named anyway
	}
	if e.Lines > 0 {
		return fmt.Sprintf("cannot write %s: %v; its first %d lines and the other files are kept, the run stays unfinished",
			filepath.Join(e.Dir, e.File), cause, e.Lines)
	}
	return fmt.Sprintf("cannot write %s: %v; the other files are kept, the run stays unfinished",
		filepath.Join(e.Dir, e.File), cause)
}

// Unwrap gives the cause, for example syscall.ENOSPC.
func (e *WriteError) Unwrap() error { return e.Err }

// textWidth is the width of summary.md, in columns: enough for every table in full.
const textWidth = 120

// Writer writes one run directory. The first write that fails is remembered: every later call returns the same error,
// and Finish refuses to call the run finished.
type Writer struct {
	dir  string
	open func(path string) (file, error)

	started time.Time     // the manifest's
	opened  time.Time     // with the monotonic clock, by which everything in the directory is timed
	ahead   time.Duration // opened − started

	mu       sync.Mutex
	manifest Manifest
	streams  map[string]*stream
	totals   map[string]*hdrhistogram.Histogram // by tag
	failed   *WriteError
	closed   bool
}

// file is what the writer needs of an *os.File; tests give files that fail.
type file interface {
	io.Writer
	Truncate(size int64) error
	Sync() error
	Close() error
}

// Create makes the directory (its parents, too) with the manifest, marked running, and the scenario's bytes. It fails
// with ErrExists if the directory is there.
func Create(dir string, m Manifest, scenario []byte) (*Writer, error) {
	return create(dir, m, scenario, func(path string) (file, error) {
		return os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o644)
	})
}

func create(dir string, m Manifest, scenario []byte, open func(string) (file, error)) (*Writer, error) {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return nil, fmt.Errorf("run directory: %w", err)
	}
	if err := os.Mkdir(dir, 0o755); errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("%s: %w", dir, ErrExists)
	} else if err != nil {
		return nil, fmt.Errorf("run directory: %w", err)
	}
	m.Format, m.Run, m.Status, m.Verdict = Format, filepath.Base(dir), Running, ""
	if m.Started.IsZero() {
		m.Started = time.Now()
	}
	m.Started = m.Started.UTC()
	w := &Writer{dir: dir, open: open, started: m.Started, opened: time.Now(), manifest: m, streams: map[string]*stream{}}
	w.ahead = w.opened.Sub(m.Started)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.document(ManifestFile, m); err != nil {
		return nil, err
	}
	if err := w.replace(ScenarioFile, scenario); err != nil {
		return nil, err
	}
	return w, nil
}

// Dir is the directory.
func (w *Writer) Dir() string { return w.dir }

// Now is the time on the run's own clock: started, and what has passed since by the monotonic clock. A wall clock that is
// set in mid-run does not move it.
func (w *Writer) Now() time.Time { return w.started.Add(w.since(time.Now())) }

// since is how long after started a moment is. A time that has no monotonic reading counts by its wall clock.
func (w *Writer) since(at time.Time) time.Duration { return at.Sub(w.opened) + w.ahead }

// Started is the moment from which the field t counts.
func (w *Writer) Started() time.Time { return w.started }

// Manifest changes the manifest and writes it anew, still as running.
func (w *Writer) Manifest(edit func(*Manifest)) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	edit(&w.manifest)
	w.manifest.Status, w.manifest.Verdict = Running, ""
	return w.document(ManifestFile, w.manifest)
}

// Counters appends a line; T follows from At.
func (w *Writer) Counters(l CounterLine) error {
	l.At, l.T = w.stamp(l.At)
	return w.line(CountersFile, l)
}

// Process appends a line; T follows from At.
func (w *Writer) Process(l ProcessLine) error {
	l.At, l.T = w.stamp(l.At)
	return w.line(ProcessesFile, l)
}

// Server appends a line; T follows from At.
func (w *Writer) Server(l ServerLine) error {
	l.At, l.T = w.stamp(l.At)
	return w.line(ServerFile, l)
}

// Event appends a line; T follows from At.
func (w *Writer) Event(l EventLine) error {
	l.At, l.T = w.stamp(l.At)
	return w.line(EventsFile, l)
}

// Latency appends what was recorded under the tag between start and end. An empty histogram leaves no line.
func (w *Writer) Latency(tag string, start, end time.Time, h *hdrhistogram.Histogram) error {
	if h.TotalCount() == 0 {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	first := w.streams[LatencyFile] == nil
	var b bytes.Buffer
	if first {
		if err := histogramHeader(&b, w.manifest.Started); err != nil {
			return fmt.Errorf("%s: %w", LatencyFile, err)
		}
	}
	if err := histogramLine(&b, tag, w.started.Add(w.since(start)), w.started.Add(w.since(end)), h); err != nil {
		return fmt.Errorf("%s: %w", LatencyFile, err)
	}
	w.keep(tag, h)
	return w.append(LatencyFile, b.Bytes())
}

// Predictions writes predictions.json.
func (w *Writer) Predictions(p Predictions) error { return w.locked(PredictionsFile, p) }

// Ledger writes ledger.json.
func (w *Writer) Ledger(l Ledger) error { return w.locked(LedgerFile, l) }

// Finish writes the summary, brings every file to the disk, and only then marks the run finished with the summary's
// verdict. edit (may be nil) completes the manifest. The writer is closed, whatever the outcome; if anything could not
// be written in the whole run, the error says what and the manifest still says running.
func (w *Writer) Finish(s Summary, edit func(*Manifest)) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	s.Run, s.Scenario = w.manifest.Run, w.manifest.Scenario
	if note := w.clockNote(time.Now()); note != "" {
		s.Notes = append(s.Notes, note)
	}
	if err := w.document(SummaryFile, s); err != nil {
		return errors.Join(err, w.close())
	}
	var text bytes.Buffer
	if err := RenderSummary(&text, s, textWidth); err != nil {
		return errors.Join(err, w.close())
	}
	if err := w.replace(SummaryTextFile, text.Bytes()); err != nil {
		return errors.Join(err, w.close())
	}
	if err := w.percentiles(); err != nil {
		return errors.Join(err, w.close())
	}
	if err := w.close(); err != nil {
		return err
	}
	w.closed = false // for one more document
	if edit != nil {
		edit(&w.manifest)
	}
	if w.manifest.Ended == nil {
		ended := w.Now()
		w.manifest.Ended = &ended
	}
	w.manifest.Status, w.manifest.Verdict = Finished, s.Verdict
	err := w.document(ManifestFile, w.manifest)
	w.closed = true
	return err
}

// Close gives the run up: what was written stays, the manifest says running. After Finish it does nothing.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.close()
}

func (w *Writer) stamp(at time.Time) (time.Time, float64) {
	if at.IsZero() {
		at = time.Now()
	}
	d := w.since(at)
	return w.started.Add(d), float64(d.Milliseconds()) / 1000
}

// clockNote says that the wall clock was set during the run, "" if it was not. w.mu must be held.
func (w *Writer) clockNote(now time.Time) string {
	set := now.Round(0).Sub(w.opened.Round(0)) - now.Sub(w.opened)
	if set.Abs() < time.Second {
		return "" // the clock was slewed, as usual
	}
	return fmt.Sprintf("the wall clock was set by %+.1f s during the run; all times here go on by the monotonic clock, as from started", set.Seconds())
}

func (w *Writer) line(name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.append(name, append(b, '\n'))
}

func (w *Writer) locked(name string, v any) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.document(name, v)
}

// Current is the manifest as it stands.
func (w *Writer) Current() Manifest {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.manifest
}

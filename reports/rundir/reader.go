package rundir

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Errors of a Reader.
var (
	// ErrNotARun: there is no readable manifest.
	ErrNotARun = errors.New("not a run directory")
	// ErrFormat: the directory was written in a format that this program does not know.
	ErrFormat = errors.New("unknown format of the run directory")
	// ErrUnfinished: the run is still going on or died; its data can be read, but it has no verdict and no summary.
	ErrUnfinished = errors.New("the run is not finished: it has no verdict")
)

// Reader reads one run directory.
type Reader struct {
	dir      string
	manifest Manifest
}

// Open reads the manifest. It fails with ErrNotARun or ErrFormat; an unfinished run opens.
func Open(dir string) (*Reader, error) {
	b, err := os.ReadFile(filepath.Join(dir, ManifestFile))
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", dir, ErrNotARun, err)
	}
	var version struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(b, &version); err != nil {
		return nil, fmt.Errorf("%s: %w: %s: %w", dir, ErrNotARun, ManifestFile, err)
	}
	if version.Format != Format {
		return nil, fmt.Errorf("%s: %w: it is %d, this program reads %d", dir, ErrFormat, version.Format, Format)
	}
	r := &Reader{dir: dir}
	if err := json.Unmarshal(b, &r.manifest); err != nil {
		return nil, fmt.Errorf("%s: %w: %s: %w", dir, ErrNotARun, ManifestFile, err)
	}
	if r.manifest.Status != Finished {
		r.manifest.Verdict = "" // whatever the file says
	}
	return r, nil
}

// Dir is the directory that was opened.
func (r *Reader) Dir() string { return r.dir }

// Manifest is as it was at Open. An unfinished run's has no verdict.
func (r *Reader) Manifest() Manifest { return r.manifest }

// Finished says whether the run has a verdict.
func (r *Reader) Finished() bool { return r.manifest.Status == Finished }

// Scenario gives the scenario's bytes as used.
func (r *Reader) Scenario() ([]byte, error) {
	b, err := os.ReadFile(filepath.Join(r.dir, ScenarioFile))
	if err != nil {
		return nil, fmt.Errorf("run directory: %w", err)
	}
	return b, nil
}

// Summary reads summary.json. It fails with ErrUnfinished before the run is finished, and when the summary's verdict is
// not the manifest's.
func (r *Reader) Summary() (Summary, error) {
	if !r.Finished() {
		return Summary{}, fmt.Errorf("%s: %w", r.dir, ErrUnfinished)
	}
	s, err := document[Summary](r, SummaryFile)
	if err == nil && s.Verdict != r.manifest.Verdict {
		return Summary{}, fmt.Errorf("%s: the manifest says %q and the summary %q", r.dir, r.manifest.Verdict, s.Verdict)
	}
	return s, err
}

// Ledger reads ledger.json.
func (r *Reader) Ledger() (Ledger, error) { return document[Ledger](r, LedgerFile) }

// Predictions reads predictions.json.
func (r *Reader) Predictions() (Predictions, error) { return document[Predictions](r, PredictionsFile) }

// Counters reads counters.ndjson; torn says that a last, incomplete line was left out. A file that is not there is empty.
func (r *Reader) Counters() (list []CounterLine, torn bool, err error) {
	return lines[CounterLine](r, CountersFile)
}

// Processes reads processes.ndjson, as Counters does.
func (r *Reader) Processes() (list []ProcessLine, torn bool, err error) {
	return lines[ProcessLine](r, ProcessesFile)
}

// Server reads server.ndjson, as Counters does.
func (r *Reader) Server() (list []ServerLine, torn bool, err error) {
	return lines[ServerLine](r, ServerFile)
}

// Events reads events.ndjson, as Counters does.
func (r *Reader) Events() (list []EventLine, torn bool, err error) {
	return lines[EventLine](r, EventsFile)
}

// Histograms reads latency.hlog: by tag, the whole run merged, and each interval in figures. A tag without samples is not
// in the map. A torn last line is left out.
func (r *Reader) Histograms() (map[string]*Series, error) {
	b, err := r.read(LatencyFile)
	if err != nil {
		return nil, err
	}
	return collect(b)
}

// read gives a file's bytes; one that is not there is empty.
func (r *Reader) read(name string) ([]byte, error) {
	b, err := os.ReadFile(filepath.Join(r.dir, name))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("run directory: %w", err)
	}
	return b, nil
}

func document[T any](r *Reader, name string) (v T, err error) {
	b, err := os.ReadFile(filepath.Join(r.dir, name))
	if err != nil {
		return v, fmt.Errorf("run directory: %w", err)
	}
	if err := json.Unmarshal(b, &v); err != nil {
		return v, fmt.Errorf("%s: %w", filepath.Join(r.dir, name), err)
	}
	return v, nil
}

func lines[T any](r *Reader, name string) (list []T, torn bool, err error) {
	b, err := r.read(name)
	if err != nil {
		return nil, false, err
	}
	for n := 1; len(b) > 0; n++ {
		line, rest, whole := bytes.Cut(b, []byte{'\n'})
		if !whole {
			return list, true, nil
		}
		b = rest
		var v T
		if err := json.Unmarshal(line, &v); err != nil {
			return list, false, fmt.Errorf("%s line %d: %w", filepath.Join(r.dir, name), n, err)
		}
		list = append(list, v)
	}
	return list, false, nil
}

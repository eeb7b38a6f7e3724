package rundir

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// SeriesFormat is the version of the documents of a series of runs.
const SeriesFormat = 1

// The document of a series, by its kind. It lies in the series' directory, beside the directories of its runs.
const (
	RepeatFile     = "repeat.json"
	ComparisonFile = "ab.json"
	SearchFile     = "search.json"
)

// SeriesHead is what the documents of all kinds of series have.
type SeriesHead struct {
	Format   int        `json:"format"`
	Kind     string     `json:"kind"` // repeat, ab, search
	Scenario string     `json:"scenario"`
	Started  time.Time  `json:"started"`
	Ended    *time.Time `json:"ended,omitempty"` // missing: it goes on, or died
	Complete bool       `json:"complete"`        // every run that was to be made was made
	Revision string     `json:"revision"`
	Command  []string   `json:"command,omitempty"`
	Verdict  Verdict    `json:"verdict,omitempty"` // the worst of the runs'; of a search see FORMAT.md
	Reasons  []string   `json:"reasons,omitempty"` // why the verdict is not "passed", or the series is not complete
}

// SeriesRun is one run of a series.
type SeriesRun struct {
	Run      string   `json:"run,omitempty"` // its directory's name; empty if it did not come to have one
	Seed     uint64   `json:"seed"`
	Settings []string `json:"settings,omitempty"` // what was set for this run, besides the command line's
	Verdict  Verdict  `json:"verdict"`
	Reasons  []string `json:"reasons,omitempty"`
	Counted  bool     `json:"counted"` // its figures were used: it was driven to its end, honestly
}

// Repeat is repeat.json.
type Repeat struct {
	SeriesHead
	Seeds   string         `json:"seeds"` // "derived": the i-th run has the first's seed + i; "same"
	Runs    []SeriesRun    `json:"runs"`
	Figures []RepeatFigure `json:"figures,omitempty"`
}

// IntervalRuns is how many runs, or pairs of runs, an interval needs: with two Student's t is 12.7, and the interval reaches from a tenth of
// the value to ten times it for runs that lie a third apart.
const IntervalRuns = 3

// RepeatFigure is one figure over the counted runs. Nil = no run had data, or for Low and High fewer than IntervalRuns had.
type RepeatFigure struct {
	Name   string     `json:"name"`
	Unit   string     `json:"unit,omitempty"`
	Values []*float64 `json:"values"` // by run, in the order of runs; nil = no data, or the run does not count
	Min    *float64   `json:"min"`
	Median *float64   `json:"median"`
	Max    *float64   `json:"max"`
	Spread *float64   `json:"spread"` // (max − min) ÷ median
	Low    *float64   `json:"low"`    // 95 % interval of the mean, of the geometric one where all values are above 0
	High   *float64   `json:"high"`
}

// Comparison is ab.json.
type Comparison struct {
	SeriesHead
	Variants [2]Variant         `json:"variants"`
	Pairs    int                `json:"pairs"`     // that were to be made
	AA       bool               `json:"aa"`        // both variants are the same: what differs is noise
	SamePlan bool               `json:"same_plan"` // in each pair both runs had the same users, conversations and arrivals
	Runs     []ComparisonRun    `json:"runs"`
	Figures  []ComparisonFigure `json:"figures,omitempty"`
}

// Variant is one side of a comparison.
type Variant struct {
	Name     string   `json:"name"`
	Settings []string `json:"settings,omitempty"`
	Targets  []string `json:"targets,omitempty"`
}

// ComparisonRun is a run of one variant, in one pair. Pairs count from 1.
type ComparisonRun struct {
	SeriesRun
	Variant string `json:"variant"`
	Pair    int    `json:"pair"`
}

// The results of a figure's comparison: what the second variant is against the first.
const (
	Better    = "better"
	Worse     = "worse"
	Different = "different" // of a figure that is neither good nor bad
	NoneSeen  = "no difference"
	FewPairs  = "too few pairs" // for a verdict: fewer than IntervalRuns had data
)

// ComparisonFigure is the paired difference of one figure. Nil = no pair had data, or for Mean, Low, High and P fewer than
// IntervalRuns had.
type ComparisonFigure struct {
	Name     string   `json:"name"`
	Unit     string   `json:"unit,omitempty"`
	Pairs    int      `json:"pairs"` // that had data on both sides
	A        *float64 `json:"a"`     // median of the first variant
	B        *float64 `json:"b"`     // and of the second
	Relative bool     `json:"ratio"` // a difference is a ratio less one, else an amount in the unit
	// Differences of the second against the first, pair by pair; nil = that pair has no data, or does not count.
	Differences []*float64 `json:"differences"`
	Mean        *float64   `json:"mean"`   // difference of the second against the first
	Low         *float64   `json:"low"`    // its 95 % interval
	High        *float64   `json:"high"`   //
	P           *float64   `json:"p"`      // probability of as large a difference, were there none
	Result      string     `json:"result"` // better, worse, different, no difference, too few pairs, no data
}

// SearchDocument is search.json.
type SearchDocument struct {
	SeriesHead
	Rate       float64      `json:"rate"`       // messages/s of the scenario, multiple 1
	Resolution float64      `json:"resolution"` // how far apart the answer's ends may be, as a share
	Probes     []Probe      `json:"probes"`
	Answer     SearchAnswer `json:"answer"`
}

// The outcomes of a probe.
const (
	ProbeHeld      = "held"
	ProbeFailed    = "failed"
	ProbeGenerator = "generator" // the generator could not drive the load: the system was not tested
	ProbeNone      = "none"      // it was interrupted, or there was an error
)

// Probe is one run of a search.
type Probe struct {
	SeriesRun
	Multiple float64 `json:"multiple"` // of the scenario's rate
	Rate     float64 `json:"rate"`     // messages/s asked for
	Long     bool    `json:"long"`     // with the scenario's own phases
	Outcome  string  `json:"outcome"`
	Limits   []Limit `json:"limits,omitempty"` // what was used how far, the fullest first
}

// Limit is one resource of a run in its measured window.
type Limit struct {
	Resource string  `json:"resource"`
	Value    float64 `json:"value"`
	Bound    float64 `json:"bound"`
	Unit     string  `json:"unit"`
	Used     float64 `json:"used"` // value ÷ bound
	Note     string  `json:"note,omitempty"`
}

// SearchAnswer is what a search found. Nil = there is none.
type SearchAnswer struct {
	Held       *float64 `json:"held"` // highest multiple that held
	HeldRate   *float64 `json:"held_rate"`
	Confirmed  bool     `json:"confirmed"` // by a long run
	Failed     *float64 `json:"failed"`    // lowest multiple that did not
	FailedRate *float64 `json:"failed_rate"`
	By         string   `json:"by,omitempty"`       // outcome of the probe at failed
	Limiting   []Limit  `json:"limiting,omitempty"` // what was full there, what is blamed first
	Text       string   `json:"text"`               // the same in a sentence
}

// WriteSeries writes a series' document by rename: it is there in full or not at all.
func WriteSeries(dir, name string, document any) error {
	b, err := json.MarshalIndent(document, "", "  ")
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	aside := filepath.Join(dir, "."+name+".part")
	if err := os.WriteFile(aside, append(b, '\n'), 0o644); err != nil {
		return fmt.Errorf("series of runs: %w", err)
	}
	if err := os.Rename(aside, filepath.Join(dir, name)); err != nil {
		return fmt.Errorf("series of runs: %w", err)
	}
	return nil
}

// ReadSeries reads the document of that name back into v, a pointer to a Repeat, Comparison or SearchDocument. It fails
// with ErrFormat for a version that this program does not know.
func ReadSeries(dir, name string, v any) error {
	file := filepath.Join(dir, name)
	b, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("series of runs: %w", err)
	}
	var version struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(b, &version); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if version.Format != SeriesFormat {
		return fmt.Errorf("%s: %w: it is %d, this program reads %d", file, ErrFormat, version.Format, SeriesFormat)
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

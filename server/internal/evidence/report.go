package evidence

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
)

// Load reads the records that the checks of a run left in dir, by id.
func Load(dir string) (map[string]*Record, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	records := make(map[string]*Record, len(names))
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		r := new(Record)
		if err := json.Unmarshal(text, r); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		records[r.ID] = r
	}
	return records, nil
}

// Write makes a file a chapter in dir, of the records in the order of the catalogue; files of chapters that have none are
// removed, so that dir holds one run's evidence. revision is that of the program.
func Write(dir string, records map[string]*Record, revision string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	chapters := map[string][]*Record{}
	for _, e := range catalogue {
		chapter := Chapter(e.ID)
		if r := records[e.ID]; r != nil {
			r.Revision = revision
			chapters[chapter] = append(chapters[chapter], r)
		} else if chapters[chapter] == nil {
			chapters[chapter] = []*Record{}
		}
	}
	for chapter, list := range chapters {
		name := filepath.Join(dir, chapter+".json")
		if len(list) == 0 {
			if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			continue
		}
		text, err := json.MarshalIndent(list, "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(name, append(text, '\n'), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Verdict is what a run's records say of the catalogue.
type Verdict struct {
	Passed, Observed, Failed, Unproven int // Unproven: the control was not seen to fail
	Missing                            int // checks that should have run and did not
	NotRun                             int // checks that cannot be run on this machine
	Later                              int // checks that are not built yet
}

// Good says whether everything that should pass did, with its control seen to fail.
func (v Verdict) Good() bool { return v.Failed == 0 && v.Unproven == 0 && v.Missing == 0 }

func (v Verdict) String() string {
	return fmt.Sprintf("%d passed, %d observed, %d failed, %d whose control was not seen to fail, %d did not run, %d cannot be run here, %d are not built yet",
		v.Passed, v.Observed, v.Failed, v.Unproven, v.Missing, v.NotRun, v.Later)
}

// standing is a check's outcome in the words of the table. A check that is not built yet may run nevertheless.
func standing(e Entry, r *Record) string {
	switch {
	case r == nil && e.Later != "":
		return "not built: " + e.Later
	case r == nil:
		return "did not run"
	case r.NotRun != "":
		return "not run: " + r.NotRun
	case !r.Pass:
		return "FAILED"
	case !r.Good():
		return "PASSED, AND ITS CONTROL TOO"
	case !r.Judged:
		return "observed"
	}
	return "passed"
}

// Judge counts the outcomes.
func Judge(records map[string]*Record) (v Verdict) {
	for _, e := range catalogue {
		switch r := records[e.ID]; {
		case r == nil && e.Later != "":
			v.Later++
		case r == nil:
			v.Missing++
		case r.NotRun != "":
			v.NotRun++
		case !r.Pass:
			v.Failed++
		case !r.Good():
			v.Unproven++
		case !r.Judged:
			v.Observed++
		default:
			v.Passed++
		}
	}
	return v
}

// PrintChecks prints what each check expected and observed, and what its control showed.
func PrintChecks(w io.Writer, records map[string]*Record) {
	for _, e := range catalogue {
		r := records[e.ID]
		mark := ""
		if e.Document {
			mark = " *"
		}
		fmt.Fprintf(w, "%s%s: %s\n", e.ID, mark, standing(e, r))
		if r == nil {
			continue
		}
		line := func(name, text string) {
			if text != "" {
				fmt.Fprintf(w, "    %-9s %s\n", name, text)
			}
		}
		line("expected", r.Expected)
		line("observed", r.Observed)
		line("measured", strings.Join(r.Measured, "; "))
		line("document", r.Document)
		if c := r.Control; c != nil {
			how := "fails, as it must"
			if !c.Failed {
				how = "DOES NOT FAIL"
			}
			line("control", fmt.Sprintf("%s: %s: %s", c.Is, how, c.Observed))
		}
	}
}

// PrintMatrix prints, for each invariant, the checks that prove it, where their evidence stands, and how it stands.
func PrintMatrix(w io.Writer, records map[string]*Record) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\tinvariant\tstanding\tevidence\tchecks")
	for _, inv := range Invariants {
		var checks, files []string
		var passed, failed, missing int
		for _, e := range catalogue {
			if !slices.Contains(e.Proves, inv.ID) {
				continue
			}
			s := standing(e, records[e.ID])
			switch {
			case s == "passed" || s == "observed":
				passed++
			case records[e.ID] == nil || records[e.ID].NotRun != "":
				missing++
			default:
				failed++
			}
			if records[e.ID] != nil {
				if file := Chapter(e.ID) + ".json"; !slices.Contains(files, file) {
					files = append(files, file)
				}
			}
			if s != "passed" {
				s = fmt.Sprintf("%s (%s)", e.ID, s)
			} else {
				s = e.ID
			}
			checks = append(checks, s)
		}
		how := "passed"
		switch {
		case failed > 0:
			how = "FAILED"
		case passed == 0:
			how = "not run"
		case missing > 0:
			how = "passed in part"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", inv.ID, inv.Says, how, cmp.Or(strings.Join(files, " "), "–"), strings.Join(checks, ", "))
	}
	table.Flush() // the error is that of w, which the caller sees as well
}

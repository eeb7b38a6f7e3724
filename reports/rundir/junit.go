package rundir

import (
	"encoding/xml"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// promise is one thing that the ledger proves: its name, and how many times it was broken.
type promise struct {
	name, what string
	count      int64
	ofDelivery bool // needs the settle phase in full: before, what is missing may still come
}

// promises are all that the ledger proves, in the order of summary.json.
func (l LedgerSummary) promises() []promise {
	return []promise{
		{"lost", "no message is lost", l.Lost, true},
		{"duplicated", "no message is applied twice", l.Duplicated, false},
		{"reordered", "no message is applied after a later one", l.Reordered, false},
		{"leaked", "no message is applied by a device that must not see it", l.Leaked, false},
		{"mismatched", "no message differs from the log", l.Mismatched, false},
		{"foreign", "no message is applied that is in no log", l.Foreign, false},
		{"unlogged", "no message is confirmed that is in no log", l.Unlogged, false},
		{"logged_twice", "no message is in the log twice", l.LoggedTwice, false},
		{"log_gaps", "no seq is missing from the log", l.LogGaps, false},
		{"regressed", "no device is told less than had been confirmed as delivered to it", l.Regressed, false},
	}
}

// The elements of a JUnit report, with what the common readers (Jenkins, GitLab, GitHub's reporters) take from it.
type (
	junitSuites struct {
		XMLName  xml.Name     `xml:"testsuites"`
		Name     string       `xml:"name,attr"`
		Tests    int          `xml:"tests,attr"`
		Failures int          `xml:"failures,attr"`
		Errors   int          `xml:"errors,attr"`
		Skipped  int          `xml:"skipped,attr"`
		Suites   []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name       string          `xml:"name,attr"`
		Tests      int             `xml:"tests,attr"`
		Failures   int             `xml:"failures,attr"`
		Errors     int             `xml:"errors,attr"`
		Skipped    int             `xml:"skipped,attr"`
		Time       string          `xml:"time,attr"`
		Timestamp  string          `xml:"timestamp,attr,omitempty"`
		Hostname   string          `xml:"hostname,attr,omitempty"`
		Properties []junitProperty `xml:"properties>property"`
		Cases      []junitCase     `xml:"testcase"`
	}
	junitProperty struct {
		Name  string `xml:"name,attr"`
		Value string `xml:"value,attr"`
	}
	junitCase struct {
		Class   string        `xml:"classname,attr"`
		Name    string        `xml:"name,attr"`
		Time    string        `xml:"time,attr"`
		Skipped *junitOutcome `xml:"skipped"`
		Error   *junitOutcome `xml:"error"`
		Failure *junitOutcome `xml:"failure"`
	}
	junitOutcome struct {
		Message string `xml:"message,attr"`
		Type    string `xml:"type,attr,omitempty"`
		Text    string `xml:",chardata"`
	}
)

// JUnit writes runs as a JUnit report: a suite a run, a case each criterion, each promise of delivery, and the run itself.
func JUnit(w io.Writer, runs ...Run) error {
	all := junitSuites{Name: "loadgen"}
	for _, r := range runs {
		s := r.suite()
		all.Tests, all.Failures, all.Errors, all.Skipped = all.Tests+s.Tests, all.Failures+s.Failures, all.Errors+s.Errors, all.Skipped+s.Skipped
		all.Suites = append(all.Suites, s)
	}
	b, err := xml.MarshalIndent(all, "", "  ")
	if err != nil {
		return fmt.Errorf("JUnit: %w", err)
	}
	_, err = fmt.Fprintf(w, "%s%s\n", xml.Header, b)
	return err
}

// Run is a run that has ended: what its manifest and its summary say.
type Run struct {
	Manifest Manifest
	Summary  Summary
}

func (r Run) suite() junitSuite {
	m, s := r.Manifest, r.Summary
	suite := junitSuite{Name: s.Run, Time: "0"}
	if !m.Started.IsZero() {
		suite.Timestamp = m.Started.UTC().Format("2006-01-02T15:04:05")
	}
	if m.Ended != nil {
		suite.Time = strconv.FormatFloat(m.Ended.Sub(m.Started).Seconds(), 'f', 3, 64)
	}
	if len(m.Hosts) > 0 {
		suite.Hostname = m.Hosts[0].Name
	}
	suite.Properties = []junitProperty{{"scenario", s.Scenario}, {"verdict", string(s.Verdict)}, {"seed", strconv.FormatUint(m.Seed, 10)},
		{"revision", m.Revision}, {"target", strings.Join(m.Target.URLs, ",")}}
	class := "loadgen." + s.Scenario
	suite.Cases = append(suite.Cases, runCase(class, s))
	for _, c := range s.Criteria {
		suite.Cases = append(suite.Cases, criterionCase(class+".criteria", c))
	}
	for _, p := range s.Ledger.promises() {
		suite.Cases = append(suite.Cases, promiseCase(class+".promises", p, s.Ledger))
	}
	for _, c := range suite.Cases {
		suite.Tests++
		switch {
		case c.Failure != nil:
			suite.Failures++
		case c.Error != nil:
			suite.Errors++
		case c.Skipped != nil:
			suite.Skipped++
		}
	}
	return suite
}

// runCase says whether the run is one that counts: what a criterion or a promise has to say has a case of its own.
func runCase(class string, s Summary) junitCase {
	c := junitCase{Class: class, Name: "the run counts", Time: "0"}
	switch s.Verdict {
	case Passed, Missed, Broken:
	default:
		why := strings.Join(s.Reasons, "; ")
		c.Error = &junitOutcome{Message: string(s.Verdict) + ": " + why, Type: string(s.Verdict), Text: why}
	}
	return c
}

func criterionCase(class string, c Criterion) junitCase {
	out := junitCase{Class: class, Name: strings.TrimSpace(fmt.Sprintf("%s %s %s %s", c.Metric, c.Op, figure(c.Limit), c.Unit)), Time: "0"}
	value := NoData
	if c.Value != nil {
		value = strings.TrimSpace(figure(*c.Value) + " " + c.Unit)
	}
	if c.Result == Met || c.Result == Unlimited {
		return out
	}
	text := fmt.Sprintf("%s is %s, the limit is %s", c.Metric, value, strings.TrimSpace(c.Op+" "+figure(c.Limit)+" "+c.Unit))
	out.Failure = &junitOutcome{Message: text, Type: c.Result, Text: text}
	return out
}

func promiseCase(class string, p promise, l LedgerSummary) junitCase {
	out := junitCase{Class: class, Name: p.what, Time: "0"}
	switch {
	case l.NotChecked.Has(p.name):
		out.Skipped = &junitOutcome{Message: NotCheckedText + ": nothing that the run could see tells"}
	case p.count > 0:
		text := fmt.Sprintf("%s: %d, the limit is 0 (ledger.json names them)", p.name, p.count)
		out.Failure = &junitOutcome{Message: text, Type: string(Broken), Text: text}
	case p.ofDelivery && !l.Settled:
		out.Skipped = &junitOutcome{Message: "the run did not settle in full: what is missing may have been on its way"}
	}
	return out
}

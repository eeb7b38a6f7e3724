package rundir

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// NotCheckedText stands in the place of a figure of which nothing tells that the run could see.
const NotCheckedText = "not checked"

// Names is a list of names with a space between two, so that what holds it can be compared.
type Names string

// Has says whether a name is in the list.
func (n Names) Has(name string) bool { return slices.Contains(strings.Fields(string(n)), name) }

func (n *Names) add(names ...string) {
	*n = Names(strings.Join(append(strings.Fields(string(*n)), names...), " "))
}

// NotCheck marks figures as not checked. They are named as in summary.json: "ledger.reordered", "metrics.ack", "effective_ack".
func (s *Summary) NotCheck(names []string) {
	for _, name := range names {
		if of, ok := strings.CutPrefix(name, "ledger."); ok {
			s.Ledger.NotChecked.add(of)
			continue
		}
		if of, ok := strings.CutPrefix(name, "metrics."); ok {
			delete(s.Metrics, of)
			name = of
		}
		s.NotChecked.add(name)
	}
}

// MarshalJSON implements json.Marshaler.
func (l LedgerSummary) MarshalJSON() ([]byte, error) {
	type plain LedgerSummary
	b, err := json.Marshal(plain(l))
	return unknown(b, l.NotChecked), err
}

// UnmarshalJSON implements json.Unmarshaler.
func (l *LedgerSummary) UnmarshalJSON(b []byte) error {
	type plain LedgerSummary
	b, names, err := known(b)
	if err != nil {
		return err
	}
	err = json.Unmarshal(b, (*plain)(l))
	l.NotChecked = ""
	l.NotChecked.add(names...)
	return err
}

// ledgerLists are what a Ledger has beyond its summary.
type ledgerLists struct {
	Counts   map[string]int64 `json:"counts,omitempty"`
	Culprits []Culprit        `json:"culprits,omitempty"`
	Notes    []string         `json:"notes,omitempty"`
}

// MarshalJSON implements json.Marshaler.
func (l Ledger) MarshalJSON() ([]byte, error) {
	type plain LedgerSummary
	b, err := json.Marshal(struct {
		plain
		ledgerLists
	}{plain(l.LedgerSummary), ledgerLists{l.Counts, l.Culprits, l.Notes}})
	return unknown(b, l.NotChecked), err
}

// UnmarshalJSON implements json.Unmarshaler.
func (l *Ledger) UnmarshalJSON(b []byte) error {
	var lists ledgerLists
	if err := json.Unmarshal(b, &lists); err != nil {
		return err
	}
	l.Counts, l.Culprits, l.Notes = lists.Counts, lists.Culprits, lists.Notes
	return l.LedgerSummary.UnmarshalJSON(b)
}

// MarshalJSON implements json.Marshaler.
func (s Summary) MarshalJSON() ([]byte, error) {
	type plain Summary
	b, err := json.Marshal(plain(s))
	if s.NotChecked == "" || err != nil {
		return b, err
	}
	extra := map[string]string{}
	for _, name := range strings.Fields(string(s.NotChecked)) {
		if name != "effective_ack" {
			extra[name] = NotCheckedText
		}
	}
	more, err := json.Marshal(extra)
	if err == nil && len(extra) > 0 { // put before the first of the metrics there are
		open := []byte(`"metrics":{`)
		rest := append(slices.Clone(open), bytes.Trim(more, "{}")...)
		if len(s.Metrics) > 0 {
			rest = append(rest, ',')
		}
		b = bytes.Replace(b, open, rest, 1)
	}
	return unknown(b, s.NotChecked), err
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *Summary) UnmarshalJSON(b []byte) error {
	type plain Summary
	b, names, err := known(b)
	if err != nil {
		return err
	}
	var of struct {
		Metrics json.RawMessage `json:"metrics"`
	}
	if err := json.Unmarshal(b, &of); err != nil {
		return err
	}
	if len(of.Metrics) > 0 && of.Metrics[0] == '{' {
		metrics, more, err := known(of.Metrics)
		if err != nil {
			return err
		}
		if len(more) > 0 {
			b, names = bytes.Replace(b, of.Metrics, metrics, 1), append(names, more...)
		}
	}
	err = json.Unmarshal(b, (*plain)(s))
	s.NotChecked = ""
	s.NotChecked.add(names...)
	return err
}

// unknown puts the text in the place of the zeros of an object that was just written.
func unknown(b []byte, names Names) []byte {
	for _, name := range strings.Fields(string(names)) {
		b = bytes.Replace(b, []byte(`"`+name+`":0`), []byte(`"`+name+`":"`+NotCheckedText+`"`), 1)
	}
	return b
}

// known takes the fields out of an object that are not checked, and names them.
func known(b []byte) (rest []byte, names []string, err error) {
	if !bytes.Contains(b, []byte(NotCheckedText)) {
		return b, nil, nil
	}
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(b, &fields); err != nil {
		return nil, nil, err
	}
	for name, v := range fields {
		if string(v) == `"`+NotCheckedText+`"` {
			names = append(names, name)
			delete(fields, name)
		}
	}
	slices.Sort(names)
	rest, err = json.Marshal(fields)
	return rest, names, err
}

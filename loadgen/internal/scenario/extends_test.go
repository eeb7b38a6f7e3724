package scenario

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// files writes scenario files into a folder of the test's own and gives the path of the first name.
func files(t *testing.T, first string, all map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range all {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, first)
}

// A file takes all of what it extends, and what it says comes over it: single fields one by one, lists as a whole, -set
// last. Name and description are its own. What is kept with the run needs none of the other files.
func TestExtends(t *testing.T) {
	file := files(t, "c.yaml", map[string]string{
		"a.yaml": "extends: baseline\ndescription: x\nload: {group_rate: 100/s, burst: 8}\nphases: {measure: 20s}\n" +
			"faults:\n  - {at: 1s, do: cut-devices}\n  - {at: 2s, do: cut-listeners}\n",
		"b.yaml": "name: other\nextends: a\nload: {burst: 4}\n",
		"c.yaml": "extends: b.yaml\nfaults:\n  - {at: 3s, do: cut-listeners}\n",
	})
	s, err := Load(file, "phases.warmup=1s", "faults[0].at=4s")
	if err != nil {
		t.Fatal(err)
	}
	if s.Name != "c" || s.Description != "" {
		t.Errorf("name %q, description %q", s.Name, s.Description)
	}
	if l := s.Load; l.GroupRate != 100 || l.DirectRate != 750 || l.Burst != 4 {
		t.Errorf("load %+v", l)
	}
	if s.Phases.Measure != 20*time.Second || s.Phases.Warmup != time.Second || len(s.Criteria) != 4 {
		t.Errorf("phases %+v, %d criteria", s.Phases, len(s.Criteria))
	}
	if len(s.Faults) != 1 || s.Faults[0].Do != CutListeners || s.Faults[0].At != 4*time.Second {
		t.Errorf("faults %v", s.Faults)
	}
	kept, err := s.Bytes()
	if err != nil || !strings.HasPrefix(string(kept), "# extends b\n# extends a\n# extends baseline\n# -set phases.warmup=1s\n") {
		t.Fatalf("%v\n%s", err, kept)
	}
	again, err := Parse("kept.yaml", kept)
	if err != nil {
		t.Fatalf("%v\n%s", err, kept)
	}
	again.source, s.source, s.bases, s.overrides = nil, nil, nil, nil
	if !reflect.DeepEqual(again, s) {
		t.Errorf("kept as\n%+v\nwant\n%+v", again, s)
	}
}

// What is wrong is told with the file, line and caret where it stands, whichever file that is.
func TestExtendsRefuses(t *testing.T) {
	chain := map[string]string{"f9.yaml": "seed: 2\n"}
	for i := range 9 {
		chain[fmt.Sprintf("f%d.yaml", i)] = fmt.Sprintf("extends: f%d\n", i+1)
	}
	type of map[string]string
	for _, c := range []struct {
		all  of
		want string
	}{
		{of{"f0.yaml": "extends: basline\n"}, `f0.yaml:1:10: extends: no shipped scenario and no file beside this one is called "basline"; did you mean "baseline"?
    1 | extends: basline
      |          ^`},
		{of{"f0.yaml": "extends: f1\n", "f1.yaml": "seed: 3\nextends: f0\n"}, "f1.yaml:2:10: extends: DIR/f0.yaml goes back to itself: DIR/f0.yaml → DIR/f1.yaml → DIR/f0.yaml"},
		{of{"f0.yaml": "extends: f0\n"}, "f0.yaml:1:10: extends: DIR/f0.yaml goes back to itself"},
		{chain, "f8.yaml:1:10: extends: more than 8 files stand behind one another: DIR/f0.yaml → DIR/f1.yaml"},
		{of{"f0.yaml": "extends: ../x\n"}, `f0.yaml:1:10: extends: "../x" is a path; extends takes the name`},
		{of{"f0.yaml": "extends: [a, b]\n"}, "f0.yaml:1:10: extends takes a single value"},
		{of{"f0.yaml": "extends:\nseed: 1\n"}, "f0.yaml:1:1: extends has no value"},
		{of{"f0.yaml": "extends: f1\n", "f1.yaml": "# later\n"}, "f1.yaml: the file is empty"},
		{of{"f0.yaml": "extends: f1\n", "f1.yaml": "load: {seed: 1, brst: 2}\n"}, `f1.yaml:1:17: unknown field "brst" in load; did you mean "burst"?
    1 | load: {seed: 1, brst: 2}
      |                 ^`},
		{of{"f0.yaml": "extends: f1\nseed: 4\n", "f1.yaml": "load: {burst: 0}\n"}, `f1.yaml:1:15: load.burst: must be at least 1, and is 0
    1 | load: {burst: 0}
      |               ^`},
		{of{"f0.yaml": "extends: f1\nserver: {grace: 2s}\n", "f1.yaml": "devices: {ack_delay: 3s}\n"}, "f0.yaml:2:17: server.grace: grace 2s must exceed devices.ack_delay 3s"},
	} {
		file := files(t, "f0.yaml", c.all)
		_, err := Load(file)
		if got := strings.ReplaceAll(fmt.Sprint(err), filepath.Dir(file), "DIR"); err == nil || !strings.Contains(got, c.want) {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
	if _, err := Load("baseline", "extends=smoke"); err == nil || !strings.Contains(err.Error(), "extends stands in the file") {
		t.Errorf("-set extends: %v", err)
	}
}

// A shipped scenario extends shipped ones only: it must mean the same wherever it is run.
func TestShippedExtendsShipped(t *testing.T) {
	if _, err := (source{name: "x.yaml", shipped: true}).find("extends_test.go"); err == nil {
		t.Error("a shipped scenario takes a file from the working directory")
	}
	if s, err := (source{name: "x.yaml"}).find("baseline"); err != nil || !s.shipped {
		t.Errorf("%+v, %v", s, err)
	}
}

package scenario

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"imbench/loadgen/internal/payload"
	"imbench/server/wire"
)

func TestBadFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no test files", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			_, err := Load(file)
			var bad *Error
			if !errors.As(err, &bad) {
				t.Fatalf("got %v, want an *Error", err)
			}
			golden(t, strings.TrimSuffix(file, ".yaml")+".txt", err.Error()+"\n")
		})
	}
}

func TestBaselineIsTheDocuments(t *testing.T) {
	s, err := Load("baseline")
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(s.Population, Population{Users: 9000, TwoDeviceUsers: 5400, ConnectedDevices: 5040, GroupsPerUser: 5, GroupSize: 30, DirectsPerUser: 10}) {
		t.Errorf("population %+v", s.Population)
	}
	if !reflect.DeepEqual(s.Load, Traffic{GroupRate: 500, DirectRate: 750, Arrivals: Poisson, ActiveGroups: 250, ActiveDirects: 375, Burst: 16, BodyBytes: 200}) {
		t.Errorf("load %+v", s.Load)
	}
	if s.Phases != (Phases{Warmup: 20 * time.Second, Measure: time.Minute, Tail: 5 * time.Second, Settle: 15 * time.Second}) {
		t.Errorf("phases %+v", s.Phases)
	}
	if d := s.Devices; d.AckEvery != 4 || d.AckDelay != 2500*time.Millisecond || d.Loss != 0.03 || d.ReadingShare != 1 {
		t.Errorf("devices %+v", d)
	}
	want := "-grace 4s -sweep 1s -queue 64 -hint-above 200 -open-only-above 1000 -hint-window 200ms -drain 2s -admission 1000 -send-linger 20ms -ack-window 50ms"
	if got := strings.Join(s.GatewayArgs(), " "); got != want {
		t.Errorf("gateway arguments\n got %s\nwant %s", got, want)
	}
	var criteria []string
	for _, c := range s.Criteria {
		criteria = append(criteria, c.String())
	}
	if got := strings.Join(criteria, "; "); got != "achieved_rate ≥ 99%; send.intended.p99 ≤ 100ms; deliver.p99 ≤ 250ms; deliver.repaired.p99 ≤ 6.5s" {
		t.Errorf("criteria %s", got)
	}
	if s.Criteria[0].Min.Value != 0.99 || s.Criteria[3].Max.Value != 6500 {
		t.Errorf("bounds %v and %v, want 0.99 and 6500 ms", s.Criteria[0].Min.Value, s.Criteria[3].Max.Value)
	}
}

// TestGatewayArgsNever: "never" and a rate below one a second are told in words that the server's flags know.
func TestGatewayArgsNever(t *testing.T) {
	s, err := Load("baseline", "delivery.hint_above=0", "delivery.open_only_above=0", "server.admission=30/min")
	if err != nil {
		t.Fatal(err)
	}
	const want = "-hint-above 1073741824 -open-only-above 1073741824 -hint-window 200ms -drain 2s -admission 1 "
	if got := strings.Join(s.GatewayArgs(), " "); !strings.Contains(got, want) {
		t.Errorf("%s\nlacks %s", got, want)
	}
}

// A file that gives nothing is one that was not written, and no wish for a run of defaults.
func TestAnEmptyFileIsRefused(t *testing.T) {
	for _, src := range []string{"", "\n\n", "# nothing\n", "---\n", "---\n# nothing\n...\n", "{}\n", "null\n"} {
		_, err := Parse("x.yaml", []byte(src), "seed=2")
		if err == nil || !strings.Contains(err.Error(), "x.yaml: the file is empty") {
			t.Errorf("%q: %v", src, err)
		}
	}
}

// The defaults are the baseline, as README.md says; only the criteria are not.
func TestTheDefaultsAreTheBaselinesLoad(t *testing.T) {
	base, err := Load("baseline")
	if err != nil {
		t.Fatal(err)
	}
	empty, err := Parse("baseline.yaml", []byte("seed: 1\n"))
	if err != nil {
		t.Fatal(err)
	}
	empty.Description, empty.Criteria, empty.source = base.Description, base.Criteria, base.source
	if !reflect.DeepEqual(base, empty) {
		t.Errorf("defaults differ from the baseline:\n%+v\n%+v", empty, base)
	}
}

func TestShippedScenariosLoad(t *testing.T) {
	list, err := List()
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range Names() {
		if list[i].Name != name || list[i].Description == "" {
			t.Errorf("%s.yaml: name %q, description %q", name, list[i].Name, list[i].Description)
		}
	}
}

// A run without criteria on latency may still miss one on counts, and nothing else.
func TestSmokeHasNoLatencyCriteria(t *testing.T) {
	s, err := Load("smoke")
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Criteria) == 0 {
		t.Error("no criteria")
	}
	for _, c := range s.Criteria {
		if _, _, latency := c.Latency(); latency {
			t.Errorf("%s is on latency", c)
		}
	}
}

func TestBodyBoundsAreTheWires(t *testing.T) {
	f, _ := find(fields(reflect.TypeFor[Traffic]()), "body_bytes")
	for size, ok := range map[int]bool{payload.MinSize - 1: false, payload.MinSize: true, wire.MaxBody: true, wire.MaxBody + 1: false} {
		if got := f.outside(reflect.ValueOf(size)); (got == "") != ok {
			t.Errorf("body_bytes %d: %q", size, got)
		}
	}
}

func TestUnknownScenarioNamesTheNearest(t *testing.T) {
	_, err := Load("basline")
	if !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), `did you mean "baseline"?`) {
		t.Errorf("got %v", err)
	}
	if _, err = Load(t.TempDir()); err == nil || errors.Is(err, ErrUnknown) {
		t.Errorf("a folder: got %v", err)
	}
}

func TestSet(t *testing.T) {
	for _, c := range []struct{ arg, want string }{
		{"load.group_rate=250/s", ""},
		{"load.group_rate=15000/min", ""},
		{"devices.ack_delay=1.5s", ""},
		{"seed=18446744073709551615", ""},
		{"allow_environments=lab,embedded", ""},
		{"delivery.mode=pull", ""},
		{"load.group_rte=5", `-set load.group_rte=5: unknown field "load.group_rte"; did you mean "load.group_rate"?`},
		{"load.group_rate.x=5", `-set load.group_rate.x=5: unknown field "load.group_rate.x"; did you mean "load.group_rate"?`},
		{"load.burst", `-set load.burst: must look like load.group_rate=250/s`},
		{"load.burst=2.5", `-set load.burst=2.5: load.burst: "2.5" is not a whole number`},
		{"devices.loss=2", `-set devices.loss=2: must be at most 1, and is 2`},
		{"faults[0].at=1s", `"faults[0].at" names no field of an item of faults: want for example faults[0].at, counted from 0`},
		{"criteria[1].max=90ms", ""},
		{"criteria[4].max=90ms", `"criteria[4].max" names no field of an item of criteria`},
		{"criteria[x].max=90ms", `"criteria[x].max" names no field of an item of criteria`},
		{"criteria[1]=90ms", `"criteria[1]" names no field of an item of criteria`},
		{"population.users=100", "population.two_device_users: 5400 users with two devices, but only 100 users"},
		{"devices.ack_delay=5s", "server.grace: grace 4s must exceed devices.ack_delay 5s"},
	} {
		_, err := Load("baseline", c.arg)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.arg, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s:\n got %v\nwant %s", c.arg, err, c.want)
		}
	}
	for _, path := range []string{"load", "criteria", ""} {
		if _, err := Load("baseline", path+"=1"); err == nil || !strings.Contains(err.Error(), "unknown field") {
			t.Errorf("-set %s=1: got %v", path, err)
		}
	}
}

func TestBytesAreTheFileUnlessSomethingWasSet(t *testing.T) {
	s, err := Load("smoke")
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile("../../../scenarios/smoke.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := s.Bytes(); err != nil || string(got) != string(file) {
		t.Errorf("without -set: %v\n%s", err, got)
	}
	s.SetSeed(7)
	if got, err := s.Bytes(); err != nil || !strings.HasPrefix(string(got), "# -set seed=7\nname: \"smoke\"\n") {
		t.Errorf("with a seed: %v\n%s", err, got)
	}
}

// Whatever is set, the bytes kept with the run give the same scenario again.
func TestBytesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		set := []string{
			"description=" + rapid.StringMatching(`[ -~äé]{0,40}`).Draw(t, "description"),
			"seed=" + rapid.StringMatching(`[0-9]{1,19}`).Draw(t, "seed"),
			"load.group_rate=" + Rate(rapid.Float64Range(0.001, 1e6).Draw(t, "rate")).String(),
			"devices.ack_delay=" + time.Duration(rapid.Int64Range(0, int64(3*time.Second)).Draw(t, "delay")).String(),
		}
		a, err := Load("baseline", set...)
		if err != nil {
			t.Fatal(err)
		}
		b, err := a.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse("kept.yaml", b)
		if err != nil {
			t.Fatalf("%v\n%s", err, b)
		}
		a.source, a.overrides, again.source = nil, nil, nil
		if !reflect.DeepEqual(a, again) {
			t.Fatalf("got %+v\nwant %+v\n%s", again, a, b)
		}
	})
}

// A series of runs reads a scenario once and varies it: the file may be a pipe, which has it only once.
func TestAgain(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "piped.yaml")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	wrote := make(chan error, 1)
	go func() { wrote <- os.WriteFile(pipe, []byte("extends: smoke\nseed: 3\n"), 0o600) }()
	first, err := Load(pipe, "devices.ack_every=7")
	if err := errors.Join(err, <-wrote); err != nil {
		t.Fatal(err)
	}
	again, err := first.Again("load.group_rate=11/s")
	if err != nil || again.Name != "piped" || again.Seed != 3 || again.Devices.AckEvery == 7 || again.Load.GroupRate != 11 {
		t.Errorf("%+v, %v", again, err)
	}
	if _, err := first.Again("nothing=1"); err == nil {
		t.Error("an unknown field was set")
	}
}

// Same looks at what a run does, not at how its scenario was written.
func TestSame(t *testing.T) {
	load := func(set ...string) *Scenario {
		t.Helper()
		s, err := Load("smoke", set...)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if a := load(); !a.Same(load()) || !a.Same(load("delivery.mode=push", "phases.tail="+a.Phases.Tail.String())) {
		t.Error("the same scenario is another one")
	}
	if load().Same(load("devices.ack_every=7")) || load().Same(load("seed=2")) {
		t.Error("another scenario is the same")
	}
}

func TestNearestPrefersSmallSlips(t *testing.T) {
	known := []string{"group_rate", "direct_rate", "active_groups", "burst"}
	for given, want := range map[string]string{"group_rte": "group_rate", "gruop_rate": "group_rate", "bursts": "burst", "activegroups": "active_groups"} {
		if got := nearest(given, known); got != `did you mean "`+want+`"?` {
			t.Errorf("%s: %s", given, got)
		}
	}
	if got := nearest("zzzzzz", known); got != "known: group_rate, direct_rate, active_groups, burst" {
		t.Errorf("nothing is near: %s", got)
	}
}

func FuzzParse(f *testing.F) {
	for _, name := range Names() {
		s, err := Load(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(s.source.bytes)
	}
	files, _ := filepath.Glob("testdata/bad/*.yaml")
	for _, file := range files {
		if b, err := os.ReadFile(file); err == nil {
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		s, err := Parse("fuzz.yaml", src)
		if (s == nil) == (err == nil) {
			t.Fatal("neither a scenario nor an error, or both")
		}
		if err != nil && err.Error() == "" {
			t.Fatal("an error without words")
		}
	})
}

// Some editors write a byte order mark; it belongs to no field, and columns are counted behind it.
func TestAByteOrderMarkIsNoPartOfTheFile(t *testing.T) {
	const bom = "\ufeff"
	s, err := Parse("bom.yaml", []byte(bom+"name: marked\nextends: smoke\n"))
	if err != nil || s.Name != "marked" {
		t.Errorf("%v, %v", s, err)
	}
	if _, err = Parse("bom.yaml", []byte(bom+"nam: x\n")); err == nil || !strings.Contains(err.Error(), `bom.yaml:1:1: unknown field "nam"`) {
		t.Errorf("%v", err)
	}
}

// The parser needs gigabytes for a full file of brackets, and minutes for one of dashes, and does not end when it is asked to.
func TestNestingIsBounded(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{strings.Repeat("[", 60000), "deep.yaml:1:1: more than 64 brackets are open at once"},
		{"name: x\nload: " + strings.Repeat("{b: ", 15000), "deep.yaml:2:1: more than 64 brackets are open at once"},
		{strings.Repeat("- ", 30000), "deep.yaml:1:1: more than 64 lists begin in one line"},
		{"name: x\nfaults:\n  " + strings.Repeat("-\t? ", 12000), "deep.yaml:3:1: more than 64 lists begin in one line"},
	} {
		_, err := Parse("deep.yaml", []byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.20s…: %.200v, want %s", c.text, err, c.want)
		}
	}
}

// A text of dashes is no list.
func TestDashesAreText(t *testing.T) {
	if _, err := Parse("dashes.yaml", []byte("# "+strings.Repeat("- ", 100)+"\n# "+strings.Repeat("-", 100)+"\nname: x\n")); err != nil {
		t.Error(err)
	}
}

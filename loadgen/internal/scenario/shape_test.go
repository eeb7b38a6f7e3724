package scenario

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
)

// Lists of groups, bodies and stages are held against their bounds, each with the item's place in the file.
func TestShapeRefuses(t *testing.T) {
	for src, want := range map[string]string{
		"population:\n  groups:\n    - {count: 2}\n":                                                                              "s.yaml:3:7: population.groups[0].size: must be at least 2, and is 0\n    3 |     - {count: 2}",
		"population:\n  groups:\n    - {size: 30, mode: pul}\n":                                                                   `s.yaml:3:24: population.groups[0].mode: must be one of push, pull, and is "pul"`,
		"population:\n  groups:\n    - {size: 30, reading_share: 1.5}\n":                                                          "s.yaml:3:33: population.groups[0].reading_share: must be at most 1, and is 1.5",
		"population: {users: 50, two_device_users: 0, connected_devices: 9, groups_per_user: 0, groups: [{size: 9}, {size: 60}]}": "population.groups[1]: groups of 60 are larger than the 50 users",
		"population: {groups: [{size: 1000, count: 100000}]}":                                                                     "population: users × conversations of each come to 100135000 memberships, and at most 10000000",
		"population:\n  groups:\n    - {size: 30, hint_above: -1}\n":                                                              "s.yaml:3:30: population.groups[0].hint_above: must be at least 0, and is -1",
		"population:\n  groups:\n    - {size: 30, open_only_above: 1000001}\n":                                                    "s.yaml:3:35: population.groups[0].open_only_above: must be at most 1000000, and is 1000001",
		"population:\n  groups: [{size: 30}, {size: 30, hint_above: 20, open_only_above: 10}]":                                    "population.groups[1]: open_only_above 10 lies below hint_above 20: hints begin before they are restricted",
		"population:\n  groups: [{size: 30, open_only_above: 100}]":                                                               "population.groups[0]: open_only_above 100 lies below hint_above 200: hints begin before they are restricted",
		"delivery: {mode: pull}\npopulation:\n  groups: [{size: 30, mode: push, open_only_above: 100}]":                           "population.groups[0]: open_only_above 100 lies below hint_above 200: hints begin before they are restricted",
		"load: {fetch_rate: 1000000/s, convs_rate: 1/s}\nphases: {measure: 10m}":                                                  "load: 1e+06 requests a second for 10m25s come to 6.25e+08, and a plan has 200000000 at most",
		"load: {fetch_rate: -1}":                                                "load.fetch_rate: must be at least 0, and is -1/s",
		"load: {convs_rate: 20%}":                                               `load.convs_rate: "20%" is not a rate such as 1250/s, 30/min or 10/h`,
		"load: {bodies: [{bytes: 100}, {weight: 2}]}":                           "load.bodies[1].bytes: must be at least 47, and is 0",
		"load: {bodies: [{bytes: 1000, sigma: 1, max: 500}]}":                   "load.bodies[0]: max 500 is less than bytes 1000",
		"load: {bodies: [{bytes: 1000, weight: 0}]}":                            "load.bodies[0].weight: must be more than 0, and is 0",
		"load: {stages: [{rate: 2}]}":                                           "load.stages[0].for: must be more than 0s, and is 0s",
		"load: {stages: [{for: 3s, rate: -1}]}":                                 "load.stages[0].rate: must be at least 0, and is -1",
		"load: {stages: [{for: 3s, rate: 0}]}":                                  "load.stages: they leave nothing to be sent in the measured window, which lies from 20s to 1m20s of the load",
		"load: {stages: [{for: 3s, too: 0}]}":                                   `unknown field "too" in load.stages[0]; did you mean "to"?`,
		"load: {arrivals: random}":                                              `load.arrivals: must be one of poisson, even, and is "random"`,
		"load: {group_rate: 1000000/s}\nphases: {measure: 10m}":                 "load: 1e+06 messages a second for 10m25s come to 6.25e+08, and a plan has 200000000 at most",
		"load: {stages: [" + strings.Repeat("{for: 1s},", 1000) + "{for: 1s}]}": "load.stages: at most 1000, and there are 1001",
	} {
		_, err := Parse("s.yaml", []byte(src))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s:\n got %v\nwant %s", src, err, want)
		}
	}
}

// What is absent in an item has its default, -set reaches it, and the bytes kept with the run have all of it.
func TestShapeRoundTrip(t *testing.T) {
	s, err := Parse("s.yaml", []byte(`
extends: smoke
population: {groups: [{size: 90, reading_share: 0}, {count: 3, size: 40, mode: pull}]}
load:
  arrivals: even
  bodies: [{bytes: 100, sigma: 0.5}]
  stages: [{for: 5s, rate: 0.5}, {for: 1m, to: 0}]
`), "population.groups[1].size=50", "load.stages[1].to=2", "population.groups[1].reading_share=0.25")
	if err != nil {
		t.Fatal(err)
	}
	if k := s.GroupKinds(); len(k) != 3 || k[0].Count != 150 || k[1].Count != 1 || k[1].Mode != Push || *k[1].ReadingShare != 0 ||
		k[2].Size != 50 || k[2].Mode != Pull || *k[2].ReadingShare != 0.25 || *k[0].ReadingShare != 1 {
		t.Errorf("kinds %+v", k)
	}
	if b := s.Load.Bodies[0]; b != (Body{Bytes: 100, Weight: 1, Sigma: 0.5, Max: 8192}) {
		t.Errorf("body %+v", b)
	}
	kept, err := s.Bytes()
	if err != nil {
		t.Fatal(err)
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

func TestMeanFactor(t *testing.T) {
	factor := func(x float64) *float64 { return &x }
	stages := []Stage{{For: 10 * time.Second, Rate: factor(0.5)}, {For: 10 * time.Second, To: factor(1.5)}, {For: 5 * time.Second, Rate: factor(3)}}
	for _, c := range []struct {
		stages   []Stage
		from, to int
		want     float64
	}{
		{nil, 3, 9, 1},
		{stages, 0, 10, 0.5},
		{stages, 10, 20, 1},
		{stages, 10, 15, 0.75},
		{stages, 5, 15, (2.5 + 3.75) / 10},
		{stages, 20, 100, 3},
		{stages, 200, 300, 3},
		{stages, 0, 25, (5 + 10 + 15) / 25.0},
		{stages, 4, 4, 0},
	} {
		got := Traffic{Stages: c.stages}.MeanFactor(time.Duration(c.from)*time.Second, time.Duration(c.to)*time.Second)
		if math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%s: %v, want %v", fmt.Sprint(c.from, "–", c.to), got, c.want)
		}
	}
}

// A kind's own thresholds come over those of delivery, each by itself, and 0 is never.
func TestThresholdsOfAKind(t *testing.T) {
	s, err := Parse("s.yaml", []byte("population: {groups: [{size: 30, hint_above: 20}, {size: 300, hint_above: 0}, {size: 300}, {size: 30, hint_above: 30, open_only_above: 0}, {size: 30, mode: pull, open_only_above: 10}]}"))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		hint, open int
		hinted     bool
	}{{200, 1000, false}, {20, 1000, true}, {0, 1000, false}, {200, 1000, true}, {30, 0, false}, {200, 10, true}} {
		k := s.GroupKinds()[i]
		if hint, open := k.Thresholds(s.Delivery); hint != want.hint || open != want.open || k.Hinted(s.Delivery) != want.hinted {
			t.Errorf("kind %d: %d, %d, hinted %v, want %+v", i, hint, open, k.Hinted(s.Delivery), want)
		}
	}
	src, err := s.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse("again.yaml", src)
	if err != nil || again.Population.Groups[1].HintAbove == nil || *again.Population.Groups[1].HintAbove != 0 || again.Population.Groups[2].HintAbove != nil {
		t.Errorf("%v: read back as %+v", err, again.Population.Groups)
	}
}

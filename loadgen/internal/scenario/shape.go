package scenario

import (
	"fmt"
	"time"
)

// GroupKind is a number of groups of one size, beside those of groups_per_user.
type GroupKind struct {
	Count        int      `yaml:"count" unit:"groups" default:"1" min:"1" max:"1000000" doc:"how many groups of this kind there are; their seats go round among all users"`
	Size         int      `yaml:"size" unit:"users" min:"2" max:"1000" doc:"members of each"`
	Mode         Mode     `yaml:"mode" enum:"push,pull" doc:"how their events reach devices; delivery.mode if absent"`
	ReadingShare *float64 `yaml:"reading_share" unit:"share" min:"0" max:"1" doc:"devices that answer a hint of such a group with a sync; devices.reading_share if absent"`
	// Nil is the gateway's own, by which delivery goes.
	HintAbove     *int `yaml:"hint_above" unit:"members" min:"0" max:"1000000" doc:"the threshold of these groups, set on each: with more members they get hints even in push mode; 0 is never; delivery.hint_above if absent"`
	OpenOnlyAbove *int `yaml:"open_only_above" unit:"members" min:"0" max:"1000000" doc:"likewise: with more members hints go only to devices that have the group open; 0 is never; delivery.open_only_above if absent"`
}

// Thresholds are the sizes above which such groups are hinted at, and hinted at only where they are open; 0 is never.
func (k GroupKind) Thresholds(d Delivery) (hintAbove, openOnlyAbove int) {
	hintAbove, openOnlyAbove = d.HintAbove, d.OpenOnlyAbove
	if k.HintAbove != nil {
		hintAbove = *k.HintAbove
	}
	if k.OpenOnlyAbove != nil {
		openOnlyAbove = *k.OpenOnlyAbove
	}
	return hintAbove, openOnlyAbove
}

// Hinted says whether such groups are announced by hints rather than pushes.
func (k GroupKind) Hinted(d Delivery) bool {
	above, _ := k.Thresholds(d)
	return Hinted(k.Mode, k.Size, above)
}

// Hinted says whether a conversation of so many members is announced by hints rather than pushes, where the threshold is above;
// 0 is never.
func Hinted(mode Mode, members, above int) bool { return mode == Pull || above > 0 && members > above }

// Body is one kind of message bodies.
type Body struct {
	Bytes  int     `yaml:"bytes" unit:"bytes" min:"47" max:"8192" doc:"size of the body, or with sigma the median size"`
	Weight float64 `yaml:"weight" default:"1" above:"0" max:"1000000" doc:"share of the messages, in proportion to the other kinds' weights"`
	Sigma  float64 `yaml:"sigma" default:"0" min:"0" max:"3" doc:"above 0 sizes are lognormal: the standard deviation of their natural logarithm"`
	Max    int     `yaml:"max" unit:"bytes" default:"8192" min:"47" max:"8192" doc:"what a lognormal draw makes larger is cut to this, and what it makes smaller than 47 is raised to that"`
}

// Stage is a part of the load in which the rates are changed by a factor.
type Stage struct {
	For  time.Duration `yaml:"for" above:"0s" max:"240h" doc:"how long it lasts; the first begins with the load, that is with the warm-up"`
	Rate *float64      `yaml:"rate" unit:"factor" min:"0" max:"1000" doc:"all rates are multiplied by this; if absent, by what the stage before ended with (1 before the first)"`
	To   *float64      `yaml:"to" unit:"factor" min:"0" max:"1000" doc:"over the stage the factor goes to this in a straight line"`
}

// Arrivals is how the messages of a stream follow one another.
type Arrivals string

// Poisson: independent of each other. Even: at equal distances, so that their number is exact.
const (
	Poisson Arrivals = "poisson"
	Even    Arrivals = "even"
)

// Bounds of lists, of memberships (about 100 bytes each) and of a plan (which is walked three times).
const (
	maxKinds       = 100
	maxStages      = 1000
	maxMemberships = 10_000_000
	maxMessages    = 200_000_000
)

// GroupKinds lists all groups by kind: those of groups_per_user first, if there are any, then those of the list. Mode
// and reading share are filled in.
func (s *Scenario) GroupKinds() []GroupKind {
	p := s.Population
	var all []GroupKind
	if n := p.Users * p.GroupsPerUser / p.GroupSize; n > 0 {
		all = append(all, GroupKind{Count: n, Size: p.GroupSize})
	}
	all = append(all, p.Groups...)
	for i := range all {
		if all[i].Mode == "" {
			all[i].Mode = s.Delivery.Mode
		}
		if all[i].ReadingShare == nil {
			share := s.Devices.ReadingShare
			all[i].ReadingShare = &share
		}
	}
	return all
}

// groups counts all groups.
func (s *Scenario) groups() (n int) {
	for _, k := range s.GroupKinds() {
		n += k.Count
	}
	return n
}

// Line is a piece of the load in which the factor changes at an even rate.
type Line struct {
	From, To   float64 // seconds since the load began
	Begin, End float64 // the factor there
}

// Lines are the stages, one after the other. After the last the factor stays what it was.
func (t Traffic) Lines() []Line {
	var all []Line
	at, factor := 0.0, 1.0
	for _, st := range t.Stages {
		l := Line{From: at, To: at + st.For.Seconds(), Begin: factor}
		if st.Rate != nil {
			l.Begin = *st.Rate
		}
		if l.End = l.Begin; st.To != nil {
			l.End = *st.To
		}
		all = append(all, l)
		at, factor = l.To, l.End
	}
	return all
}

// MeanFactor is the mean of the stages' factor from one moment of the load to another.
func (t Traffic) MeanFactor(from, to time.Duration) float64 {
	a, b := from.Seconds(), to.Seconds()
	if b <= a {
		return 0
	}
	area, end, factor := 0.0, 0.0, 1.0
	for _, l := range t.Lines() {
		if x, y := max(a, l.From), min(b, l.To); x < y {
			at := func(s float64) float64 { return l.Begin + (l.End-l.Begin)*(s-l.From)/(l.To-l.From) }
			area += (at(x) + at(y)) / 2 * (y - x)
		}
		end, factor = l.To, l.End
	}
	if x := max(a, end); x < b {
		area += factor * (b - x)
	}
	return area / (b - a)
}

// shapeFits are the checks of what this file describes.
var shapeFits = []check{
	{"population.groups", func(s *Scenario) string {
		return when(len(s.Population.Groups) > maxKinds, "at most %d kinds, and there are %d", maxKinds, len(s.Population.Groups))
	}},
	{"population.groups", func(s *Scenario) string {
		for i, k := range s.Population.Groups {
			if k.Size > s.Population.Users {
				return fmt.Sprintf("[%d]: groups of %d are larger than the %d users", i, k.Size, s.Population.Users)
			}
		}
		return ""
	}},
	{"population.groups", func(s *Scenario) string {
		for i, k := range s.Population.Groups {
			mode := k.Mode
			if mode == "" {
				mode = s.Delivery.Mode
			}
			hint, open := k.Thresholds(s.Delivery)
			if mode == Push && open > 0 && open < hint && (k.HintAbove != nil || k.OpenOnlyAbove != nil) { // in pull mode all get hints
				return fmt.Sprintf("[%d]: open_only_above %d lies below hint_above %d: hints begin before they are restricted", i, open, hint)
			}
		}
		return ""
	}},
	{"population", func(s *Scenario) string {
		seats := float64(s.Population.Users) * float64(s.Population.DirectsPerUser)
		for _, k := range s.GroupKinds() {
			seats += float64(k.Count) * float64(k.Size)
		}
		return when(seats > maxMemberships, "users × conversations of each come to %.0f memberships, and at most %d are held in memory", seats, maxMemberships)
	}},
	{"load.bodies", func(s *Scenario) string {
		for i, b := range s.Load.Bodies {
			if b.Max < b.Bytes {
				return fmt.Sprintf("[%d]: max %d is less than bytes %d", i, b.Max, b.Bytes)
			}
		}
		return when(len(s.Load.Bodies) > maxKinds, "at most %d kinds, and there are %d", maxKinds, len(s.Load.Bodies))
	}},
	{"devices.churn", func(s *Scenario) string {
		return when(s.Devices.Churn > 0 && len(s.Faults) > 0, "churn does not go with faults: while devices come and go, nobody can tell when a fault has healed")
	}},
	{"load.stages", func(s *Scenario) string {
		return when(len(s.Load.Stages) > maxStages, "at most %d, and there are %d", maxStages, len(s.Load.Stages))
	}},
	{"load.stages", func(s *Scenario) string {
		p := s.Phases
		return when(s.Load.MeanFactor(p.Warmup, p.Warmup+p.Measure) == 0,
			"they leave nothing to be sent in the measured window, which lies from %v to %v of the load", p.Warmup, p.Warmup+p.Measure)
	}},
	{"load", func(s *Scenario) string {
		rate := float64(s.Load.FetchRate + s.Load.ConvsRate)
		all := rate * s.Load.MeanFactor(0, s.Phases.LoadTime()) * s.Phases.LoadTime().Seconds()
		return when(all > maxMessages, "%.3g requests a second for %v come to %.3g, and a plan has %d at most", rate, s.Phases.LoadTime(), all, maxMessages)
	}},
	{"load", func(s *Scenario) string {
		all := float64(s.Load.GroupRate+s.Load.DirectRate) * s.Load.MeanFactor(0, s.Phases.LoadTime()) * s.Phases.LoadTime().Seconds()
		return when(all > maxMessages, "%.3g messages a second for %v come to %.3g, and a plan has %d at most",
			float64(s.Load.GroupRate+s.Load.DirectRate), s.Phases.LoadTime(), all, maxMessages)
	}},
}

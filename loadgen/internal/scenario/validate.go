package scenario

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// issue is a problem of a value, named by the field's path.
type issue struct{ path, message string }

// Validate checks a Scenario that was made or changed in code; Load and Set have done it already. The error is an *Error.
func (s *Scenario) Validate() error {
	var e Error
	for _, i := range s.issues(true) {
		e.Problems = append(e.Problems, Problem{Where: s.Name, Message: i.path + ": " + i.message})
	}
	return e.orNil()
}

// issues lists what is wrong: what each field may hold by itself and, if that is fine and whole is true, how the fields
// fit together. That says nothing where a field could not be read.
func (s *Scenario) issues(whole bool) []issue {
	list := ranges(reflect.ValueOf(s).Elem(), "")
	for i := range s.Criteria {
		path := "criteria[" + strconv.Itoa(i) + "]"
		c := &s.Criteria[i]
		if c.Metric == "" {
			if whole { // else it may be the one that could not be read
				list = append(list, issue{path, "has no metric"})
			}
		} else if !contains(Metrics(), c.Metric) {
			list = append(list, issue{path, fmt.Sprintf("unknown metric %q; %s", c.Metric, nearest(c.Metric, Metrics()))})
		} else if err := c.resolve(); err != nil {
			list = append(list, issue{path, err.Error()})
		}
	}
	list = append(list, s.abortIssues(whole)...)
	if whole { // else what a fault seems to lack may be what could not be read
		list = append(list, s.faultIssues()...)
	}
	if len(list) > 0 || !whole {
		return list
	}
	for _, check := range slices.Concat(fit, shapeFits) {
		message := check.wrong(s)
		if item, rest, of := strings.Cut(message, "]: "); of && strings.HasPrefix(item, "[") { // one of a list's items
			list = append(list, issue{check.path + item + "]", rest})
		} else if message != "" {
			list = append(list, issue{check.path, message})
		}
	}
	if i := s.timelineIssue(); i != nil {
		list = append(list, *i)
	}
	return list
}

// fieldIssues holds the fields of a list's item against their bounds.
func fieldIssues(item any, path string) []issue {
	return ranges(reflect.ValueOf(item).Elem(), path)
}

func ranges(v reflect.Value, path string) []issue {
	var list []issue
	for _, f := range fields(v.Type()) {
		p := join(path, f.name)
		if isSection(f.Type) {
			list = append(list, ranges(v.FieldByIndex(f.Index), p)...)
		} else if items := v.FieldByIndex(f.Index); f.Type.Kind() == reflect.Slice && isSection(f.Type.Elem()) {
			switch f.Type.Elem() {
			case reflect.TypeFor[Fault](), reflect.TypeFor[AbortRule](): // faultIssues and abortIssues have those
				continue
			}
			for i := range items.Len() {
				list = append(list, ranges(items.Index(i), fmt.Sprintf("%s[%d]", p, i))...)
			}
		} else if message := f.outside(v.FieldByIndex(f.Index)); message != "" {
			list = append(list, issue{p, message})
		}
	}
	return list
}

var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// check says how fields must fit together: it returns what is wrong, or nothing.
type check struct {
	path  string
	wrong func(*Scenario) string
}

var fit = []check{
	{"name", func(s *Scenario) string {
		return when(!nameForm.MatchString(s.Name), "%q is not 1 to 64 letters, digits, dots, dashes and underscores (it names the run directory)", s.Name)
	}},
	{"population.two_device_users", func(s *Scenario) string {
		p := s.Population
		return when(p.TwoDeviceUsers > p.Users, "%d users with two devices, but only %d users", p.TwoDeviceUsers, p.Users)
	}},
	{"population.connected_devices", func(s *Scenario) string {
		p := s.Population
		have := p.Users + p.TwoDeviceUsers
		return when(p.ConnectedDevices > have, "%d devices are to be connected, but the users have only %d", p.ConnectedDevices, have)
	}},
	{"population.group_size", func(s *Scenario) string {
		p := s.Population
		return when(p.GroupsPerUser > 0 && p.GroupSize > p.Users, "groups of %d are larger than the %d users", p.GroupSize, p.Users)
	}},
	{"population.groups_per_user", func(s *Scenario) string {
		p := s.Population
		seats := p.Users * p.GroupsPerUser
		return when(seats%p.GroupSize != 0, "%d users in %d groups each take %d seats, which do not fill groups of %d evenly",
			p.Users, p.GroupsPerUser, seats, p.GroupSize)
	}},
	{"population.groups_per_user", func(s *Scenario) string {
		p := s.Population
		groups := p.Users * p.GroupsPerUser / p.GroupSize
		return when(p.GroupsPerUser > groups, "each user is to be in %d groups, but there are only %d", p.GroupsPerUser, groups)
	}},
	{"population.directs_per_user", func(s *Scenario) string {
		p := s.Population
		return when(p.DirectsPerUser >= p.Users, "%d direct chats a user need %d other users, and there are %d", p.DirectsPerUser, p.DirectsPerUser, p.Users-1)
	}},
	{"population.directs_per_user", func(s *Scenario) string {
		p := s.Population
		return when(p.Users%2 == 1 && p.DirectsPerUser%2 == 1, "%d users with %d direct chats each: one end of a chat would be left over, so one of the two must be even",
			p.Users, p.DirectsPerUser)
	}},
	{"load.group_rate", func(s *Scenario) string {
		return when(s.Load.GroupRate == 0 && s.Load.DirectRate == 0, "neither groups nor direct chats send anything: one of load.group_rate and load.direct_rate must be above 0")
	}},
	{"load.active_groups", func(s *Scenario) string {
		return activeFits("group", s.Load.GroupRate, s.Load.ActiveGroups, s.groups())
	}},
	{"load.active_directs", func(s *Scenario) string {
		p := s.Population
		return activeFits("direct chat", s.Load.DirectRate, s.Load.ActiveDirects, p.Users*p.DirectsPerUser/2)
	}},
	{"delivery.open_only_above", func(s *Scenario) string {
		d := s.Delivery
		return when(d.OpenOnlyAbove > 0 && d.OpenOnlyAbove < d.HintAbove, "open_only_above %d lies below hint_above %d: hints begin before they are restricted", d.OpenOnlyAbove, d.HintAbove)
	}},
	{"devices.backoff.cap", func(s *Scenario) string {
		b := s.Devices.Backoff
		return when(b.Cap < b.Base, "cap %v is shorter than base %v", b.Cap, b.Base)
	}},
	{"server.grace", func(s *Scenario) string {
		return when(s.Server.Grace <= s.Devices.AckDelay, "grace %v must exceed devices.ack_delay %v, or devices that only wait to acknowledge get hints",
			s.Server.Grace, s.Devices.AckDelay)
	}},
	{"allow_environments", func(s *Scenario) string {
		return when(len(s.AllowEnvironments) == 0 || contains(s.AllowEnvironments, ""), "must name at least one environment, and none may be empty")
	}},
}

func activeFits(kind string, rate Rate, active, have int) string {
	if rate == 0 {
		return ""
	}
	if active == 0 {
		return fmt.Sprintf("the %s rate is %v, but no %s is active", kind, rate, kind)
	}
	return when(active >= have, "%d of each moment's %ss are to be active, but there are only %d: at least one more is needed to take turns", active, kind, have)
}

func when(wrong bool, format string, args ...any) string {
	if !wrong {
		return ""
	}
	return fmt.Sprintf(format, args...)
}

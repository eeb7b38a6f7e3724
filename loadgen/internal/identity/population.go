package identity

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"imbench/loadgen/internal/population"
)

// maxSeats bounds users × conversations of each, about 100 bytes each.
const maxSeats int64 = 10_000_000

// tooMany is the error of more memberships than there is room for.
func (r *Roster) tooMany(most int64) error {
	cure := "name the conversations that are to take part in a column conversations"
	if len(r.Named) > 0 {
		cure = "name fewer conversations, or bring fewer users"
	}
	return &RosterError{fmt.Errorf("the users of %s have more than %d memberships: %s", r.File, most, cure)}
}

// wanted are the conversations that the roster names; nil = it names none, and all are.
func (r *Roster) wanted() map[string]bool {
	var list map[string]bool
	for _, n := range r.Named {
		if list == nil {
			list = make(map[string]bool, len(r.Named))
		}
		list[n.Conv] = true
	}
	return list
}

// population makes a population of what each user's list told, in which are only wanted conversations. All devices are
// connected. Of the conversations those take part in which two of the users are or more: where only one of them is, nobody could
// tell whether anything was delivered. A conversation stands at the largest head that one of the users was told.
func (r *Roster) population(lists [][]standing) (*Found, error) {
	p := &population.Population{Brought: true}
	f := &Found{Population: p}
	index := make(map[string]int32, len(r.Users))
	for u, id := range r.Users {
		index[id] = int32(u)
		p.Users = append(p.Users, population.User{ID: id})
	}
	for i, x := range r.List {
		u := index[x.User]
		p.Users[u].Devices = append(p.Users[u].Devices, int32(i))
		p.Devices = append(p.Devices, population.Device{ID: x.Device, User: u, Connected: true, Install: x.Install})
	}
	if err := r.named(index, lists); err != nil {
		return nil, &RosterError{err}
	}
	all := map[string]*population.Conv{}
	for u, list := range lists {
		for _, s := range list {
			c := all[s.conv]
			if c == nil {
				c = &population.Conv{ID: s.conv, Kind: s.kind, Mode: s.mode}
				all[s.conv] = c
			}
			c.Head = max(c.Head, s.head)
			c.Members = append(c.Members, int32(u))
		}
	}
	for _, c := range all {
		if len(c.Members) < 2 {
			f.Alone++
			continue
		}
		p.Convs = append(p.Convs, *c)
	}
	slices.SortFunc(p.Convs, func(a, b population.Conv) int { return cmp.Compare(a.ID, b.ID) }) // the same plan each time
	for i := range p.Convs {
		for _, u := range p.Convs[i].Members {
			p.Users[u].Convs = append(p.Users[u].Convs, int32(i))
		}
	}
	for u := range p.Users {
		if len(p.Users[u].Convs) == 0 {
			f.Idle++
		}
	}
	return f, nil
}

// named holds what the roster says of conversations against the lists. The error tells of those in which a user is not that is
// said to be.
func (r *Roster) named(index map[string]int32, lists [][]standing) error {
	said := map[string]bool{}
	has := make([]map[string]bool, len(lists))
	var problems []error
	for _, n := range r.Named {
		u := index[n.User]
		if has[u] == nil {
			has[u] = make(map[string]bool, len(lists[u]))
			for _, s := range lists[u] {
				has[u][s.conv] = true
			}
		}
		if key := n.User + " " + n.Conv; !has[u][n.Conv] && !said[key] {
			said[key] = true
			problems = append(problems, fmt.Errorf("%s:%d: the user %s is not in the conversation %s", r.File, n.Line, n.User, n.Conv))
		}
	}
	if more := len(problems) - maxSaid; more > 0 {
		problems = append(problems[:maxSaid], fmt.Errorf("and %d more", more))
	}
	return errors.Join(problems...)
}

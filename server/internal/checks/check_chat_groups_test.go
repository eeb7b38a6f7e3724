package checks

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"imbench/server/internal/evidence"
	"imbench/server/internal/postgres"
	"imbench/server/wire"
)

// chatGroups are the checks of the second document that need large groups.
func chatGroups(t *testing.T) {
	evidence.Run(t, evidence.Check{
		ID: "chat-group-full", Document: "at most 1 000 members",
		Expected: "999 members, 8 join at once at two gateways: 1 joins, 7 GROUP_FULL; 1000 members; after one has left 201 seq 1002",
		Observe:  func(t *testing.T) string { return groupFull(withGroup(t, 999)) },
		Control: evidence.Control{Is: "nobody counts the members", Observe: func(t *testing.T) string {
			d := withGroup(t, 999)
			d.mutate("im_membership", "WHEN p_join AND p_limit <=", "WHEN false AND p_limit <=")
			return groupFull(d)
		}},
	})
	evidence.Run(t, evidence.Check{
		ID: "chat-hint-above-200", Document: "above 200 members only {conversationId, seq}, to those online",
		Expected: "200 members: event 201, 3 devices have it; 201 members: hint 203, 3 devices know it and sync to 203",
		Observe:  func(t *testing.T) string { return hintAbove(t, "200") },
		Control: evidence.Control{Is: "no threshold (-hint-above 100000)", Observe: func(t *testing.T) string {
			return hintAbove(t, "100000")
		}},
	})
}

// withGroup is a database with a group u-big of n members, u-0001 and so on, and users u-more0 to u-more7 outside it.
func withGroup(t *testing.T, n int, change ...func(*postgres.PopulationConv)) *database {
	t.Helper()
	d := newDatabase(t)
	c := group("u-big")
	for i := range n {
		c.Members = append(c.Members, member(i+1))
	}
	for _, f := range change {
		f(&c)
	}
	var others []string
	for i := range 8 {
		others = append(others, fmt.Sprint("u-more", i))
	}
	d.provisionWith(others, c)
	return d
}

// member is the n-th member of u-big.
func member(n int) string { return fmt.Sprintf("u-%04d", n) }

func groupFull(d *database) string {
	gs := []*gateway{d.gateway(gatewayOptions{}), d.gateway(gatewayOptions{})}
	results := make([]string, 8)
	var wg sync.WaitGroup
	for i := range results {
		w := gs[i%2].web(as(member(i + 1)))
		wg.Go(func() {
			a := w.join("u-big", fmt.Sprint("u-more", i))
			results[i] = a.result()
		})
	}
	wg.Wait()
	joined, full, other := 0, 0, ""
	for _, r := range results {
		switch {
		case strings.HasPrefix(r, "201 "):
			joined++
		case r == "409 GROUP_FULL":
			full++
		default:
			other += ", " + r
		}
	}
	members := d.text(`SELECT count(*) FROM membership_periods WHERE to_seq IS NULL`)
	w := gs[0].web(as(member(1)))
	w.leave("u-big", member(999))
	a := w.join("u-big", member(999))
	return fmt.Sprintf("999 members, 8 join at once at two gateways: %d joins, %d GROUP_FULL%s; %s members; after one has left %s",
		joined, full, other, members, a.result())
}

// hintAbove sends to a group of 200, of which three devices are online, and once more after another has joined.
func hintAbove(t *testing.T, threshold string) string {
	d := withGroup(t, 200)
	g := d.gateway(gatewayOptions{args: []string{"-hint-above", threshold, "-sweep", "0s"}})
	sender := g.web(as(member(1)))
	var phones []*phone
	for i := range 3 {
		p := newPhone(t, as(member(i+2)))
		p.begin("u-big", 200)
		p.dial(g)
		phones = append(phones, p)
	}
	sender.send("u-big", "k1", "x")
	var seen []string
	kinds, have := map[string]bool{}, 0
	for _, p := range phones {
		f := p.take()
		kinds[fmt.Sprint(f.T, " ", f.Ev.Seq+f.Head)] = true
		if p.conv("u-big").Cursor == 201 {
			have++
		}
	}
	seen = append(seen, fmt.Sprintf("200 members: %s, %d devices have it", keys(kinds), have))
	sender.join("u-big", "u-more0") // 202, with which the group is above the threshold
	sender.send("u-big", "k2", "x")
	kinds, have = map[string]bool{}, 0
	for _, p := range phones {
		f := p.take()
		for f.T == wire.THint && f.Head < 203 || f.T == wire.TEvent && f.Ev.Seq < 203 {
			f = p.take()
		}
		kinds[fmt.Sprint(f.T, " ", f.Ev.Seq+f.Head)] = true
		if p.conv("u-big").Cursor == 203 {
			have++
		}
	}
	return strings.Join(append(seen, fmt.Sprintf("201 members: %s, %d devices know it and sync to 203", keys(kinds), have)), "; ")
}

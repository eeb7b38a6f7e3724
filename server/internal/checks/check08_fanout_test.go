package checks

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"imbench/server/internal/evidence"
	"imbench/server/wire"
)

// check08Fanout are the checks of what the document left open: many receivers, and faults.
func check08Fanout(t *testing.T) {
	evidence.Run(t, evidence.Check{
		ID: "08-hint-merge", Document: "not built there: one frame a hint and device",
		Expected: "1000 members, 60 devices, 20 messages: 60 know head 1020, none got more than 10 hints, none was closed",
		Observe:  func(t *testing.T) string { return hintStorm(t, "200ms") },
		Control: evidence.Control{Is: "hints do not wait for others", Observe: func(t *testing.T) string {
			return hintStorm(t, "0s")
		}},
	})
	evidence.Run(t, evidence.Check{
		ID: "08-big-group-burst", Document: "500 members, 20 messages in a second, a queue of 64, and other groups' pushes: it may overflow",
		Expected: "80 messages of 4 groups for 10 devices that do not read meanwhile: none closed, 10 complete",
		Observe:  func(t *testing.T) string { return bigBurst(t, false) },
		Control: evidence.Control{Is: "devices that only take what they are pushed", Observe: func(t *testing.T) string {
			return bigBurst(t, true)
		}},
	})
	evidence.Run(t, evidence.Check{
		ID: "08-open-only", Document: "not built there",
		Expected: "4 members, the limit is 3: the device that has it open: hint 5; the other: nothing, and head 5 in its list",
		Observe:  func(t *testing.T) string { return openOnly(t, "3") },
		Control: evidence.Control{Is: "no such limit (-open-only-above 1000)", Observe: func(t *testing.T) string {
			return openOnly(t, "1000")
		}},
	})
	evidence.Run(t, evidence.Check{
		ID: "08-fanout-db-down", Document: "fan-out fails, the event is not pushed; the sweep sends a hint when the database is back",
		Expected: "what is needed cannot be read for 5 times: the device has [3 4 5] all the same",
		Observe: func(t *testing.T) string {
			return readsFail(t, "fanout.before_read_members=error:0:3,fanout.before_read_events=error:0:2")
		},
		Control: evidence.Control{Is: "the database does not come back", Observe: func(t *testing.T) string {
			return readsFail(t, "fanout.before_read_members=error,fanout.before_read_events=error")
		}},
	})
}

// hintStorm sends 20 messages to a group of 1 000, of whose devices 60 are online. With a window they are sent at once;
// without one each waits until a device has heard of the last.
func hintStorm(t *testing.T, window string) string {
	d := withGroup(t, 1000)
	g := d.gateway(gatewayOptions{args: []string{"-sweep", "0s", "-hint-window", window}})
	sender := g.connect(as(member(1)))
	var devices []*client
	for i := range 60 {
		devices = append(devices, g.connect(as(member(i+2))))
	}
	known := make([]int64, len(devices))
	follow := func(i int, head int64) {
		for known[i] < head {
			f := devices[i].next()
			known[i] = max(known[i], f.Head, f.Ev.Seq)
		}
	}
	if window == "0s" {
		for i := range int64(20) {
			sender.send("u-big", fmt.Sprint("k", i), "x")
			follow(0, 1001+i)
		}
	} else if failed := pipeline(sender, "u-big", "", 20); failed != "" {
		return failed
	}
	know, most, total, closed := 0, 0, 0, "none was closed"
	for i, c := range devices {
		follow(i, 1020)
		if known[i] == 1020 {
			know++
		}
		n := c.came(wire.THint).frames
		most, total = max(most, n), total+n
		if c.ended() != nil {
			closed = c.ended().Error()
		}
	}
	many := "none got more than 10 hints"
	if most > 10 {
		many = fmt.Sprintf("one got %d hints", most)
	}
	return fmt.Sprintf("1000 members, %d devices, 20 messages: %d know head 1020, %s, %s\n%d hints in all, at most %d a device",
		len(devices), know, many, closed, total, most)
}

// bigBurst pushes 20 messages to each of a group of 500 and three small ones, while the sockets of the ten devices that
// are in all of them take nothing. Everything is queued when the hint of another group, sent last, has come through.
func bigBurst(t *testing.T, pushOnly bool) string {
	d := newDatabase(t)
	big, watch := group("u-g0"), group("u-watch", "u-eve", member(1))
	watch.Mode = "pull"
	for i := range 500 {
		big.Members = append(big.Members, member(i+1))
	}
	few := big.Members[:11]
	d.provision(big, group("u-g1", few...), group("u-g2", few...), group("u-g3", few...), watch)
	convs := map[string]int64{"u-g0": 500, "u-g1": 11, "u-g2": 11, "u-g3": 11}
	g := d.gateway(gatewayOptions{args: []string{"-hint-above", "1000", "-hint-window", "0s", "-sweep", "0s", "-request-rate", "0"},
		faults: "gw.push=pause", pauses: true, env: oneShard})
	gate := g.gate("gw.push")
	gate.shut("gw.push")
	sender, eve := g.connect(as(member(1))), g.connect(as("u-eve"))
	var phones []*phone
	for i := range 10 {
		p := newPhone(t, as(member(i+2)))
		for c, head := range convs {
			p.conv(c).Cursor = head
		}
		p.dial(g)
		phones = append(phones, p)
	}
	for c := range convs {
		if failed := pipeline(sender, c, "", 20); failed != "" {
			return failed
		}
	}
	sender.send("u-watch", "last", "x")
	eve.next()
	gate.open()
	complete, closed := 0, 0
	for _, p := range phones {
		for known := map[string]int64{}; len(known) < len(convs); {
			f, ok := p.c.nextWithin(patience)
			if !ok {
				break
			}
			if conv, seq := f.Conv+f.Ev.Conv, max(f.Head, f.Ev.Seq); seq == convs[conv]+20 {
				known[conv] = seq
			}
			if f.T != wire.THint || !pushOnly {
				p.handle(f)
			}
		}
		whole := 0
		for c, head := range convs {
			if s := p.conv(c); s.Cursor == head+20 && len(s.Seqs) == 20 {
				whole++
			}
		}
		if whole == len(convs) {
			complete++
		}
		if p.c.ended() != nil {
			closed++
		}
	}
	none := "none"
	if closed > 0 {
		none = fmt.Sprint(closed)
	}
	hints, events := amount{}, amount{}
	for _, p := range phones {
		hints.add(p.c.came(wire.THint))
		events.add(p.c.came(wire.TEvent))
	}
	return fmt.Sprintf("80 messages of 4 groups for %d devices that do not read meanwhile: %s closed, %d complete\n%d events and %d hints came",
		len(phones), none, complete, events.frames, hints.frames)
}

// openOnly sends to a group above the limit. That the closed device is not hinted shows when a message of a small
// group, sent later, comes to it.
func openOnly(t *testing.T, limit string) string {
	d := newDatabase(t)
	pull := group("u-g", "u-ana", "u-ben", "u-cai", "u-dan")
	pull.Mode = "pull"
	d.provision(pull, direct("u-ac", "u-ana", "u-cai"))
	g := d.gateway(gatewayOptions{args: []string{"-open-only-above", limit, "-hint-window", "0s", "-sweep", "0s"}, env: oneShard})
	ana, ben, cai := g.connect(as("u-ana")), g.connect(as("u-ben")), g.connect(as("u-cai"))
	ben.ask(wire.Request{T: wire.TOpen, Conv: "u-g"})
	ana.send("u-g", "k", "x")
	f := ben.next()
	seen := fmt.Sprintf("4 members, the limit is 3: the device that has it open: %s %d; the other:", f.T, f.Head)
	ana.send("u-ac", "k", "x")
	told := " nothing"
	if f = cai.next(); f.Ev.Conv != "u-ac" {
		told = fmt.Sprintf(" %s %d", f.T, f.Head)
	}
	return fmt.Sprintf("%s%s, and head %d in its list", seen, told, cai.state("u-g").Head)
}

// readsFail has the reads of the receiver's gateway fail as they do when the database is away, while the announcements of
// another gateway arrive. The bound is that of the lost push in chapter 06.
func readsFail(t *testing.T, faults string) string {
	const bound = 3 * time.Second
	d := withDirect(t)
	g := d.gateway(gatewayOptions{faults: faults, args: []string{"-sweep", "500ms", "-grace", "500ms"}})
	p := newPhone(t, as("u-ben"))
	p.dial(g)
	p.begin("u-ab", 2)
	p.ack("u-ab")
	ana := d.gateway(gatewayOptions{}).connect(as("u-ana"))
	for i := range 3 {
		ana.send("u-ab", fmt.Sprint("k", i), "x")
	}
	limit := bound
	if strings.Contains(faults, ":") {
		limit = patience // it must come
	}
	for p.conv("u-ab").Cursor < 5 {
		f, ok := p.c.nextWithin(limit)
		if !ok {
			break
		}
		p.handle(f)
	}
	return fmt.Sprintf("what is needed cannot be read for 5 times: the device has %v all the same", p.conv("u-ab").Seqs)
}

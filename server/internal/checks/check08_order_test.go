package checks

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"imbench/server/internal/evidence"
	"imbench/server/internal/fault"
	"imbench/server/internal/postgres"
	"imbench/server/wire"
)

// check08Order are the checks of what happens when members change beside fan-out.
func check08Order(t *testing.T) {
	evidence.Run(t, evidence.Check{
		ID: "08-interleavings", Document: "one order only: first the leave, then the message",
		Expected: "told what is not theirs: 0; not complete after a sync: 0",
		Observe:  func(t *testing.T) string { return interleavings(t, false, heldPoints...) },
		Control: evidence.Control{Is: "members are those there are now, without intervals", Observe: func(t *testing.T) string {
			return interleavings(t, true, fault.BeforeReadMembers)
		}},
	})
	evidence.Run(t, evidence.Check{
		ID: "08-cache-version", Document: "a cache is too old if its version is smaller than the event's seq",
		Expected: "a leave and a join that nobody announced: the device is told msg, leave, join, msg",
		Observe:  func(t *testing.T) string { return cacheVersion(t, false) },
		Control: evidence.Control{Is: "changes of members take no number in the log", Observe: func(t *testing.T) string {
			return cacheVersion(t, true)
		}},
	})
}

// heldPoints are where fan-out of a gateway is held, with everything that comes to them.
var heldPoints = []fault.Point{fault.BeforeReadMembers, fault.BeforeReadEvents, fault.Push}

// stage is where interleavings run: u-ann does everything at one gateway; u-xen, who comes and goes, and u-yve, who stays,
// are at another one, which can be held.
type stage struct {
	d             *database
	gate          *gate
	ann, xen, yve *client
	held          map[fault.Point]int // runs in which somebody was held there
}

// interleavings tries every order of three operations (a message, or u-xen's leaving or coming back), and in each holds
// the fan-out of every one of them at every of the points until all three are committed. naive breaks the membership.
func interleavings(t *testing.T, naive bool, points ...fault.Point) string {
	d := newDatabase(t)
	var list []postgres.PopulationConv
	for i := range 8 * 3 * len(points) {
		list = append(list, group(fmt.Sprintf("u-i%d", i), "u-ann", "u-yve", "u-xen"))
	}
	d.provision(list...)
	if naive {
		d.mutate("im_membership", "UPDATE membership_periods SET to_seq = o_seq WHERE", "DELETE FROM membership_periods WHERE",
			"VALUES (p_conv, p_user, o_seq)", "VALUES (p_conv, p_user, 1)")
	}
	var faults []string
	for _, p := range points {
		faults = append(faults, string(p)+"=pause")
	}
	g := d.gateway(gatewayOptions{faults: strings.Join(faults, ","), pauses: true, env: oneShard,
		args: []string{"-hint-window", "0s", "-sweep", "0s"}})
	s := &stage{d: d, gate: g.gate(points...), ann: d.gateway(gatewayOptions{args: []string{"-request-rate", "0"}}).connect(as("u-ann")),
		xen: g.connect(as("u-xen")), yve: g.connect(as("u-yve")), held: map[fault.Point]int{}}
	wrong, complete, n := 0, 0, 0
	for order := range 8 {
		for hold := range 3 {
			for _, p := range points {
				leaked, whole := s.run(list[n].ID, order, hold, p)
				n++
				wrong += leaked
				complete += whole
			}
		}
	}
	return fmt.Sprintf("told what is not theirs: %d; not complete after a sync: %d\n%d orders of sends, leaves and joins around a held fan-out; held in %v",
		wrong, n-complete, n, s.held)
}

// run does the operations that the bits of order name. It returns 1 for a leak, and 1 if u-xen's sync has what is his.
func (s *stage) run(conv string, order, hold int, p fault.Point) (leaked, whole int) {
	s.d.t.Helper()
	member, told := true, int64(3)
	his := []int64{3} // the seqs of which u-xen was a member
	for i := range 3 {
		seq := int64(4 + i)
		if i == hold {
			s.gate.shut(p)
		}
		r := wire.Request{T: wire.TSend, Conv: conv, CMID: fmt.Sprint("k", i), Body: "x"}
		if toggles := order>>i&1 == 1; toggles {
			r = wire.Request{T: wire.TLeave, Conv: conv, User: "u-xen"}
			if !member {
				r.T = wire.TJoin
			}
		}
		if f := s.ann.ask(r); f.Seq != seq {
			s.d.t.Fatalf("%s of %s: %+v, want %d", r.T, conv, f, seq)
		}
		if member || r.T == wire.TJoin {
			his = append(his, seq)
		}
		member = member && r.T != wire.TLeave || r.T == wire.TJoin
		for i == hold && told < seq && !s.arrives(conv, &told) {
		}
	}
	if s.gate.open() > 0 {
		s.held[p]++
	}
	for told < 6 {
		s.listen(conv, s.yve.next(), &told)
	}
	s.xen.ask(wire.Request{T: wire.TPing}) // what was queued before comes before
	for f, ok := s.xen.nextWithin(0); ok; f, ok = s.xen.nextWithin(0) {
		if f.Ev.Conv+f.Conv == conv && !slices.Contains(his, max(f.Ev.Seq, f.Head)) {
			leaked = 1
		}
	}
	var seqs []int64
	for _, e := range s.xen.sync(conv, 0, 0).Events {
		seqs = append(seqs, e.Seq)
	}
	if slices.Equal(seqs, his) {
		whole = 1
	}
	return leaked, whole
}

// arrives waits until somebody is held (true), or until u-yve was told of something.
func (s *stage) arrives(conv string, told *int64) bool {
	s.d.t.Helper()
	select {
	case <-s.gate.arrived:
		return true
	case f := <-s.yve.pushed:
		s.listen(conv, f, told)
	case <-time.After(patience):
		s.d.t.Fatalf("%s: nobody is held, and u-yve is told nothing", conv)
	}
	return false
}

func (s *stage) listen(conv string, f wire.Frame, told *int64) {
	if f.Ev.Conv+f.Conv == conv {
		*told = max(*told, f.Ev.Seq, f.Head)
	}
}

// cacheVersion changes the members in the database without a word to the gateway, which knows who they were. u-ben is
// taken out before the second message and is back before the third. naive changes are no events of the log.
func cacheVersion(t *testing.T, naive bool) string {
	d := newDatabase(t)
	d.provision(group("u-g", "u-ana", "u-ben", "u-cai"), direct("u-end", "u-ana", "u-ben"))
	if naive {
		d.mutate("im_membership", "SET to_seq = o_seq WHERE", "SET to_seq = o_seq - 1 WHERE",
			"INSERT INTO events (conv_id, seq, kind, sender_user, subject_user, msg_no, created_at)\n    VALUES (", "PERFORM ROW(",
			"SET next_seq = o_seq + 1", "SET next_seq = o_seq")
	}
	g := d.gateway(gatewayOptions{env: oneShard, args: []string{"-sweep", "0s"}})
	ana, ben, cai := g.connect(as("u-ana")), g.connect(as("u-ben")), g.connect(as("u-cai"))
	say := func(cmid string) {
		ana.send("u-g", cmid, "x")
		for f := cai.next(); f.Ev.CMID != cmid; f = cai.next() {
		}
	}
	say("first")
	for _, change := range []struct {
		do   func() (int64, error)
		then string
	}{
		{func() (int64, error) { return d.Leave(t.Context(), as("u-ana"), "u-g", "u-ben") }, "second"},
		{func() (int64, error) { return d.Join(t.Context(), as("u-ana"), "u-g", "u-ben") }, "third"},
	} {
		if _, err := change.do(); err != nil {
			t.Fatal(err)
		}
		say(change.then)
	}
	ana.send("u-end", "end", "x")
	var told []string
	for f := ben.next(); f.Ev.Conv != "u-end"; f = ben.next() {
		told = append(told, f.Ev.Kind)
	}
	return "a leave and a join that nobody announced: the device is told " + strings.Join(told, ", ")
}

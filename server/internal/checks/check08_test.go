package checks

import (
	"fmt"
	"testing"

	"imbench/server/internal/evidence"
	"imbench/server/wire"
)

// Chapter 08, fan-out to groups: who is told what, in both modes.
func TestCheck08(t *testing.T) {
	check08Modes(t)
	check08Order(t)
	check08Fanout(t)
	evidence.Run(t, evidence.Check{
		ID: "08-join-no-prior-history", Document: "joined at 62: first visible 62, nothing from before, next_after=63",
		Expected: "joined at 62: first visible 62, nothing from before, next_after 63",
		Observe:  func(t *testing.T) string { return joinLate(withForty(t)) },
		Control: evidence.Control{Is: "a member sees the whole log", Observe: func(t *testing.T) string {
			d := withForty(t)
			d.mutate("im_membership", "VALUES (p_conv, p_user, o_seq)", "VALUES (p_conv, p_user, 1)")
			return joinLate(d)
		}},
	})
	evidence.Run(t, evidence.Check{
		ID: "08-leave-closes-interval", Document: "left at 64: sees the own leave, nothing after it, a send is NOT_MEMBER",
		Expected: "left at 64: the last visible is leave@64, next_after 64 of head 65, a send is NOT_MEMBER",
		Observe:  func(t *testing.T) string { return leaveEarly(withForty(t)) },
		Control: evidence.Control{Is: "a leave that leaves the interval open", Observe: func(t *testing.T) string {
			d := withForty(t)
			d.staysMember()
			return leaveEarly(d)
		}},
	})
	evidence.Run(t, evidence.Check{
		ID: "08-rejoin-gap-stays-hidden", Document: "back at 66: between 64 and 66 nothing, after 66 everything",
		Expected: "back at 66: from 63 on [63 64 66 67], next_after 67; fetch of 65 NOT_MEMBER",
		Observe:  func(t *testing.T) string { return rejoin(withForty(t)) },
		Control: evidence.Control{Is: "whoever comes back gets the old interval, open again", Observe: func(t *testing.T) string {
			d := withForty(t)
			d.mutate("im_membership", "INSERT INTO membership_periods (conv_id, user_id, from_seq) VALUES (p_conv, p_user, o_seq);",
				`IF EXISTS (SELECT 1 FROM membership_periods WHERE conv_id = p_conv AND user_id = p_user) THEN
					UPDATE membership_periods SET to_seq = NULL WHERE conv_id = p_conv AND user_id = p_user;
				ELSE
					INSERT INTO membership_periods (conv_id, user_id, from_seq) VALUES (p_conv, p_user, o_seq);
				END IF;`)
			return rejoin(d)
		}},
	})
	evidence.Run(t, evidence.Check{
		ID: "08-no-push-after-leave", Document: "left at 68, message 69: not pushed within a second, fetch NOT_MEMBER",
		Expected: "left at 68; message 69 is pushed to a member; to the one who left: join, msg and leave up to 68, then the next of another group; fetch of 69 CURSOR_AHEAD",
		Observe:  func(t *testing.T) string { return pushAfterLeave(withForty(t)) },
		Control: evidence.Control{Is: "a leave that leaves the interval open", Observe: func(t *testing.T) string {
			d := withForty(t)
			d.staysMember()
			return pushAfterLeave(d)
		}},
	})
}

// withForty is the group of the document, u-g: members u-001 to u-040 (seqs 1 to 40) and 21 messages (to 61). u-new is in
// no conversation; u-other is another group, of u-001 and u-002.
func withForty(t *testing.T) *database {
	t.Helper()
	d := newDatabase(t)
	d.provisionWith([]string{"u-new"}, group("u-g", forty()...), group("u-other", nth(1), nth(2)))
	d.fill(as(nth(40)), "u-g", "k", 21)
	return d
}

// nth is the n-th member of the groups of chapter 08, of whom forty are all.
func nth(n int) string { return fmt.Sprintf("u-%03d", n) }

func forty() (users []string) {
	for i := range 40 {
		users = append(users, nth(i+1))
	}
	return users
}

// staysMember breaks leaving: the event is there, but the interval reaches beyond it.
func (d *database) staysMember() {
	d.t.Helper()
	d.mutate("im_membership", "SET to_seq = o_seq WHERE", "SET to_seq = o_seq + 1000 WHERE")
}

// tell sends one message to u-g as its last member, through the store.
func (d *database) tell(cmid string) {
	d.t.Helper()
	d.fill(as(nth(40)), "u-g", cmid, 1)
}

// joins and leaves are done by the last member, by HTTP; they return the event's seq.
func joins(g *gateway, user string) int64 {
	g.t.Helper()
	a := g.web(as(nth(40))).join("u-g", user)
	return a.Seq
}

func leaves(g *gateway, user string) int64 {
	g.t.Helper()
	a := g.web(as(nth(40))).leave("u-g", user)
	return a.Seq
}

func joinLate(d *database) string {
	g := d.gateway(gatewayOptions{})
	seq := joins(g, "u-new")
	d.tell("after")
	f := g.connect(as("u-new")).sync("u-g", 0, 0)
	before := "nothing from before"
	for _, e := range f.Events {
		if e.Seq < seq {
			before = "also from before"
		}
	}
	if len(f.Events) == 0 {
		return "nothing is visible"
	}
	return fmt.Sprintf("joined at %d: first visible %d, %s, next_after %d", seq, f.Events[0].Seq, before, f.NextAfter)
}

// leaveEarly begins with u-001 as one of those who have left: 62 and 63 are messages, 64 is the leave.
func leaveEarly(d *database) string {
	g := d.gateway(gatewayOptions{})
	d.tell("a")
	d.tell("b")
	seq := leaves(g, nth(1))
	d.tell("c")
	c := g.connect(as(nth(1)))
	f := c.sync("u-g", 60, 0)
	last := f.Events[len(f.Events)-1]
	sent := c.send("u-g", "k", "x")
	return fmt.Sprintf("left at %d: the last visible is %s@%d, next_after %d of head %s, a send is %s",
		seq, last.Kind, last.Seq, f.NextAfter, d.head("u-g"), sent.Code)
}

func rejoin(d *database) string {
	g := d.gateway(gatewayOptions{})
	d.tell("a")
	d.tell("b")
	leaves(g, nth(1))
	d.tell("c")
	seq := joins(g, nth(1))
	d.tell("d")
	c := g.connect(as(nth(1)))
	f := c.sync("u-g", 62, 0)
	var seqs []int64
	for _, e := range f.Events {
		seqs = append(seqs, e.Seq)
	}
	hidden := c.ask(wire.Request{T: wire.TFetch, Conv: "u-g", Seq: 65})
	result := string(hidden.Code)
	if hidden.T == wire.TEvent {
		result = "served"
	}
	return fmt.Sprintf("back at %d: from 63 on %v, next_after %d; fetch of 65 %s", seq, seqs, f.NextAfter, result)
}

// pushAfterLeave has u-001 online when he leaves and a message follows at once. That he is not pushed it shows when the
// message of another group, sent later, comes to him: one goroutine fans out both.
func pushAfterLeave(d *database) string {
	d.fill(as(nth(40)), "u-g", "more", 4) // to 65
	g := d.gateway(gatewayOptions{env: oneShard, args: []string{"-sweep", "0s"}})
	gone, stays, sender := g.connect(as(nth(1))), g.connect(as(nth(2))), g.connect(as(nth(40)))
	joins(g, "u-new")             // 66
	sender.send("u-g", "67", "x") // 67
	left := leaves(g, nth(1))
	sender.send("u-g", "69", "x")
	seen := fmt.Sprintf("left at %d; ", left)
	f := stays.next()
	for f.Ev.Seq < 69 {
		f = stays.next()
	}
	seen += fmt.Sprintf("message %d is pushed to a member; to the one who left:", f.Ev.Seq)
	stays.send("u-other", "fence", "x")
	told := map[int64]string{66: "join", 67: "msg", 68: "leave"}
	for f = gone.next(); f.Ev.Conv == "u-g"; f = gone.next() {
		if told[f.Ev.Seq] != f.Ev.Kind {
			seen += fmt.Sprintf(" %s@%d which is not his,", f.Ev.Kind, f.Ev.Seq)
		}
		delete(told, f.Ev.Seq)
	}
	if len(told) == 0 {
		seen += " join, msg and leave up to 68,"
	}
	seen += " then the next of another group"
	f = gone.ask(wire.Request{T: wire.TFetch, Conv: "u-g", Seq: 69})
	result := string(f.Code)
	if f.T == wire.TEvent {
		result = "served"
	}
	return fmt.Sprintf("%s; fetch of 69 %s", seen, result)
}

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

// amplification are the document's figures: bytes of JSON from the server to the devices, of frames and of replies to
// sync.
const amplification = "push 600 events 241 500 B; hint, all read: 600 hints 22 800 B + 145 syncs 250 938 B = 273 738 B; hint, a fifth reads: 600 hints 22 800 B + 56 syncs 53 966 B = 76 766 B"

// check08Modes are the document's experiment: 40 members, 30 devices online, 20 messages of 200 characters to each of
// three groups: push, hints that all read, and hints that one device in five reads.
func check08Modes(t *testing.T) {
	var once sync.Once
	var shared []*modeRun
	asInDocument := func(t *testing.T) []*modeRun {
		once.Do(func() { shared = threeGroups(t, "0s", false) })
		if shared == nil {
			t.Fatal("the experiment failed in the other check that it serves")
		}
		return shared
	}
	evidence.Run(t, evidence.Check{
		ID: "08-both-modes-complete", Document: "PASS",
		Expected: "u-push: 30 of 30 readers complete, 30 know head 60; u-pull: 30 of 30 readers complete, 30 know head 60; u-lazy: 6 of 6 readers complete, 30 know head 60",
		Observe: func(t *testing.T) string {
			return each(threeGroups(t, "200ms", false), (*modeRun).complete)
		},
		Control: evidence.Control{Is: "devices that only take what they are pushed", Observe: func(t *testing.T) string {
			return each(threeGroups(t, "200ms", true), (*modeRun).complete)
		}},
	})
	evidence.Run(t, evidence.Check{
		ID: "08-amplification-compared", Document: amplification,
		Observe: func(t *testing.T) string {
			return "as in the document, hints do not wait: " + each(asInDocument(t), (*modeRun).volume) +
				"\nhints wait for 200 ms: " + each(threeGroups(t, "200ms", false), (*modeRun).volume) +
				"\nwhat TLS and TCP add is not in it"
		},
	})
	evidence.Run(t, evidence.Check{
		ID: "08-pull-lazy-readers", Document: "600 hints 22 800 B, 56 syncs 53 966 B, 32 % of push; 24 devices only know the head",
		Observe: func(t *testing.T) string {
			runs := asInDocument(t)
			push, lazy := runs[0], runs[2]
			return fmt.Sprintf("%s, %.0f %% of push; %d devices only know the head", lazy.volume(),
				100*float64(lazy.told.bytes+lazy.synced.bytes)/float64(push.told.bytes), lazy.know-lazy.readers)
		},
	})
}

// modeRun is what became of one group.
type modeRun struct {
	conv         string
	readers, has int    // devices that read, and those of them that have all messages
	know         int    // devices that know the head
	told, synced amount // events and hints, and replies to sync
}

func (r *modeRun) complete() string {
	return fmt.Sprintf("%s: %d of %d readers complete, %d know head 60", r.conv, r.has, r.readers, r.know)
}

func (r *modeRun) volume() string {
	return fmt.Sprintf("%s %d frames %d B + %d syncs %d B = %d B (with frame headers %d B)", r.conv, r.told.frames, r.told.bytes,
		r.synced.frames, r.synced.bytes, r.told.bytes+r.synced.bytes, r.told.framed+r.synced.framed)
}

func each(runs []*modeRun, f func(*modeRun) string) string {
	var list []string
	for _, r := range runs {
		list = append(list, f(r))
	}
	return strings.Join(list, "; ")
}

// threeGroups runs the experiment, one group after the other. pushOnly devices never sync.
func threeGroups(t *testing.T, window string, pushOnly bool) []*modeRun {
	convs := []string{"u-push", "u-pull", "u-lazy"}
	d := newDatabase(t)
	var list []postgres.PopulationConv
	for i, c := range convs {
		g := group(c, forty()...)
		if i > 0 {
			g.Mode = "pull"
		}
		list = append(list, g)
	}
	d.provision(list...)
	g := d.gateway(gatewayOptions{args: []string{"-sweep", "0s", "-hint-window", window, "-queue", "256"}})
	var phones []*phone
	for i := range 30 {
		p := newPhone(t, as(nth(i+1)))
		for _, c := range convs {
			p.conv(c).Cursor = 40
		}
		p.dial(g)
		phones = append(phones, p)
	}
	sender := g.connect(as(nth(40)))
	var runs []*modeRun
	for _, c := range convs {
		r := &modeRun{conv: c}
		for i, p := range phones {
			if c != "u-lazy" || i%5 == 0 {
				r.readers++
			}
			r.count(p, -1)
		}
		var wg sync.WaitGroup
		for i, p := range phones {
			reads := (c != "u-lazy" || i%5 == 0) && !pushOnly
			wg.Go(func() { p.follow(c, 60, reads) })
		}
		for i := range 20 {
			sender.send(c, fmt.Sprint("k", i), strings.Repeat("m", 200))
		}
		wg.Wait()
		for _, p := range phones {
			r.count(p, 1)
			r.know++ // or it would not have come to the end
			if len(p.conv(c).Seqs) == 20 {
				r.has++
			}
		}
		runs = append(runs, r)
	}
	return runs
}

// count adds what has come to a device so far, or takes it away.
func (r *modeRun) count(p *phone, sign int) {
	for _, x := range []struct {
		sum *amount
		t   wire.Type
	}{{&r.told, wire.TEvent}, {&r.told, wire.THint}, {&r.synced, wire.TSynced}} {
		a := p.c.came(x.t)
		x.sum.add(amount{sign * a.frames, sign * a.bytes, sign * a.framed})
	}
}

// follow takes what comes of a conversation until the device knows that it reaches to head. A reader has one sync under
// way; the hints that came meanwhile lead to one more.
func (p *phone) follow(conv string, head int64, reads bool) {
	for known := int64(0); known < head; {
		f, ok := p.c.next(), true
		for ; ok; f, ok = p.c.nextWithin(0) {
			if f.T == wire.TEvent && !p.apply(f.Ev) && reads {
				p.catchUp(conv)
			}
			known = max(known, f.Head, f.Ev.Seq)
		}
		if reads && known > p.conv(conv).Cursor {
			p.catchUp(conv)
		}
	}
}

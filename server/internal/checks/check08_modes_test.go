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
		once.Do(func() { shared = threeGroups(t, experiment{window: "0s"}) })
		if shared == nil {
			t.Fatal("the experiment failed in the other check that it serves")
		}
		return shared
	}
	evidence.Run(t, evidence.Check{
		ID: "08-both-modes-complete", Document: "PASS",
		Expected: "u-push: 30 of 30 readers complete, 30 know head 60; u-pull: 30 of 30 readers complete, 30 know head 60; u-lazy: 6 of 6 readers complete, 30 know head 60",
		Observe: func(t *testing.T) string {
			return each(threeGroups(t, experiment{window: "200ms"}), (*modeRun).complete)
		},
		Control: evidence.Control{Is: "devices that only take what they are pushed", Observe: func(t *testing.T) string {
			return each(threeGroups(t, experiment{window: "200ms", pushOnly: true}), (*modeRun).complete)
		}},
	})
	evidence.Run(t, evidence.Check{
		ID: "08-amplification-compared", Document: amplification,
		Observe: func(t *testing.T) string {
			plain := asInDocument(t)
			secret := threeGroups(t, experiment{window: "0s", tls: true})
			merged := threeGroups(t, experiment{window: "200ms", tls: true})
			return "as in the document, hints do not wait: " + each(plain, (*modeRun).volume) + onTheWire(plain) +
				"\nthe same through TLS, where a hint may meet the next one in the queue: " + onTheWire(secret) + asDocumented(secret) +
				"\nthrough TLS, hints wait for 200 ms: " + each(merged, (*modeRun).volume) + onTheWire(merged)
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

	all      amount  // frames of any type
	down, up packets // to and from the devices, below TLS
	tapped   bool    // these are known
	tls      bool
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

// documents are the document's figures as numbers: frames (events or hints, and replies to sync) and their bytes of JSON.
var documents = map[string]amount{"u-push": {frames: 600, bytes: 241_500}, "u-pull": {frames: 745, bytes: 273_738},
	"u-lazy": {frames: 656, bytes: 76_766}}

const untapped = "\nthis system does not tell what passes through a socket: bytes on the wire are not measured"

// onTheWire tells what the gateway's JSON becomes, layer by layer, as the devices' kernel counted it, and what they send.
func onTheWire(runs []*modeRun) string {
	var b strings.Builder
	for _, r := range runs {
		if !r.tapped {
			return untapped
		}
		layers := fmt.Sprintf("frame headers %d B", r.all.framed)
		if r.tls {
			layers += fmt.Sprintf(", and TLS records %d B", r.down.bytes)
		}
		fmt.Fprintf(&b, "\n  %s on the wire: JSON %d B, with %s, and TCP/IP headers of %d packets %d B, %.0f %% of push; from the devices %d packets %d B",
			r.conv, r.all.bytes, layers, r.down.segments, r.down.wire(), 100*float64(r.down.wire())/float64(runs[0].down.wire()),
			r.up.segments, r.up.wire())
	}
	return b.String()
}

// asDocumented is what the document's figures would become on the wire: computed, not measured. Each of its frames is
// given what our frames of the same kind of group cost beside their JSON.
func asDocumented(runs []*modeRun) string {
	list := "\n  the document's, with the same cost a frame (computed):"
	push := 0
	for _, r := range runs {
		if !r.tapped {
			return ""
		}
		d := documents[r.conv]
		on := d.bytes + (r.down.wire()-r.all.bytes)*d.frames/r.all.frames
		if push == 0 {
			push = on
		}
		list += fmt.Sprintf(" %s %d B of JSON, %d B on the wire, %.0f %% of push;", r.conv, d.bytes, on, 100*float64(on)/float64(push))
	}
	return strings.TrimSuffix(list, ";")
}

// experiment says how a run of the document's experiment differs from its own.
type experiment struct {
	window   string // how long hints wait for others
	pushOnly bool   // the devices never sync
	tls      bool
}

// threeGroups runs the experiment, one group after the other.
func threeGroups(t *testing.T, e experiment) []*modeRun {
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
	o := gatewayOptions{args: []string{"-sweep", "0s", "-hint-window", e.window, "-queue", "256"}, dialer: tapped()}
	if e.tls {
		flags, trust := encrypted(t)
		o.args, o.dialer.TLSClientConfig = append(o.args, flags...), trust
	}
	g := d.gateway(o)
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
		r := &modeRun{conv: c, tapped: true, tls: e.tls}
		for i, p := range phones {
			if c != "u-lazy" || i%5 == 0 {
				r.readers++
			}
			r.count(p, -1)
		}
		var wg sync.WaitGroup
		for i, p := range phones {
			reads := (c != "u-lazy" || i%5 == 0) && !e.pushOnly
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
	if r.tapped {
		var down, up packets
		down, up, r.tapped = p.c.tap()
		r.down.add(down, sign)
		r.up.add(up, sign)
	}
	p.c.mu.Lock()
	for _, a := range p.c.got {
		r.all.add(amount{sign * a.frames, sign * a.bytes, sign * a.framed})
	}
	p.c.mu.Unlock()
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

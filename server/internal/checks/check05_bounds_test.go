package checks

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"imbench/server/internal/evidence"
	"imbench/server/internal/im"
	"imbench/server/wire"
)

// check05Bounds are the checks of peers that are gone, or do not read.
func check05Bounds(t *testing.T) {
	evidence.Run(t, evidence.Check{
		ID:       "05-half-open-found",
		Expected: "two are silent, one of them gone without a reset: its connection and its route end, the other's stay; back again it has what was sent meanwhile",
		Observe:  func(t *testing.T) string { return halfOpen(t, "1s", patience) },
		Control: evidence.Control{Is: "a heartbeat of an hour", Observe: func(t *testing.T) string {
			return halfOpen(t, "1h", 6*time.Second)
		}},
	})
	evidence.Run(t, evidence.Check{
		ID:       "05-slow-receiver-4008",
		Expected: "one of 11 receivers stops reading: all messages reach the 10 others, no more than 5 × later than before; it is closed with 4008, and back again it has them all",
		Observe:  slowReceiver,
		Control:  evidence.Control{Is: "a server that writes to one after the other", Observe: besideNaive},
	})
	evidence.Run(t, evidence.Check{
		ID:       "05-queue-bounded-in-bytes",
		Expected: "4 MB for a device that reads a quarter of what comes: closed with 4008 when less than 1.5 MB waited",
		NotRun:   needsNarrow(),
		Observe:  func(t *testing.T) string { return queueBytes(t, "262144", patience) },
		Control: evidence.Control{Is: "a limit of 1 GiB (-queue-bytes)", Observe: func(t *testing.T) string {
			return queueBytes(t, "1073741824", time.Second)
		}},
	})
}

// halfOpen has two devices that say nothing. From a moment on no packet comes to the one any more, and none from it: the
// other answers pings.
func halfOpen(t *testing.T, heartbeat string, limit time.Duration) string {
	d := newDatabase(t)
	d.provision(group("u-g", "u-ana", "u-ben", "u-cai"))
	g := d.gateway(gatewayOptions{args: []string{"-heartbeat", heartbeat}})
	ana, ben := g.connect(as("u-ana")), g.connect(as("u-ben"))
	cai := as("u-cai")
	r := g.rawConnect(cai, nil)
	how := "it answers nothing"
	if canMuffle {
		how = "its packets are thrown away, both ways"
		sc, err := r.nc.SyscallConn()
		if err == nil {
			err = muffle(sc)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	ana.send("u-g", "k", "x")
	routed := func(p im.Principal) bool {
		return d.text(`SELECT count(*) FROM routes WHERE device_id = $1`, p.Device) == "1"
	}
	seen := "its connection and its route end"
	if !becomes(t, limit, func() bool { return !routed(cai) && g.metric("im_connections") == 2 }) {
		seen = "its connection stays"
	}
	took := time.Since(began)
	others := "the other's stay"
	if f, ok := ben.try(wire.Request{T: wire.TPing}, patience); !ok || f.T != wire.TPong || !routed(as("u-ben")) {
		others = "the other's end too"
	}
	back := "back again it has what was sent meanwhile"
	if f := g.connect(cai).sync("u-g", 3, 0); len(f.Events) != 1 || f.Events[0].CMID != "k" {
		back = fmt.Sprintf("back again it has %+v", f.Events)
	}
	return fmt.Sprintf("two are silent, one of them gone without a reset: %s, %s; %s\n%s; after %.1f s with a heartbeat of %s",
		seen, others, back, how, took.Seconds(), heartbeat)
}

// rounds publishes n messages, one when the last has come to all, and returns the median of the times that it took them
// to reach the last receiver; false: one did not come.
func rounds(n int, publish func(i int), to []*client) (median time.Duration, ok bool) {
	var took []time.Duration
	for i := range n {
		began := time.Now()
		publish(i)
		for _, c := range to {
			f, came := c.nextWithin(patience / 6)
			for came && f.T != wire.TEvent {
				f, came = c.nextWithin(patience / 6)
			}
			if !came {
				return 0, false
			}
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took[n/2], true
}

// costs says what the slow one costs the others.
func costs(quiet, beside time.Duration, ok bool) string {
	switch ratio := float64(beside) / float64(quiet); {
	case !ok:
		return "not all messages reach the 10 others"
	case ratio > 5:
		return "all messages reach the 10 others, more than 5 × later than before"
	}
	return onTime
}

const onTime = "all messages reach the 10 others, no more than 5 × later than before"

// slowReceiver fills the slow one's socket by a conversation of its own, so that the others have the same to do in both
// runs.
func slowReceiver(t *testing.T) string {
	const n = 40
	d := newDatabase(t)
	members := []string{"u-ana", "u-slow"}
	for i := range 10 {
		members = append(members, member(i+1))
	}
	d.provision(group("u-g", members...), direct("u-fill", "u-ana", "u-slow"))
	g := d.gateway(gatewayOptions{args: []string{"-sweep", "0s", "-request-rate", "0"}})
	ana := g.connect(as("u-ana"))
	var others []*client
	for _, u := range members[2:] {
		others = append(others, g.connect(as(u)))
	}
	publish := func(prefix string) func(int) {
		return func(i int) { ana.send("u-g", fmt.Sprint(prefix, i), "x") }
	}
	quiet, ok := rounds(n, publish("quiet"), others)
	g.rawConnect(as("u-slow"), narrow)
	big := strings.Repeat("x", wire.MaxBody)
	for i := 0; g.metric("im_queue_collapses_total") == 0; i++ { // half of its queue waits
		if i == 2000 {
			t.Fatal("the socket takes 16 MB unread")
		}
		ana.send("u-fill", fmt.Sprint("fill", i), big)
	}
	ended := func() bool { return g.metric("im_closes_total", `code="4008"`) == 1 }
	var seen string
	var beside time.Duration
	total := n
	// Other checks share the machine: what they do to one run they do not do to each, while the socket is full.
	for again := true; again; again = seen != onTime && !ended() {
		var came bool
		beside, came = rounds(n, publish(fmt.Sprint("beside", total)), others)
		seen = costs(quiet, beside, ok && came)
		total += n
	}
	closed := "is not closed"
	if becomes(t, patience, ended) {
		closed = "is closed with 4008"
	}
	back := g.connect(as("u-slow"))
	had := 0
	for f := (wire.Frame{NextAfter: 12, HasMore: true}); f.HasMore; {
		f = back.sync("u-g", f.NextAfter, 0)
		had += len(f.Events)
	}
	all := "has them all"
	if had != total {
		all = fmt.Sprintf("has %d of %d", had, total)
	}
	return fmt.Sprintf("one of 11 receivers stops reading: %s; it %s, and back again it %s\nmedian from the send to the last of 10: %v before, %v beside it",
		seen, closed, all, quiet.Round(time.Microsecond), beside.Round(time.Microsecond))
}

// needsNarrow is why what waits in the gateway cannot be told from what waits in the sockets; "" where it can.
func needsNarrow() string {
	if canMuffle {
		return ""
	}
	return "on this system the buffers of a connection cannot be made small, and would hide the gateway's queue"
}

// queueBytes publishes eight messages of 8 KiB at a time to a device that takes two of them: it makes progress, and
// falls behind. Neither the limit of frames nor the time without progress ends it. The end must come within the limit.
func queueBytes(t *testing.T, most string, limit time.Duration) string {
	const total, step, taken = 4 << 20, 8 * wire.MaxBody, 2 * wire.MaxBody
	d := withDirect(t)
	g := d.gateway(gatewayOptions{args: []string{"-sweep", "0s", "-request-rate", "0", "-queue", "65536", "-queue-bytes", most}})
	ana := g.connect(as("u-ana"))
	r := g.rawConnect(as("u-ben"), narrow)
	big := strings.Repeat("x", wire.MaxBody)
	ended := func() bool { return g.metric("im_closes_total", `code="4008"`) == 1 }
	sent, read := 0, 0
	for ; sent < total && !ended(); sent += step {
		for i := range 8 {
			ana.send("u-ab", fmt.Sprint(sent, "-", i), big)
		}
		n, _ := io.CopyN(io.Discard, r.br, taken) // an error means that it has ended
		read += int(n)
	}
	waited, _ := io.Copy(io.Discard, &untilQuiet{r})
	seen := "not closed"
	if becomes(t, limit, ended) {
		seen = "closed with 4008"
	}
	bound := "less than 1.5 MB waited"
	if float64(waited) > 1.5e6 {
		bound = fmt.Sprintf("%d bytes waited", waited)
	}
	return fmt.Sprintf("4 MB for a device that reads a quarter of what comes: %s when %s\n%d bytes of messages sent, %d read meanwhile, %d came afterwards, from the queue and the sockets",
		seen, bound, sent, read, waited)
}

// untilQuiet reads what still comes, until nothing does for a moment.
type untilQuiet struct{ *raw }

func (u *untilQuiet) Read(b []byte) (int, error) {
	u.patient(3 * time.Second)
	return u.br.Read(b)
}

package checks

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"imbench/server/internal/evidence"
	"imbench/server/wire"
)

// Chapter 05, connections: one a device, and none that costs the others.
func TestCheck05(t *testing.T) {
	evidence.Run(t, evidence.Check{
		ID:       "05-one-connection-per-device",
		Expected: "one after another at two gateways: closed with 4003 4003 4003, the last answers; 8 at once: 7 closed with 4003, 1 answers, and the route is its",
		Observe:  func(t *testing.T) string { return oneConnection(withDirect(t), patience) },
		Control: evidence.Control{Is: "a claim that does not raise the device's generation", Observe: func(t *testing.T) string {
			d := withDirect(t)
			d.oneGeneration()
			return oneConnection(d, 2*time.Second)
		}},
	})
	evidence.Run(t, evidence.Check{
		ID:       "05-old-cleanup-keeps-new-route",
		Expected: "the old gateway cleans up after the device has come to the new one: the route is the new one's, and a message is pushed there",
		Observe:  func(t *testing.T) string { return lateCleanup(withDirect(t)) },
		Control: evidence.Control{Is: "a claim that does not raise the device's generation", Observe: func(t *testing.T) string {
			d := withDirect(t)
			d.oneGeneration()
			return lateCleanup(d)
		}},
	})
	check05Bounds(t)
	check05Frames(t)
	check05Tokens(t)
}

// oneGeneration breaks the fence: each claim of a device has the generation of the one before.
func (d *database) oneGeneration() {
	d.t.Helper()
	d.exec(`CREATE FUNCTION same_generation() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.route_generation := 1; RETURN NEW; END'`)
	d.exec(`CREATE TRIGGER same_generation BEFORE UPDATE ON devices FOR EACH ROW EXECUTE FUNCTION same_generation()`)
}

// ending is how the connection ends within the limit: a close code, "cut", or "open" if it does not.
func (c *client) ending(limit time.Duration) string {
	select {
	case <-c.gone:
	case <-time.After(limit):
		return "open"
	}
	var ce *websocket.CloseError
	if errors.As(c.err, &ce) && ce.Code != websocket.CloseAbnormalClosure {
		return fmt.Sprint(ce.Code)
	}
	return "cut"
}

// oneConnection connects a device again and again, at two gateways. Each end must come within the limit.
func oneConnection(d *database, limit time.Duration) string {
	ben := as("u-ben")
	gs := []*gateway{d.gateway(gatewayOptions{}), d.gateway(gatewayOptions{})}
	var ended []string
	last := gs[0].connect(ben)
	for _, g := range []*gateway{gs[0], gs[1], gs[0]} {
		next := g.connect(ben)
		ended = append(ended, last.ending(limit))
		last = next
	}
	seen := fmt.Sprintf("one after another at two gateways: closed with %s, the last ", strings.Join(ended, " "))
	if f, ok := last.try(wire.Request{T: wire.TPing}, patience); ok && f.T == wire.TPong {
		seen += "answers"
	} else {
		seen += "does not answer"
	}
	// The hellos go out without waiting for one another: which wins is open.
	var storm []*client
	var welcomes []<-chan wire.Frame
	for i := range 8 {
		storm = append(storm, gs[i%2].dial(ben))
	}
	for _, c := range storm {
		welcomes = append(welcomes, c.start(wire.Request{T: wire.THello, Device: ben.Device, Install: ben.Install}))
	}
	var open []*client
	var route string
	replaced := 0
	becomes(d.t, limit, func() bool {
		open, replaced = nil, 0
		for _, c := range storm {
			switch c.ending(0) {
			case "open":
				open = append(open, c)
			case "4003":
				replaced++
			}
		}
		return len(open) <= 1
	})
	mine := "the route is another's"
	for _, c := range open {
		f, ok := c.reply(welcomes[slices.Index(storm, c)], patience)
		route = d.text(`SELECT gateway_id || ' ' || conn_id FROM routes WHERE device_id = $1`, ben.Device)
		if pong, alive := c.try(wire.Request{T: wire.TPing}, patience); ok && alive && pong.T == wire.TPong && route == fmt.Sprint(f.Gateway, " ", f.Conn) {
			mine = "the route is its"
		}
	}
	return fmt.Sprintf("%s; 8 at once: %d closed with 4003, %d answers, and %s", seen, replaced, len(open), mine)
}

// lateCleanup stops the old gateway while the device goes to the new one; when it goes on it finds the old socket ended,
// and releases what it believes to be the device's route.
func lateCleanup(d *database) string {
	before, after := d.gateway(gatewayOptions{}), d.gateway(gatewayOptions{})
	ana := after.connect(as("u-ana"))
	old := before.connect(as("u-ben"))
	signal := func(s os.Signal) {
		if err := before.stack.Kill(0, s); err != nil {
			d.t.Error(err)
		}
	}
	signal(syscall.SIGSTOP)
	d.t.Cleanup(func() { signal(syscall.SIGCONT) }) // who is stopped cannot end
	old.close()
	ben := after.connect(as("u-ben"))
	signal(syscall.SIGCONT)
	if !becomes(d.t, patience, func() bool { return before.metric("im_batch_seconds_count", `batcher="release"`) >= 1 }) {
		d.t.Fatal("the old gateway does not clean up")
	}
	route := "the route is none's"
	switch d.text(`SELECT gateway_id FROM routes WHERE device_id = $1`, as("u-ben").Device) {
	case after.id:
		route = "the route is the new one's"
	case before.id:
		route = "the route is the old one's"
	}
	ana.send("u-ab", "k", "x")
	pushed := "nothing is pushed there"
	if f, ok := ben.nextWithin(patience); ok && f.T == wire.TEvent && f.Ev.Seq == 3 {
		pushed = "a message is pushed there"
	}
	return fmt.Sprintf("the old gateway cleans up after the device has come to the new one: %s, and %s", route, pushed)
}

package checks

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"imbench/server/internal/evidence"
	"imbench/server/internal/im"
	"imbench/server/internal/postgres"
	"imbench/server/wire"
)

// check10Bus is about announcements that do not arrive as they were sent.
func check10Bus(t *testing.T) {
	evidence.Run(t, evidence.Check{
		ID: "10-listener-cut",
		Expected: "cut in a burst, without a sweep: of the conversation that was told of before, all 40 of the burst; of one that was quiet, its only message; " +
			"of one with 100 more, a hint to its head",
		Observe: func(t *testing.T) string { return listenerCut(t, "", patience) },
		Control: evidence.Control{Is: "the gateway listens again, and does not ask what it has missed", Observe: func(t *testing.T) string {
			return listenerCut(t, "bus.resync=drop", 3*time.Second)
		}},
	})
	evidence.Run(t, evidence.Check{
		ID: "10-bus-lossy",
		Expected: "announcements lost, repeated and reordered at two gateways, while messages are sent at both and someone joins and leaves: " +
			"every message is stored once, and all devices have all of them once and in order",
		Observe: func(t *testing.T) string { return busLossy(t, "bus.receive=on", "300ms", patience) },
		Control: evidence.Control{Is: "every announcement is lost, and nothing sweeps", Observe: func(t *testing.T) string {
			return busLossy(t, "bus.receive=drop", "0s", 3*time.Second)
		}},
	})
}

// listenerCut terminates the announcement connection of ben's gateway while ana sends at another, and keeps the gateway from
// connecting anew until the burst is over. What is missed must come within the limit.
func listenerCut(t *testing.T, faults string, limit time.Duration) string {
	d := newDatabase(t)
	d.provision(direct("u-ab", "u-ana", "u-ben"), direct("u-bc", "u-ben", "u-cai"), group("u-g", "u-ana", "u-ben"))
	noSweep := []string{"-sweep", "0s", "-hint-window", "0s"}
	a, b := d.gateway(gatewayOptions{args: noSweep}), d.gateway(gatewayOptions{args: noSweep, faults: faults})
	ana, ben := a.connect(as("u-ana")), b.connect(as("u-ben"))
	for _, conv := range []string{"u-ab", "u-g"} { // they are told of: 3
		ana.send(conv, "before", "x")
		ben.next()
	}
	cai := a.connect(as("u-cai"))
	ana.send("u-ab", "k0", "x") // 4 is the first of the burst, or comes before it
	name, listener := d.text(`SELECT current_database()`), "imbench bus listener "+b.id
	adminExec(t, serverURL, "ALTER DATABASE "+name+" WITH ALLOW_CONNECTIONS false")
	allow := func() { adminExec(t, serverURL, "ALTER DATABASE "+name+" WITH ALLOW_CONNECTIONS true") }
	t.Cleanup(allow)
	if n := d.text(`SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = $1`, listener); n != "1" {
		t.Fatalf("%s listeners were terminated", n)
	}
	if !becomes(t, patience, func() bool { return b.metric("im_bus_listening") == 0 }) {
		t.Fatal("the gateway does not notice that its listener was cut")
	}
	for i := range 39 {
		ana.send("u-ab", fmt.Sprint("k", i+1), "x")
	}
	for i := range 100 {
		ana.send("u-g", fmt.Sprint("k", i), "x")
	}
	cai.send("u-bc", "k", "x")
	allow()
	began := time.Now()
	if !becomes(t, patience, func() bool { return b.metric("im_bus_listening") == 1 }) {
		t.Fatal("the gateway does not listen again")
	}
	var events, quiet int
	next, hinted := int64(4), int64(0)
	for events < 40 || quiet < 1 || hinted < 103 {
		f, ok := ben.nextWithin(time.Until(began.Add(limit)))
		if !ok {
			break
		}
		switch {
		case f.T == wire.TEvent && f.Ev.Conv == "u-ab" && f.Ev.Seq == next:
			events, next = events+1, next+1
		case f.T == wire.TEvent && f.Ev.Conv == "u-bc" && f.Ev.Seq == 3:
			quiet++
		case f.T == wire.THint && f.Conv == "u-g":
			hinted = f.Head
		default:
			return fmt.Sprintf("after %d events of the burst: %+v", events, f)
		}
	}
	took := time.Since(began).Milliseconds()
	seen := fmt.Sprintf("cut in a burst, without a sweep: of the conversation that was told of before, %d of the burst", events)
	if events == 40 {
		seen = "cut in a burst, without a sweep: of the conversation that was told of before, all 40 of the burst"
	}
	seen += map[int]string{0: "; of one that was quiet, nothing", 1: "; of one that was quiet, its only message"}[quiet]
	if hinted == 103 {
		seen += "; of one with 100 more, a hint to its head"
	} else {
		seen += fmt.Sprintf("; of one with 100 more, a hint to %d", hinted)
	}
	return fmt.Sprintf("%s\n%d ms from the time that it could connect again until it had caught up", seen, took)
}

// busLossy has 12 members' devices at two gateways that hear each other badly. Two of them send, and a thirteenth user
// joins and leaves. It must all have come within the limit.
func busLossy(t *testing.T, faults, sweep string, limit time.Duration) string {
	d := newDatabase(t)
	c := group("u-g")
	for i := range twelve {
		c.Members = append(c.Members, nth(i+1))
	}
	d.provisionWith([]string{"u-new"}, []postgres.PopulationConv{c}...)
	o := gatewayOptions{faults: faults, args: []string{"-sweep", sweep, "-grace", "300ms", "-hint-window", "0s"}}
	gs := []*gateway{d.gateway(o), d.gateway(o)}
	var rs []*roamer
	for i := range twelve {
		r, _ := roam(t, as(nth(i+1)), "u-g", twelve, func(int) *gateway { return gs[i%2] })
		rs = append(rs, r)
	}
	if !becomes(t, patience, func() bool { return all(rs, func(r *roamer) bool { return r.place() != "" }) }) {
		t.Fatal("the devices do not come online")
	}
	const each = 60
	web := gs[0].web(im.Principal{User: nth(1), Device: device(nth(1), 2).Device, Install: 1})
	for i := range each {
		rs[0].put(fmt.Sprint("a", i))
		rs[1].put(fmt.Sprint("b", i))
		if i%5 == 0 && !becomes(t, patience, func() bool { return rs[0].idle() && rs[1].idle() }) {
			t.Fatal("messages are not sent")
		}
		switch i {
		case each / 3:
			web.join("u-g", "u-new")
		case 2 * each / 3:
			web.leave("u-g", "u-new")
		}
	}
	last := int64(twelve + 2*each + 2)
	becomes(t, limit, func() bool { return incomplete(rs, twelve+1, last) == "" })
	heard := gs[0].metric("im_bus_received_total") + gs[1].metric("im_bus_received_total")
	hints := gs[0].metric("im_sweep_hints_total") + gs[1].metric("im_sweep_hints_total")
	return fmt.Sprintf("announcements lost, repeated and reordered at two gateways, while messages are sent at both and someone joins and leaves%s"+
		"\n%.0f announcing payloads were heard, %.0f hints came from the sweep's memory", strings.Replace(stored(d, 2*each, incomplete(rs, twelve+1, last)), "; ", ": ", 1), heard, hints)
}

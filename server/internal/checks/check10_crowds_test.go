package checks

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"imbench/server/internal/evidence"
)

// check10Crowds is about many devices that move at once.
func check10Crowds(t *testing.T) {
	evidence.Run(t, evidence.Check{
		ID: "10-admission-holds",
		Expected: "80 devices cut at once are back, not faster than 20 a second after the first 10; most were turned away, all of these with 4009 " +
			"and a time of its own to come back, the latest within the 3.5 s that the rate needs; who was connected is served meanwhile",
		Observe: func(t *testing.T) string { return storm(t, "20") },
		Control: evidence.Control{Is: "a gateway without a limit", Observe: func(t *testing.T) string { return storm(t, "0") }},
	})
	evidence.Run(t, evidence.Check{
		ID: "10-drain-loses-nothing",
		Expected: "three gateways were replaced one after another under traffic, by SIGTERM, the admin API and SIGTERM; each told its devices that it drains, " +
			"and closed them with 4010 and nothing else; every message is stored once, and all devices have all of them once and in order",
		Observe: func(t *testing.T) string { return rollingRestart(withTwelve(t), false) },
		Control: evidence.Control{Is: "devices that do not sync after they have come back", Observe: func(t *testing.T) string {
			return rollingRestart(withTwelve(t), true)
		}},
	})
}

// storm cuts 80 devices at one gateway by killing it; all go to another one, which admits so many a second.
func storm(t *testing.T, admission string) string {
	const devices, rate, burst = 80, 20, 10
	d := newDatabase(t)
	c := group("u-g")
	for i := range devices/2 + 1 {
		c.Members = append(c.Members, nth(i+1))
	}
	d.provision(c)
	a, b := d.gateway(gatewayOptions{}), d.gateway(gatewayOptions{args: []string{"-admission", admission}})
	served := b.connect(as(nth(devices/2 + 1)))
	var rs []*roamer
	for i := range devices {
		r, _ := roam(t, device(nth(i/2+1), i%2+1), "u-g", devices/2+1, func(try int) *gateway {
			if try == 0 {
				return a
			}
			return b
		})
		rs = append(rs, r)
	}
	at := func(g *gateway) func() bool {
		return func() bool { return all(rs, func(r *roamer) bool { return r.place() == g.id }) }
	}
	if !becomes(t, patience, at(a)) {
		t.Fatal("the devices do not come online")
	}
	began := time.Now()
	a.signal(syscall.SIGKILL)
	busy := "served"
	if f := served.send("u-g", "k", "x"); f.Seq == 0 {
		busy = fmt.Sprintf("not served: %+v", f)
	}
	back := becomes(t, patience, at(b))
	took := time.Since(began)
	seen := fmt.Sprintf("%d devices cut at once are ", devices)
	switch least := time.Duration(devices-burst) * time.Second / rate; {
	case !back:
		seen += "not all back"
	case took < least:
		seen += fmt.Sprintf("back, faster than %d a second after the first %d", rate, burst)
	default:
		seen += fmt.Sprintf("back, not faster than %d a second after the first %d", rate, burst)
	}
	var waits []int
	for _, r := range rs {
		r.set(func() { waits = append(waits, r.waits...) })
	}
	away := tally(rs, func(r *roamer) map[string]int { return r.away })
	slices.Sort(waits)
	n := len(waits)
	switch {
	case n < devices/2:
		seen += fmt.Sprintf("; %d were turned away", n)
	case away != fmt.Sprintf("4009: %d", n):
		seen += fmt.Sprintf("; turned away with %s, %d were told when to come back", away, n)
	case waits[n-1] > 1000*(devices-burst)/rate+1:
		seen += fmt.Sprintf("; turned away for up to %d ms", waits[n-1])
	case len(slices.Compact(slices.Clone(waits))) < n*9/10: // told at slightly different times, two may be the same number
		seen += "; many were told the same time"
	default:
		seen += "; most were turned away, all of these with 4009 and a time of its own to come back, the latest within the 3.5 s that the rate needs"
	}
	return fmt.Sprintf("%s; who was connected is %s meanwhile\n%.1f s until all were back, %d times someone was turned away", seen, busy, took.Seconds(), n)
}

// fleet is gateways of which one may be replaced while devices look for one.
type fleet struct {
	mu sync.Mutex
	gs []*gateway
}

func (f *fleet) at(i int) *gateway {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.gs[i%len(f.gs)]
}

func (f *fleet) replace(i int, g *gateway) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gs[i] = g
}

// askToDrain drains the gateway through the admin API.
func (g *gateway) askToDrain() {
	g.t.Helper()
	req, err := http.NewRequestWithContext(g.t.Context(), http.MethodPost, g.stack.AdminURLs[0]+"/admin/v1/drain", nil)
	if err != nil {
		g.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+g.stack.AdminToken)
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		g.t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusAccepted {
		g.t.Fatalf("drain: %s", resp.Status)
	}
}

// ended waits until the gateway's process is no more.
func (g *gateway) ended() {
	g.t.Helper()
	pid := g.stack.Processes()[0].PID
	if !becomes(g.t, patience, func() bool { return syscall.Kill(pid, 0) != nil }) {
		g.t.Fatalf("%s does not end", g.id)
	}
}

// rollingRestart replaces three gateways one after another while 24 devices, two of which send, are connected to them.
func rollingRestart(d *database, noSync bool) string {
	args := []string{"-drain", "1s", "-sweep", "0s"}
	f := &fleet{}
	for range 3 {
		f.gs = append(f.gs, d.gateway(gatewayOptions{args: args}))
	}
	var rs []*roamer
	var stops []func()
	for i := range 2 * twelve {
		r, stop := roam(d.t, device(nth(i/2+1), i%2+1), "u-g", twelve, func(try int) *gateway { return f.at(i + try) },
			func(r *roamer) { r.noSync = noSync && i > 1 })
		rs, stops = append(rs, r), append(stops, stop)
	}
	online := func() bool { return all(rs, func(r *roamer) bool { return r.place() != "" }) }
	if !becomes(d.t, patience, online) {
		d.t.Fatal("the devices do not come online")
	}
	ctx, cancel := context.WithCancel(context.Background())
	var traffic sync.WaitGroup
	var sent int
	traffic.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for ; ctx.Err() == nil; sent++ {
			rs[sent%2].put(fmt.Sprint("k", sent))
			<-tick.C
		}
	})
	var slices []string
	for i := range f.gs {
		old := f.at(i)
		began, before := time.Now(), len(endings(rs))
		if i == 1 {
			old.askToDrain()
		} else {
			old.signal(syscall.SIGTERM)
		}
		old.ended()
		if after := endings(rs)[before:]; len(after) > 0 {
			slices = append(slices, fmt.Sprintf("%d in %d ms", len(after), after[len(after)-1].Sub(after[0]).Milliseconds()))
		}
		f.replace(i, d.gateway(gatewayOptions{args: args, id: old.id}))
		if !becomes(d.t, patience, online) {
			d.t.Fatalf("the devices do not come back within a minute after %v", time.Since(began))
		}
	}
	cancel()
	traffic.Wait()
	last := int64(twelve + sent)
	limit := patience
	if noSync {
		limit = 2 * time.Second
	}
	becomes(d.t, limit, func() bool { return rs[0].idle() && rs[1].idle() && incomplete(rs, twelve+1, last) == "" })
	for _, stop := range stops {
		stop()
	}
	seen := "three gateways were replaced one after another under traffic, by SIGTERM, the admin API and SIGTERM"
	ends, drains := tally(rs, func(r *roamer) map[string]int { return r.ends }), 0
	for _, r := range rs {
		drains += r.drains
	}
	if n := 0; strings.Count(ends, ":") == 1 && scans(ends, "4010: %d", &n) && drains >= n {
		seen += "; each told its devices that it drains, and closed them with 4010 and nothing else"
	} else {
		seen += fmt.Sprintf("; %d told that it drains, closed with %s", drains, ends)
	}
	seen += stored(d, sent, incomplete(rs, twelve+1, last))
	return fmt.Sprintf("%s\n%d messages; closed at each gateway: %s; tries in vain: %s", seen, sent, strings.Join(slices, ", "),
		tally(rs, func(r *roamer) map[string]int { return r.away }))
}

func scans(text, format string, into *int) bool {
	n, err := fmt.Sscanf(text, format, into)
	return n == 1 && err == nil
}

// stored says whether all messages of the group are stored once, and what devices lack of them.
func stored(d *database, n int, lack string) string {
	once := d.text(`SELECT count(*) = $1 AND count(DISTINCT client_msg_id) = $1 FROM events WHERE conv_id = 'u-g' AND kind = 'msg'`, n)
	seen := map[string]string{"true": "; every message is stored once", "false": "; not every message is stored once"}[once]
	if lack == "" {
		lack = "all devices have all of them once and in order"
	}
	return seen + ", and " + lack
}

// endings are the times at which welcomed connections ended, in order.
func endings(rs []*roamer) []time.Time {
	var list []time.Time
	for _, r := range rs {
		r.set(func() { list = append(list, r.endedAt...) })
	}
	slices.SortFunc(list, time.Time.Compare)
	return list
}

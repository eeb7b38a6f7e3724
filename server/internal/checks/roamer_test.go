package checks

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"imbench/server/internal/im"
	"imbench/server/wire"
)

// roamer is a device that finds its way by itself, as PROTOCOL.md asks of a client: when its connection ends it goes to
// another gateway, no sooner than it was told to, and sends again what has no outcome. It is in one conversation. Its
// goroutine is run; the other methods may be called from any.
type roamer struct {
	t      *testing.T
	who    im.Principal
	conv   string
	where  func(try int) *gateway
	noSync bool // for controls: after it has come back it goes on with what comes next

	bearer string
	wake   chan struct{} // capacity 1: there is something to send

	mu      sync.Mutex
	cursor  int64
	seqs    []int64        // of the applied events, in the order in which they were applied
	outbox  []string       // keys of messages that have no outcome
	sent    int            // messages that have one: sent
	dups    int            // of these, with dup
	refused []string       // any other outcome
	ends    map[string]int // connections that had been welcomed, by how they ended
	away    map[string]int // tries that came to nothing, by why
	waits   []int          // retry_after_ms that it was told
	at      string         // the gateway where it is online; "" = none
	drains  int            // drain frames
	endedAt []time.Time    // when connections that had been welcomed ended
}

// roam starts a device whose cursor stands at seq. It goes on until stop is called, which waits for it; the test may call
// it more than once.
func roam(t *testing.T, who im.Principal, conv string, seq int64, where func(try int) *gateway, change ...func(*roamer)) (r *roamer, stop func()) {
	r = &roamer{t: t, who: who, conv: conv, where: where, bearer: bearer(t, who), wake: make(chan struct{}, 1), cursor: seq,
		ends: map[string]int{}, away: map[string]int{}}
	for _, f := range change {
		f(r)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { r.run(ctx) })
	stop = func() { cancel(); wg.Wait() }
	t.Cleanup(stop)
	return r, stop
}

// put has a message sent under a key.
func (r *roamer) put(cmid string) {
	r.mu.Lock()
	r.outbox = append(r.outbox, cmid)
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *roamer) run(ctx context.Context) {
	for try := 0; ctx.Err() == nil; try++ {
		wait := r.visit(ctx, r.where(try))
		timer := time.NewTimer(max(wait, 20*time.Millisecond))
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

// visit is one connection, from the attempt to its end. It returns how long the device was told to stay away.
func (r *roamer) visit(ctx context.Context, g *gateway) time.Duration {
	address := "ws" + strings.TrimPrefix(g.stack.Targets[0], "http") + "/v1/ws"
	ws, resp, err := websocket.DefaultDialer.DialContext(ctx, address, http.Header{"Authorization": {"Bearer " + r.bearer}})
	if err != nil {
		why := "no connection"
		if resp != nil {
			why = strconv.Itoa(resp.StatusCode)
		}
		r.count(r.away, why)
		return 0
	}
	c := newClient(r.t, ws, r.who)
	defer c.close()
	f, ok := c.try(wire.Request{T: wire.THello, Device: r.who.Device, Install: r.who.Install}, patience)
	if !ok || f.T != wire.TWelcome {
		return r.ended(c, r.away)
	}
	if r.online(ctx, c, g.id) {
		return 0 // asked to stop
	}
	for f, ok := c.nextWithin(0); ok; f, ok = c.nextWithin(0) { // what had come before the end
		if f.T == wire.TDrain {
			r.set(func() { r.drains++ })
		}
	}
	r.set(func() { r.endedAt = append(r.endedAt, time.Now()) })
	return r.ended(c, r.ends)
}

// online is a connection from its welcome on; true means that ctx has ended.
func (r *roamer) online(ctx context.Context, c *client, gateway string) bool {
	if _, ok := c.try(wire.Request{T: wire.TSub}, patience); !ok {
		return false
	}
	if !r.noSync && !r.catchUp(c) {
		return false
	}
	r.set(func() { r.at = gateway })
	defer r.set(func() { r.at = "" })
	for {
		if !r.deliver(c) {
			return false
		}
		select {
		case <-ctx.Done():
			return true
		case <-r.wake:
		case f := <-c.pushed:
			if !r.take(c, f) {
				return false
			}
		case <-c.gone:
			return false
		}
	}
}

// deliver sends what is in the outbox; false: the connection has ended.
func (r *roamer) deliver(c *client) bool {
	for {
		var cmid string
		r.set(func() {
			if len(r.outbox) > 0 {
				cmid = r.outbox[0]
			}
		})
		if cmid == "" {
			return true
		}
		f, ok := c.try(wire.Request{T: wire.TSend, Conv: r.conv, CMID: cmid, Body: cmid}, patience)
		switch {
		case !ok:
			return false
		case f.Code == wire.Unavailable || f.Code == wire.RateLimited:
			continue
		}
		r.set(func() {
			r.outbox = r.outbox[1:]
			switch {
			case f.T != wire.TSent:
				r.refused = append(r.refused, string(f.Code))
			case f.Dup:
				r.dups++
				fallthrough
			default:
				r.sent++
			}
		})
		if f.T == wire.TSent && !r.apply(f.Seq) && !r.catchUp(c) {
			return false
		}
	}
}

// take handles what the gateway sends by itself; false: the connection has ended.
func (r *roamer) take(c *client, f wire.Frame) bool {
	switch f.T {
	case wire.TEvent:
		if !r.apply(f.Ev.Seq) && !r.catchUp(c) {
			return false
		}
	case wire.THint:
		if f.Head > r.has() && !r.catchUp(c) {
			return false
		}
	case wire.TDrain:
		r.set(func() { r.drains++ })
		return true
	default:
		return true
	}
	c.start(wire.Request{T: wire.TAck, Conv: r.conv, Seq: r.has()})
	return true
}

// apply takes an event in; false: a gap lies before it.
func (r *roamer) apply(seq int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case seq <= r.cursor:
		return true
	case seq > r.cursor+1 && !r.noSync:
		return false
	}
	r.seqs, r.cursor = append(r.seqs, seq), seq
	return true
}

// catchUp syncs to the head; false: the connection has ended.
func (r *roamer) catchUp(c *client) bool {
	for {
		f, ok := c.try(wire.Request{T: wire.TSync, Conv: r.conv, After: r.has()}, patience)
		if !ok {
			return false
		}
		if f.T != wire.TSynced {
			continue // the database is away
		}
		for _, e := range f.Events {
			r.apply(e.Seq)
		}
		if !f.HasMore {
			return true
		}
	}
}

func (r *roamer) has() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cursor
}

func (r *roamer) set(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

func (r *roamer) count(in map[string]int, what string) { r.set(func() { in[what]++ }) }

// ended notes how a connection ended, and returns how long the device is to stay away.
func (r *roamer) ended(c *client, in map[string]int) time.Duration {
	c.ending(patience)
	how := "cut"
	ce := (*websocket.CloseError)(nil)
	if errors.As(c.err, &ce) && ce.Code != websocket.CloseAbnormalClosure {
		how = strconv.Itoa(ce.Code)
	}
	ms := 0
	if ce != nil {
		if text, ok := strings.CutPrefix(ce.Text, "retry_after_ms="); ok {
			ms, _ = strconv.Atoi(text) // 0 = none was told
		}
	}
	r.set(func() {
		in[how]++
		if ms > 0 {
			r.waits = append(r.waits, ms)
		}
	})
	return time.Duration(ms) * time.Millisecond
}

// place is the gateway where the device is online.
func (r *roamer) place() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.at
}

// idle says whether everything that was put is sent.
func (r *roamer) idle() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.outbox) == 0
}

// whole says what of the events from first to last the device has not applied exactly once and in order; "" = nothing.
func (r *roamer) whole(first, last int64) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, seq := range r.seqs {
		if seq != first+int64(i) {
			return fmt.Sprintf("%s has %d where %d should be", r.who.Device, seq, first+int64(i))
		}
	}
	if n := last - first + 1; int64(len(r.seqs)) != n {
		return fmt.Sprintf("%s has %d of %d", r.who.Device, len(r.seqs), n)
	}
	return ""
}

// tally sums what the devices noted: "4010: 8, cut: 2".
func tally(rs []*roamer, of func(r *roamer) map[string]int) string {
	sum := map[string]int{}
	for _, r := range rs {
		r.set(func() {
			for k, n := range of(r) {
				sum[k] += n
			}
		})
	}
	var list []string
	for _, k := range slices.Sorted(maps.Keys(sum)) {
		list = append(list, fmt.Sprintf("%s: %d", k, sum[k]))
	}
	return strings.Join(list, ", ")
}

// incomplete is what the first device lacks that is not whole: of those before.
func incomplete(rs []*roamer, first, last int64) string {
	for _, r := range rs {
		if lack := r.whole(first, last); lack != "" {
			return lack
		}
	}
	return ""
}

// all says whether something holds of all devices.
func all(rs []*roamer, holds func(r *roamer) bool) bool {
	return !slices.ContainsFunc(rs, func(r *roamer) bool { return !holds(r) })
}

// Package device is a virtual device that behaves as a good client does: it keeps its sends until they are confirmed and
// repeats them under the same cmid, moves its cursor over contiguous events only, asks for what it missed, acknowledges
// cumulatively, and comes back after a lost connection with full jitter. It reports what it sees to a sample.Sink and
// computes nothing.
//
// A goroutine a device connects, and waits for the session's end; frames come from whoever reads the wire's connections,
// sends from the driver's goroutines, deadlines from the group's timer wheels. All of a device's state is guarded by its mu.
// Nothing waits for the network while it holds mu: a connection's Write only queues. The sink is called with mu held, so
// that the order of deliveries is the order of applying.
package device

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"imbench/loadgen/internal/behavior"
	"imbench/loadgen/internal/clock"
	"imbench/loadgen/internal/population"
	"imbench/loadgen/internal/sample"
	"imbench/loadgen/protocol"
)

// Device is one virtual device. Its conversations are those of its user, in the same order.
type Device struct {
	g     *Group
	wheel *wheel
	index int32
	user  int32

	mu      sync.Mutex
	conn    protocol.Conn // nil = no session
	state   state
	convs   []conv
	flight  []send // written or to be written again, at most limit
	queue   []send // not yet started: no session, or no place
	limit   int
	nextID  uint32
	armed   clock.Time // the next deadline in the wheel; 0 = none
	dialled clock.Time
	heard   clock.Time // the last frame
	readyBy clock.Time // welcome and the list of conversations are due; 0 = ready or no session
	beat    time.Duration
	since   clock.Time    // the first session's welcome: what was sent before it was not missed, and what came while the device was away was
	gone    clock.Time    // the last session that was ready ended then; 0 = it lasts, or there was none yet
	wait    time.Duration // what a drain frame asked for
	reason  error         // why this side closed the session
	taken   clock.Time    // the last event, on a wire without Sync
	asks    *asks         // nil = it has asked nothing that the plan has beside sends

	token string // that the latest attempt showed; of the goroutine that connects

	frozen atomic.Int64 // clock.Time until which this device reads nothing; 0 = it reads
	holds  bool         // the session's connection stops reading by itself then
}

// state of a session.
type state uint8

const (
	offline  state = iota
	greeting       // dialled; hello is on its way
	listing        // welcome has come; asking how the conversations stand
	ready
)

// conv is what a device knows of one conversation.
type conv struct {
	cursor  int64      // all that the device may see up to here is applied
	acked   int64      // nothing up to here needs an ack any more
	told    int64      // the most that the gateway has confirmed; 0 = nothing yet
	head    int64      // the largest seq it has heard of
	lastMsg clock.Time // intended time of the last applied event
	ackAt   clock.Time // when the waiting ack leaves; 0 = nothing waits
	unacked int32      // applied since the last ack left
	epoch   int32      // 0 = not known
	pull    bool       // the gateway hints instead of pushing
	moved   bool       // its user has left, or joined, in mid-run: nothing is expected of it
	pushed  bool       // a message has come by a push
	opened  bool       // one that turned out to be large, and was opened; so are those with pull
	doubt   bool       // an ack of this session was given up: its reply may come late, as if it were another's
	asked   *ack       // on its way
	mark    *readMark  // what is told of how far the user has read; nil = nothing yet
	repair  *repair    // a gap or hint that is being followed
}

// ack is an acknowledgement without a reply yet.
type ack struct {
	seq int64
	at  clock.Time
	msg clock.Time
	n   int32
	was int64 // told, before it was asked
}

func newDevice(g *Group, index int32) *Device {
	d := &Device{g: g, index: index, user: g.pop.Devices[index].User, limit: g.cfg.InFlight,
		wheel: g.wheels[int(index)%len(g.wheels)]}
	mine := g.pop.Users[d.user].Convs
	d.convs = make([]conv, len(mine))
	for i, ci := range mine {
		c := &g.pop.Convs[ci]
		base := g.pop.Start(ci)
		d.convs[i] = conv{cursor: base, acked: base, head: base, pull: g.pulled(c, c.Mode)}
	}
	return d
}

// pulled says whether a conversation's events come by hint and sync.
func (g *Group) pulled(c *population.Conv, mode string) bool {
	above := c.HintAbove(g.cfg.HintAbove)
	return mode == "pull" || above > 0 && len(c.Members) > above
}

// slot finds a conversation of this device by its population index, -1 if it is none.
func (d *Device) slot(conv int32) int {
	for i, c := range d.g.pop.Users[d.user].Convs {
		if c == conv {
			return i
		}
	}
	return -1
}

func (d *Device) convIndex(slot int) int32 { return d.g.pop.Users[d.user].Convs[slot] }

// reads says whether this device follows hints of the conversation.
func (d *Device) reads(slot int) bool {
	ci := d.convIndex(slot)
	return !d.convs[slot].pull || behavior.Reads(d.g.cfg.Seed, d.index, ci, d.g.pop.Convs[ci].ReadBy(d.g.cfg.ReadingShare))
}

// life keeps the device connected until ctx ends or the gateway says that it must not come back. It comes back to the
// gateway that it had, unless that one drains; if it is not taken there, it goes on to another.
func (d *Device) life(ctx context.Context, targets []string, at int) {
	vain := 0   // refusals with a place, in a row
	tokens := 0 // refused in a row
	for failed := 0; ; failed++ {
		served, err := d.session(ctx, targets[at])
		if ctx.Err() != nil {
			return
		}
		if served {
			failed, tokens = 0, 0
		}
		d.g.last.Store(&err)
		atLeast, terminal := verdict(err)
		if terminal && d.g.renew != nil && protocol.TokenRefused(err) && tokens < tokensInVain {
			tokens++
			terminal = !d.g.renew(ctx, d.index, d.token)
			if ctx.Err() != nil {
				return
			}
		}
		if terminal {
			d.g.counters.Ended.Add(1)
			return
		}
		d.mu.Lock()
		atLeast = max(atLeast, d.wait)
		d.wait = 0
		d.mu.Unlock()
		if elsewhere(served, err) {
			at = behavior.Other(d.g.cfg.Seed, d.index, failed, at, len(targets))
		}
		wait := behavior.Backoff(d.g.cfg.Seed, d.index, failed, d.g.cfg.BackoffBase, d.g.cfg.BackoffCap, atLeast)
		if !hasPlace(err) {
			vain = 0
		} else if vain++; vain <= placesInVain {
			wait = atLeast // later, and the place is another's
		}
		pause := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			pause.Stop()
			return
		case <-pause.C:
		}
	}
}

// verdict reads the end of a session: how long the gateway wants to be left alone, and whether for ever.
func verdict(err error) (atLeast time.Duration, terminal bool) {
	var ce *protocol.CloseError
	var re *protocol.RefusedError
	switch {
	case errors.As(err, &ce):
		return ce.RetryAfter, ce.Terminal
	case errors.As(err, &re):
		return re.RetryAfter, re.Terminal()
	}
	return 0, false
}

// tokensInVain is how many tokens in a row may be refused before a device gives up: it is not the token then.
const tokensInVain = 3

// placesInVain is after how many refusals in a row a device backs off even though it was told its place.
const placesInVain = 3

// hasPlace says whether the gateway told the device when its turn is.
func hasPlace(err error) bool {
	var ce *protocol.CloseError
	return errors.As(err, &ce) && ce.Busy && ce.RetryAfter > 0
}

// elsewhere says whether another gateway is the better choice for the next attempt: this one goes, or did not take the
// device. One that only admits too many at once (4009) says when it will, and is asked again.
func elsewhere(served bool, err error) bool {
	var ce *protocol.CloseError
	if errors.As(err, &ce) {
		return ce.Leaving || !served && !ce.Busy
	}
	return !served
}

// session is one connection from dial to end. served says that it got as far as ready.
func (d *Device) session(ctx context.Context, target string) (served bool, err error) {
	conn, err := d.enter(ctx, target)
	if err != nil {
		return false, err
	}
	err = conn.Serve(d.on)
	return d.ended(&err), err
}

// enter connects and says hello, in a goroutine of its own: the stack that it needs is then not kept for the life of the
// session.
func (d *Device) enter(ctx context.Context, target string) (protocol.Conn, error) {
	type result struct {
		conn protocol.Conn
		err  error
	}
	done := make(chan result, 1)
	go func() {
		begun := clock.Now()
		conn, err := d.dial(ctx, target)
		switch {
		case err == nil:
			err = d.greet(ctx, conn, begun)
		case ctx.Err() == nil:
			d.g.sink.Op(sample.Op{Kind: sample.OpConnect, Device: d.index, Start: begun, Done: clock.Now(), Code: "failed"})
		}
		done <- result{conn, err}
	}()
	r := <-done
	return r.conn, r.err
}

func (d *Device) dial(ctx context.Context, target string) (protocol.Conn, error) {
	d.token = d.g.tokens(d.index)
	ctx, cancel := context.WithTimeout(ctx, d.g.cfg.DialTimeout)
	defer cancel()
	return d.g.wire.Dial(ctx, target, d.token)
}

// greet begins a session. Its error is that the run is over, and then the connection is closed.
func (d *Device) greet(ctx context.Context, conn protocol.Conn, begun clock.Time) error {
	d.mu.Lock()
	if ctx.Err() != nil {
		d.mu.Unlock()
		conn.Close(0)
		_ = conn.Serve(func(*protocol.Frame) {}) // ends what it had started
		return ctx.Err()
	}
	d.conn, d.state, d.dialled, d.heard = conn, greeting, begun, clock.Now()
	d.readyBy = begun.Add(d.g.cfg.DialTimeout)
	holder, ok := conn.(protocol.Holder)
	d.holds = ok && holder.Hold(clock.Time(d.frozen.Load()).Sub(clock.Now()))
	d.arm(d.readyBy)
	self := &d.g.pop.Devices[d.index]
	d.write(&protocol.Request{Op: protocol.OpHello, Device: self.ID, Install: self.Install}, sample.FHello, 0)
	d.mu.Unlock()
	return nil
}

// ended puts everything that was under way back to where the next session takes it up.
func (d *Device) ended(err *error) (served bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.reason != nil && errors.Is(*err, protocol.ErrClosed) {
		*err = d.reason
	}
	d.reason = nil
	served = d.state == ready
	if served {
		d.gone = clock.Now()
	}
	d.count(-1)
	d.conn, d.state, d.readyBy = nil, offline, 0
	for i := range d.convs {
		c := &d.convs[i]
		if c.asked != nil {
			c.unacked += c.asked.n
			c.asked, c.ackAt = nil, clock.Now()
		}
		c.doubt = false
		d.dropRepair(c)
		c.dropMark()
	}
	d.dropAsks()
	if !d.g.can.Keys {
		d.giveUp(func(s *send) bool { return s.at != 0 }, clock.Now())
	}
	for i := range d.flight {
		d.flight[i].at, d.flight[i].again = 0, 0
	}
	if d.g.ctx.Err() == nil {
		d.g.counters.Reconnects.Add(1)
		d.g.sink.Reconnect(d.index, closeCode(*err))
	}
	return served
}

func closeCode(err error) int {
	var ce *protocol.CloseError
	var fe *protocol.FrameError
	switch {
	case errors.As(err, &ce):
		return ce.Code
	case errors.As(err, &fe):
		return 1002
	}
	return 0
}

// count moves the live counters for the state that is entered (+1) or left (−1); mu must be held.
func (d *Device) count(by int64) {
	if d.state >= listing {
		d.g.counters.Connected.Add(by)
	}
	if d.state == ready {
		d.g.counters.Ready.Add(by)
	}
}

// hangUp closes the session, if there is one.
func (d *Device) hangUp() {
	d.mu.Lock()
	conn := d.conn
	d.mu.Unlock()
	if conn != nil {
		conn.Close(1000)
	}
}

// write sends a request and counts it; mu must be held. A session that has just ended swallows it: whatever waits for a
// reply is taken up by the next session.
func (d *Device) write(r *protocol.Request, t sample.FrameType, msg clock.Time) int {
	n, _ := d.try(r, t, msg)
	return n
}

// try is write for who must know why nothing was written: 0 without an error says that the wire has no such request.
func (d *Device) try(r *protocol.Request, t sample.FrameType, msg clock.Time) (int, error) {
	n, err := d.conn.Write(r)
	if err != nil || n == 0 {
		return 0, err
	}
	d.frame(sample.Up, t, n, clock.Now(), msg)
	return n, nil
}

func (d *Device) frame(dir sample.Dir, t sample.FrameType, bytes int, at, msg clock.Time) {
	d.g.sink.Frame(sample.Frame{Dir: dir, Type: t, Bytes: bytes, At: at, Msg: msg})
}

package capacity

import (
	"math"
	"math/rand/v2"
	"strconv"
)

// syncedEvents counts the events in sync replies.
const syncedEvents = "synced events"

// simulation plays a run message by message, with the rules of a scenario and nothing of the model's mathematics: it is
// what the prediction is held against. Network and server take no time, but for the acks' trip.
type simulation struct {
	in   RunInputs
	rng  *rand.Rand
	from float64 // the measured window
	to   float64
	out  map[string]float64 // sums over the window
}

// simConv is a conversation; devices are its connected ones.
type simConv struct {
	devices []*simDevice
	seq     int
}

// simDevice is one device in one conversation.
type simDevice struct {
	phase    float64 // of the sweep
	pending  int     // applied, not acknowledged
	last     float64 // when the last applied message was sent
	timer    float64 // when the pending ones are acknowledged
	lost     int     // outstanding
	lostAt   float64 // the first of them
	lastLost float64
	oldest   float64 // the oldest event not acknowledged
	hinted   bool    // since oldest
	wait     float64 // when it asks for what its own message has shown to be missing; 0 = it does not wait
	reads    bool    // follows hints, in hinted conversations
	window   float64 // when the hint that waits is sent, in hinted conversations; 0 = none waits
}

// simulate returns the figures of one run.
func simulate(in RunInputs, seed uint64) map[string]float64 {
	s := &simulation{in: in, rng: rand.New(rand.NewPCG(seed, 1)), from: float64(in.Warmup),
		to: float64(in.Warmup + in.Measure), out: map[string]float64{}}
	users := s.users()
	s.stream(s.conversations(users, in.GroupSize, in.Groups), in.ActiveGroups, float64(in.GroupRate), in.GroupSize)
	s.stream(s.conversations(users, 2, in.Directs), in.ActiveDirects, float64(in.DirectRate), 2)
	o := s.out
	o[EventRows], o[CursorRows] = o[Messages], o[AckFrames]
	o[DownFrames] = o[PushFrames] + o[HintFrames] + o[SyncFrames] + o[AckFrames] + o[Messages]
	// Events make nine tenths of the bytes, and are counted with their real lengths; the rest takes two digits a seq.
	const two = 2
	rid := float64(in.RIDBytes) + float64(len(`,"rid":""`))
	conv := float64(in.ConvBytes)
	hint := float64(len(`{"t":"hint","conv":"","head":}`)) + conv + two
	if in.Mode == Push {
		hint += float64(len(`,"why":"sweep"`))
	}
	event := o[PushBytes] / max(o[PushFrames], 1)
	if event == 0 {
		event = s.eventBytes(10)
	}
	o[DownBytes] = o[PushBytes] + o[HintFrames]*hint +
		o[SyncFrames]*(rid+conv+2*two+float64(len(`{"t":"synced","conv":"","events":[],"head":,"min_seq":1,"next_after":,"has_more":false,"epoch":1}`))) +
		o[syncedEvents]*(event-18) - o[SyncFrames] +
		o[AckFrames]*(rid+conv+two+float64(len(`{"t":"acked","conv":"","delivered":}`))) +
		o[Messages]*(rid+conv+two+36+float64(len(`{"t":"sent","conv":"","seq":,"mid":"","dup":false,"epoch":1}`)))
	o[Deliveries] = o[PushFrames] / o[Messages] * float64(in.Measure)
	o[EffectiveAck] = o[applied] / o[AckFrames] * float64(in.Measure)
	for name := range o {
		o[name] /= float64(in.Measure)
	}
	return o
}

// users returns the number of connected devices of each user.
func (s *simulation) users() []int {
	owners := make([]int, 0, s.in.Users+s.in.TwoDeviceUsers)
	for i, u := range s.rng.Perm(s.in.Users) {
		owners = append(owners, u)
		if i < s.in.TwoDeviceUsers {
			owners = append(owners, u)
		}
	}
	connected := make([]int, s.in.Users)
	for _, d := range s.rng.Perm(len(owners))[:s.in.ConnectedDevices] {
		connected[owners[d]]++
	}
	return connected
}

// conversations cuts permutations of the users into conversations, so that every user is in equally many.
func (s *simulation) conversations(connected []int, size, n int) []*simConv {
	var seats []int
	list := make([]*simConv, n)
	for i := range list {
		if len(seats) < size {
			seats = s.rng.Perm(len(connected))
		}
		list[i] = &simConv{seq: size}
		for _, u := range seats[:size] {
			for range connected[u] {
				list[i].devices = append(list[i].devices, &simDevice{phase: s.rng.Float64() * float64(s.in.Sweep),
					reads: s.rng.Float64() < float64(s.in.Reading)})
			}
		}
		seats = seats[size:]
	}
	return list
}

func (s *simulation) stream(convs []*simConv, active int, rate float64, size int) {
	var places []*simConv // one for each connected device
	for _, c := range convs {
		for range c.devices {
			places = append(places, c)
		}
	}
	in := map[*simConv]bool{}
	enter := func() *simConv {
		for {
			if c := places[s.rng.IntN(len(places))]; !in[c] {
				in[c] = true
				return c
			}
		}
	}
	set := make([]*simConv, active)
	left := make([]int, active)
	for i := range set {
		set[i], left[i] = enter(), s.in.Burst-s.rng.IntN(s.in.Burst)
	}
	const tail = 5
	end := s.to + tail
	for t := s.rng.ExpFloat64() / rate; t < end; t += s.rng.ExpFloat64() / rate {
		i := s.rng.IntN(active)
		s.message(set[i], t, size)
		if left[i]--; left[i] == 0 {
			old := set[i]
			set[i], left[i] = enter(), s.in.Burst
			delete(in, old)
		}
	}
	for _, c := range convs {
		for _, d := range c.devices {
			s.advance(d, math.Inf(1))
		}
	}
}

func (s *simulation) count(name string, msg, n float64) {
	if msg >= s.from && msg < s.to {
		s.out[name] += n
	}
}

func (s *simulation) message(c *simConv, t float64, size int) {
	c.seq++
	s.count(Messages, t, 1)
	sender := s.rng.IntN(len(c.devices))
	length := s.eventBytes(c.seq)
	hinted := size > 2 && s.in.Mode == Pull // only groups are
	for i, d := range c.devices {
		s.advance(d, t)
		if hinted {
			s.hintedMessage(d, i == sender, t)
			continue
		}
		s.count(applied, t, 1)
		if i != sender {
			s.count(PushFrames, t, 1)
			s.count(PushBytes, t, length)
			if s.rng.Float64() < float64(s.in.Loss) {
				s.count(DiscardedFrames, t, 1)
				d.lose(t)
				continue
			}
		}
		if d.pending+d.lost == 0 {
			d.oldest, d.hinted = t, false
		}
		switch {
		case d.lost == 0:
			s.apply(d, 1, t, t)
		case i == sender:
			d.lost++
			d.lastLost = t
			if d.wait == 0 {
				d.wait = t + float64(s.in.GapWait)
			}
		default:
			d.lost++
			d.lastLost = t
			s.sync(d, t)
		}
	}
}

// sync brings what is outstanding.
func (s *simulation) sync(d *simDevice, now float64) {
	n := d.lost
	s.count(SyncFrames, d.lostAt, 1)
	s.count(syncedEvents, d.lostAt, float64(n))
	d.lost, d.wait = 0, 0
	s.apply(d, n, now, d.lastLost)
}

// eventBytes is the length of an event's frame.
func (s *simulation) eventBytes(seq int) float64 {
	return float64(s.in.ConvBytes+s.in.UserBytes+s.in.BodyBytes) + float64(72+13+len(strconv.Itoa(seq))+
		len(`{"t":"event","ev":{"conv":"","seq":,"kind":"msg","mid":"","sender":"","cmid":"","body":"","at":}}`))
}

// hintedMessage is a message of a hinted conversation as one device sees it.
func (s *simulation) hintedMessage(d *simDevice, own bool, t float64) {
	if d.reads {
		s.count(applied, t, 1)
	}
	switch {
	case own && d.lost == 0:
		if d.reads {
			s.apply(d, 1, t, t)
		}
		return
	case !own && d.window == 0:
		d.window = t + float64(s.in.HintWindow)
	}
	if d.lost == 0 {
		d.lostAt = t
	}
	d.lost++
	d.lastLost = t
}

func (d *simDevice) lose(t float64) {
	if d.pending+d.lost == 0 {
		d.oldest, d.hinted = t, false
	}
	if d.lost == 0 {
		d.lostAt = t
	}
	d.lost++
	d.lastLost = t
}

// apply takes n events at once, the last of which was sent at msg.
func (s *simulation) apply(d *simDevice, n int, now, msg float64) {
	d.last = msg
	for range n {
		if d.pending == 0 {
			d.timer = now + float64(s.in.AckDelay)
		}
		if d.pending++; d.pending >= s.in.AckEvery {
			s.ack(d, now)
		}
	}
}

func (s *simulation) ack(d *simDevice, now float64) {
	if hint := s.sweepAt(d); hint > now && hint < now+float64(s.in.AckTrip) {
		s.count(HintFrames, d.last, 1)
	}
	s.count(AckFrames, d.last, 1)
	d.pending, d.oldest = 0, d.last
	if d.lost > 0 {
		d.oldest, d.hinted = d.lostAt, false
	}
}

// advance lets timers and sweeps happen that are due before t.
func (s *simulation) advance(d *simDevice, t float64) {
	for d.pending+d.lost > 0 {
		if d.window > 0 && d.window <= t && (d.pending == 0 || d.window < d.timer) {
			s.count(HintFrames, d.lostAt, 1)
			at, n := d.window, d.lost
			d.window, d.lost = 0, 0
			if d.reads {
				s.count(SyncFrames, d.lostAt, 1)
				s.count(syncedEvents, d.lostAt, float64(n))
				s.apply(d, n, at, d.lastLost)
			}
			continue
		}
		timer, wait, hint := math.Inf(1), math.Inf(1), s.sweepAt(d)
		if d.pending > 0 {
			timer = d.timer
		}
		if d.wait > 0 {
			wait = d.wait
		}
		switch {
		case timer <= min(hint, wait) && timer <= t:
			s.ack(d, timer)
		case wait <= hint && wait <= t:
			s.sync(d, wait)
		case hint < timer && hint <= t:
			d.hinted = true
			s.count(HintFrames, d.oldest, 1)
			if d.lost > 0 {
				s.sync(d, hint)
			}
		default:
			return
		}
	}
}

// sweepAt is when the sweep hints at the device, unless it has acknowledged before.
func (s *simulation) sweepAt(d *simDevice) float64 {
	if d.hinted || d.window > 0 {
		return math.Inf(1)
	}
	period := float64(s.in.Sweep)
	return d.phase + math.Ceil((d.oldest+float64(s.in.Grace)-d.phase)/period)*period
}

package capacity

import "math"

// traffic is what one stream causes, for each of its messages, by the number c of connected devices in the conversation
// (in step with presence.c). The noise is the variance of a message's own value, beyond what c and the number of messages
// explain.
type traffic struct {
	presence
	value map[string][]float64
	noise map[string][]float64
	acked map[string][]float64 // what of the value acks cause
	slack float64              // η, relative growth of events an ack for that of the messages
}

// applied is the name under which traffic keeps events applied, own ones included. It is no figure of its own.
const applied = "applied"

// PredictRun predicts what a run of these inputs counts, in the order of names.go, from the rules alone: no plan and no
// trace enters. The interval holds 95 % of the runs over seeds, each with a population of its own.
//
// The error wraps ErrInputs.
func PredictRun(in RunInputs) ([]Figure, error) {
	if err := in.Validate(); err != nil {
		return nil, err
	}
	streams, err := in.streams()
	if err != nil {
		return nil, err
	}
	t := float64(in.Measure)
	rate := func(name string) Figure {
		var mean, variance float64
		for _, s := range streams {
			y := s.value[name]
			mean += s.rate * s.mean(y)
			variance += s.variance(y, t) + s.rate*t*s.mean(s.noise[name])
			// When more messages happen to be sent in the window, acks cover more of them: only 1 − η of the surplus
			// becomes acks. Their noise has η² of it already, so that the rest is a covariance of −2η.
			variance -= 2 * s.slack * s.mean(y) * s.mean(s.acked[name]) * s.rate * t
		}
		return figure(name, mean, math.Sqrt(max(0, variance))/t)
	}
	ratio := func(name, over, under string) Figure {
		var a, b, variance float64
		for _, s := range streams {
			a += s.rate * s.mean(s.value[over])
			b += s.rate * s.mean(s.value[under])
		}
		if b == 0 {
			return figure(name, 0, 0)
		}
		// Var(A/B) ≈ Var(A − (A/B)·B)/B².
		for _, s := range streams {
			y := make([]float64, len(s.c))
			noise := make([]float64, len(s.c))
			for i := range y {
				y[i] = s.value[over][i] - a/b*s.value[under][i]
				noise[i] = s.noise[over][i] + a/b*a/b*s.noise[under][i]
			}
			variance += s.variance(y, t) + s.rate*t*s.mean(noise)
		}
		return figure(name, a/b, math.Sqrt(variance)/(b*t))
	}
	return []Figure{
		rate(Messages), rate(PushFrames), rate(DiscardedFrames), rate(HintFrames), rate(SyncFrames), rate(AckFrames),
		rate(DownFrames), rate(EventRows), rate(CursorRows), rate(PushBytes), rate(DownBytes),
		ratio(Deliveries, PushFrames, Messages), ratio(EffectiveAck, applied, AckFrames),
	}, nil
}

func figure(name string, mean, sigma float64) Figure {
	const z = 1.96
	d := descriptions[name]
	return Figure{Name: name, Unit: d.unit, Predicted: mean, Low: max(0, mean-z*sigma), High: mean + z*sigma, Note: d.note}
}

// Unit is that of a figure of names.go; "" for what is none.
func Unit(name string) string { return descriptions[name].unit }

var descriptions = map[string]struct{ unit, note string }{
	Messages:        {"1/s", "two Poisson streams at their set rates; only their chance varies"},
	PushFrames:      {"1/s", "each message goes to all connected devices of the conversation but the sender's; conversations with more of them speak more often"},
	DiscardedFrames: {"1/s", "the lost share of the pushes"},
	HintFrames:      {"1/s", "the sweep finds a loss that no later event reveals, mostly the last of a burst; in hinted groups each window makes one hint a device"},
	SyncFrames:      {"1/s", "one for each run of losses, begun by the next event or by the sweep's hint; in hinted groups one a hint and reading device"},
	AckFrames:       {"1/s", "every k events, or the delay after the first; the last events of a burst wait for the delay alone"},
	DownFrames:      {"1/s", "pushes, hints, and one reply to each sync, ack and send"},
	EventRows:       {"1/s", "one row a message"},
	CursorRows:      {"1/s", "one row an ack; acks of a device and conversation are too far apart to be merged in the gateway"},
	PushBytes:       {"B/s", "pushes times the length of an event's frame, in which only the digits of seq vary"},
	DownBytes:       {"B/s", "frames times their lengths; a repair carries the lost events and the one that revealed them"},
	Deliveries:      {"frames", "connected devices of the conversation less one, over the mix of groups and direct chats"},
	EffectiveAck:    {"events", "below k because a burst ends in the middle of a batch and slow stretches run into the delay"},
}

// streams works out the traffic of groups and of direct chats.
func (in RunInputs) streams() ([]traffic, error) {
	var list []traffic
	add := func(members, convs, active int, rate PerSecond, hinted bool) error {
		if rate == 0 {
			return nil
		}
		p, err := newPresence(in, members, convs, active, rate)
		if err != nil {
			return err
		}
		t := traffic{presence: p, value: map[string][]float64{}, noise: map[string][]float64{}, acked: map[string][]float64{}}
		bytes := in.frames(p)
		acks := in.acksByPresence(p, hinted)
		for i, c := range p.c {
			if hinted {
				t.add(in.hinted(in.burst(p, p.odds[i]), acks[i], c, bytes))
			} else {
				t.add(in.pushed(acks[i], c, bytes))
			}
		}
		t.slack = in.slack(in.burst(p, p.mean(p.odds)), p.mean(p.c))
		list = append(list, t)
		return nil
	}
	hinted := in.Mode == Pull || in.HintAbove > 0 && in.GroupSize > in.HintAbove
	if err := add(in.GroupSize, in.Groups, in.ActiveGroups, in.GroupRate, hinted); err != nil {
		return nil, err
	}
	return list, add(2, in.Directs, in.ActiveDirects, in.DirectRate, false)
}

// point is the traffic of one message in a conversation, before it is spread over the names.
type point struct {
	c                                  float64
	events, lost, hints, sweeps, syncs float64
	syncedEvents, acks, ackNoise       float64
	applied                            float64
	bytes                              frameBytes
}

func (t *traffic) add(p point) {
	b := p.bytes
	down := p.events + p.hints + p.sweeps + p.syncs + p.acks + 1
	downBytes := p.events*b.event + p.hints*b.hint + p.sweeps*b.sweepHint + p.syncs*b.syncReply + p.syncedEvents*b.syncEvent +
		p.acks*b.acked + b.sent
	put := func(name string, value, noise, acked float64) {
		t.value[name] = append(t.value[name], value)
		t.noise[name] = append(t.noise[name], noise)
		t.acked[name] = append(t.acked[name], acked)
	}
	replies := p.sweeps + p.syncs + p.ackNoise
	put(Messages, 1, 0, 0)
	put(PushFrames, p.events, 0, 0)
	put(DiscardedFrames, p.lost, p.lost, 0)
	put(HintFrames, p.hints+p.sweeps, p.hints+p.sweeps, 0)
	put(SyncFrames, p.syncs, p.syncs, 0)
	put(AckFrames, p.acks, p.ackNoise, p.acks)
	put(DownFrames, down, replies, p.acks)
	put(EventRows, 1, 0, 0)
	put(CursorRows, p.acks, p.ackNoise, p.acks)
	put(PushBytes, p.events*b.event, 0, 0)
	put(DownBytes, downBytes, p.syncs*b.event*b.event+p.ackNoise*b.acked*b.acked, p.acks*b.acked)
	put(applied, p.applied, 0, 0)
}

// pushed is a message's traffic where events are pushed. A device is the sender of one event in c, which cannot be lost.
// All devices of a conversation see the same arrivals, so their acks vary together.
func (in RunInputs) pushed(a ackCounts, c float64, bytes frameBytes) point {
	lost := float64(in.Loss) * (c - 1)
	gaps := c * (a.syncs - a.healed) // syncs that the next event begins carry that event too
	return point{c: c, events: c - 1, lost: lost, sweeps: c * a.hints, syncs: c * a.syncs, syncedEvents: lost + gaps,
		acks: c * a.acks, ackNoise: c * c * a.noise, applied: c, bytes: bytes}
}

// policy is the acknowledgement of a device in a conversation of c connected ones. Of the events that reveal a loss about
// one in c is the device's own.
func (in RunInputs) policy(c float64) ackPolicy {
	return ackPolicy{every: in.AckEvery, delay: float64(in.AckDelay), loss: min(float64(in.Loss), 0.999) * (1 - 1/c),
		grace: float64(in.Grace), sweep: float64(in.Sweep), trip: float64(in.AckTrip), gap: float64(in.GapWait) / c}
}

// slack is η of traffic, by a difference quotient.
func (in RunInputs) slack(b burst, c float64) float64 {
	const step = 1.02
	faster := b
	faster.lambda *= step
	faster.nu *= step
	return math.Log(countAcks(faster, in.policy(c)).perAck/countAcks(b, in.policy(c)).perAck) / math.Log(step)
}

// hinted is a message's traffic where groups are hinted. Hints of a window are merged, each hint makes a reading device
// sync, and the events of one sync arrive at once. Hints are not lost. The figures are approximate: windows are taken to
// begin evenly over a burst, and acks as if events came one by one.
func (in RunInputs) hinted(b burst, a ackCounts, c float64, bytes frameBytes) point {
	more := 0.0 // events within a window after the one that begins it
	most := int(b.lambda*float64(in.HintWindow))*2 + 20
	for _, e := range b.ends(most + 1) {
		for m, n := range b.counts(e.phase, float64(in.HintWindow), most) {
			more += float64(m) * n.p() * e.share
		}
	}
	hints := (c - 1) / (1 + more*(1-1/c)) // a device's own events need none
	readers := c * float64(in.Reading)
	syncs := hints * float64(in.Reading)
	return point{c: c, hints: hints, syncs: syncs, syncedEvents: syncs * (1 + more), acks: readers * a.acks,
		ackNoise: readers * readers * a.noise, applied: readers, bytes: bytes}
}

func (in RunInputs) burst(p presence, odds float64) burst {
	return burst{in.Burst, p.lambda, odds / p.tau}
}

// acksByPresence is countAcks for each c. It is smooth in c: up to four it is worked out for each, and further on for
// about sixteen, with straight lines between.
func (in RunInputs) acksByPresence(p presence, whole bool) []ackCounts {
	const exact, steps = 4, 16
	out := make([]ackCounts, len(p.c))
	at := func(i int) ackCounts {
		policy := in.policy(p.c[i])
		if whole {
			policy.loss = 0
		}
		return countAcks(in.burst(p, p.odds[i]), policy)
	}
	step := max(1, (len(p.c)+steps-1)/steps)
	last := -1
	for i := range p.c {
		if i >= exact && i != len(p.c)-1 && i-last < step {
			continue
		}
		out[i] = at(i)
		for j := last + 1; j < i && last >= 0; j++ {
			out[j] = between(out[last], out[i], float64(j-last)/float64(i-last))
		}
		last = i
	}
	return out
}

func between(a, b ackCounts, share float64) ackCounts {
	mix := func(x, y float64) float64 { return x + share*(y-x) }
	return ackCounts{acks: mix(a.acks, b.acks), noise: mix(a.noise, b.noise), syncs: mix(a.syncs, b.syncs),
		hints: mix(a.hints, b.hints), healed: mix(a.healed, b.healed), perAck: mix(a.perAck, b.perAck)}
}

package population

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"imbench/loadgen/internal/behavior"
	"imbench/model/capacity"
)

// Expect takes averages for what varies: it adds a mean time to each acknowledgement and sync, and lets pushes take
// none. The reference below plays devices and the gateway's sweep with times that vary, commits in another order than
// intended, and a phase for each gateway. The sweep's rule is that of server/internal/hub: told again once the oldest
// unacknowledged push is a grace old, then after a back-off that begins with the grace, doubles, and ends with progress.
func TestExpectFollowsDevicesAndSweep(t *testing.T) {
	const runs = 4
	s := load(t, "baseline")
	s.Phases.Warmup, s.Phases.Measure = 10*time.Second, 30*time.Second
	pop := build(t, s, 1)
	plan, err := NewPlan(pop, s, 1)
	if err != nil {
		t.Fatal(err)
	}
	want := plan.Expect(4, typical).Figures
	r := rand.New(rand.NewPCG(1, 2))
	var hints, syncs float64
	for range runs {
		logs := playedLogs(plan, r)
		phase := [2]time.Duration{s.Server.Sweep * time.Duration(r.Float64()*1000) / 1000, s.Server.Sweep * time.Duration(r.Float64()*1000) / 1000}
		for conv, log := range logs {
			for i, d := range pop.connected(nil, int32(conv)) {
				if len(log) == 0 || !slices.ContainsFunc(log, func(m played) bool {
					return m.device != d && behavior.Lost(1, d, int32(conv), m.seq, s.Devices.Loss)
				}) {
					continue // nothing to repair
				}
				p := play{plan: plan, conv: int32(conv), device: d, log: log, phase: phase[i%2], r: r, cursor: log[0].seq - 1,
					ackAt: never, askAt: never}
				p.run()
				hints += float64(p.hints) / runs
				syncs += float64(p.syncs) / runs
			}
		}
	}
	seconds := s.Phases.Measure.Seconds()
	t.Log(hints/seconds, want[capacity.HintFrames], syncs/seconds, want[capacity.SyncFrames])
	// Hints vary from run to run by one part in 150 with phases and order; four runs by half of that.
	if got := hints / seconds; math.Abs(got/want[capacity.HintFrames]-1) > 0.01 {
		t.Errorf("%.2f hints a second, planned %.2f", got, want[capacity.HintFrames])
	}
	if got := syncs / seconds; math.Abs(got/want[capacity.SyncFrames]-1) > 0.005 {
		t.Errorf("%.2f syncs a second, planned %.2f", got, want[capacity.SyncFrames])
	}
}

// played is a message as a run has it.
type played struct {
	at, sent, pushed time.Duration
	device           int32
	seq              int64
}

// about draws from a log-normal distribution with this median, and one in a hundred above about six times as much.
func about(r *rand.Rand, median time.Duration) time.Duration {
	return time.Duration(float64(median) * math.Exp(0.77*r.NormFloat64()))
}

// playedLogs draws when each message is committed and pushed, and numbers them in the order of their commits.
func playedLogs(p *Plan, r *rand.Rand) [][]played {
	logs := make([][]played, len(p.pop.Convs))
	for arrivals := p.Arrivals(); ; {
		a, ok := arrivals.Next()
		if !ok {
			break
		}
		logs[a.Conv] = append(logs[a.Conv], played{at: a.At, sent: a.At + about(r, 10*time.Millisecond), device: a.Device})
	}
	for conv, log := range logs {
		slices.SortFunc(log, func(a, b played) int { return int(a.sent - b.sent) })
		last := time.Duration(0)
		for i := range log {
			last = max(last, log[i].sent+about(r, 4*time.Millisecond))
			log[i].pushed, log[i].seq = last, int64(len(p.pop.Convs[conv].Members)+i+1)
		}
	}
	return logs
}

// play is a device in a conversation, and what its gateway knows of it.
type play struct {
	plan   *Plan
	conv   int32
	device int32
	log    []played
	phase  time.Duration
	r      *rand.Rand
	now    time.Duration

	cursor, head int64
	held         []int64 // pushed, behind a gap
	unacked      int
	ackAt        time.Duration // when an acknowledgement leaves
	asked        int64         // one is on its way
	askAt        time.Duration // when a gap is followed
	syncing      bool
	again        bool
	waiting      int // hints that wait for a sync to tell what they were for
	events       []playEvent

	marks []played // pushed, not known to be acknowledged
	acked int64
	next  time.Duration
	tries int

	hints, syncs int
}

type playEvent struct {
	at  time.Duration
	do  func(seq int64)
	seq int64
}

func (p *play) after(wait time.Duration, do func(int64), seq int64) {
	e := playEvent{p.now + wait, do, seq}
	i, _ := slices.BinarySearchFunc(p.events, e, func(a, b playEvent) int {
		if a.at <= b.at {
			return -1
		}
		return 1
	})
	p.events = slices.Insert(p.events, i, e)
}

func (p *play) message(seq int64) *played { return &p.log[seq-p.log[0].seq] }

func (p *play) within(seq int64) bool {
	at := p.message(seq).at
	return at >= p.plan.s.Phases.Warmup && at < p.plan.s.Phases.Warmup+p.plan.s.Phases.Measure
}

// timer is a device's timer, which fires a little late.
func (p *play) timer(wait time.Duration) time.Duration {
	return p.now + wait + time.Duration(p.r.Int64N(int64(2*typical.Timer)))
}

func (p *play) run() {
	for i := range p.log {
		if m := &p.log[i]; m.device == p.device {
			p.after(m.sent, p.own, m.seq)
		} else {
			p.after(m.pushed, p.pushed, m.seq)
		}
	}
	for {
		event, ackAt := never, p.ackAt
		if len(p.events) > 0 {
			event = p.events[0].at
		}
		if p.asked != 0 {
			ackAt = never
		}
		sweep := p.sweepAt()
		switch p.now = min(event, ackAt, p.askAt, sweep); p.now {
		case never:
			return
		case ackAt:
			p.acknowledge()
		case p.askAt:
			p.sync()
		case event:
			e := p.events[0]
			p.events = p.events[1:]
			e.do(e.seq)
		default:
			p.next = p.now + p.plan.s.Server.Grace<<p.tries
			p.tries++
			p.after(time.Millisecond, p.hinted, p.marks[len(p.marks)-1].seq)
		}
	}
}

func (p *play) sweepAt() time.Duration {
	if len(p.marks) == 0 {
		return never
	}
	period := p.plan.s.Server.Sweep
	at := max(p.marks[0].pushed+p.plan.s.Server.Grace, p.next)
	return p.phase + (at-p.phase+period-1)/period*period
}

func (p *play) pushed(seq int64) {
	if seq > p.acked {
		p.marks = append(p.marks, *p.message(seq))
	}
	if !behavior.Lost(p.plan.seed, p.device, p.conv, seq, p.plan.s.Devices.Loss) {
		p.take(seq, func() { p.sync() })
	}
}

func (p *play) own(seq int64) {
	p.take(seq, func() {
		if p.askAt == never {
			p.askAt = p.timer(typical.Gap)
		}
	})
}

// take is an event in hand; gap is what to do if others are missing before it.
func (p *play) take(seq int64, gap func()) {
	p.head = max(p.head, seq)
	switch {
	case seq <= p.cursor:
	case seq == p.cursor+1:
		p.apply()
		p.follow()
	default:
		p.held = append(p.held, seq)
		if p.again = p.syncing; !p.syncing {
			gap()
		}
	}
}

func (p *play) apply() {
	p.cursor++
	p.head = max(p.head, p.cursor)
	p.unacked++
	if p.ackAt == never {
		p.ackAt = p.timer(p.plan.s.Devices.AckDelay)
	}
	if p.unacked >= p.plan.s.Devices.AckEvery {
		p.ackAt = p.now
	}
	if p.ackAt <= p.now {
		p.acknowledge()
	}
}

func (p *play) acknowledge() {
	if p.asked != 0 {
		return
	}
	p.asked, p.unacked, p.ackAt = p.cursor, 0, never
	// The window's rest is even, and the write takes what it takes.
	p.after(time.Duration(p.r.Int64N(int64(50*time.Millisecond)))+about(p.r, 15*time.Millisecond), p.known, p.cursor)
}

// known is an acknowledgement that is written and answered.
func (p *play) known(seq int64) {
	p.acked, p.tries, p.next, p.asked = seq, 0, 0, 0
	p.marks = slices.DeleteFunc(p.marks, func(m played) bool { return m.seq <= seq })
	if p.ackAt <= p.now {
		p.acknowledge()
	}
}

func (p *play) hinted(head int64) {
	p.head = max(p.head, head)
	switch {
	case head <= p.cursor:
		if p.within(p.cursor) {
			p.hints++
		}
		if p.cursor > p.acked {
			p.acknowledge()
		}
	case p.syncing:
		p.waiting++
		p.again = true
	default:
		p.waiting++
		p.sync()
	}
}

func (p *play) sync() {
	p.syncing, p.again, p.askAt = true, false, never
	p.after(about(p.r, 3*time.Millisecond), p.synced, 0)
}

func (p *play) synced(int64) {
	if first := min(p.cursor+1, p.log[len(p.log)-1].seq); p.within(first) {
		p.syncs++
		p.hints += p.waiting
	}
	p.syncing, p.waiting = false, 0
	for i := range p.log {
		if m := &p.log[i]; m.seq == p.cursor+1 && (m.sent <= p.now || m.seq <= p.head) {
			p.apply()
		}
	}
	p.follow()
}

// follow applies what is held and has become contiguous, and asks again for what is not.
func (p *play) follow() {
	slices.Sort(p.held)
	for len(p.held) > 0 && p.held[0] <= p.cursor+1 {
		if p.held[0] == p.cursor+1 {
			p.apply()
		}
		p.held = p.held[1:]
	}
	switch {
	case p.syncing:
	case p.head <= p.cursor:
		p.askAt = never
	case p.again:
		p.sync()
	case p.askAt == never:
		p.askAt = p.timer(typical.Gap)
	}
}

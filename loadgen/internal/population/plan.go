package population

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"sort"
	"time"

	"imbench/loadgen/internal/scenario"
)

// Plan is everything that will be sent in a run: two independent streams over active sets of conversations, from a seed. It is immutable and may be walked any number of times, by several goroutines at once, each with an
// Arrivals of its own.
//
// A conversation enters an active set with probability proportional to its connected devices, speaks Burst messages and
// leaves; at the start a random 0..Burst−1 of them lie behind it. Each message falls evenly on one of the active set,
// and its sender is drawn evenly among the conversation's connected devices.
type Plan struct {
	pop     *Population
	s       *scenario.Scenario
	seed    uint64
	ramp    ramp
	bodies  bodies
	streams [2]streamPlan
}

type streamPlan struct {
	name   string
	rate   float64 // messages per second
	active int     // conversations
	convs  []int32 // those with a connected device
	upTo   []int   // upTo[i]: connected devices of convs[:i+1]
}

// NewPlan prepares the arrivals of a scenario over a population. It needs 12 bytes a conversation.
//
// The error is for an active set that the population cannot fill: entering needs one conversation with a connected
// device more than the set holds.
func NewPlan(pop *Population, s *scenario.Scenario, seed uint64) (*Plan, error) {
	p := &Plan{pop: pop, s: s, seed: seed, ramp: newRamp(s.Load), bodies: newBodies(s.Load, seed)}
	p.streams[0] = streamPlan{name: "group", rate: float64(s.Load.GroupRate), active: s.Load.ActiveGroups}
	p.streams[1] = streamPlan{name: "direct", rate: float64(s.Load.DirectRate), active: s.Load.ActiveDirects}
	for i := range p.streams {
		st := &p.streams[i]
		total := 0
		for c := range pop.Convs {
			if pop.Convs[c].Kind != st.name {
				continue
			}
			if n := len(pop.connected(nil, int32(c))); n > 0 {
				total += n
				st.convs = append(st.convs, int32(c))
				st.upTo = append(st.upTo, total)
			}
		}
		if st.rate > 0 && len(st.convs) <= st.active {
			return nil, fmt.Errorf("load.active_%ss is %d, and this population has only %d %s conversations with a connected device: at least %d are needed",
				st.name, st.active, len(st.convs), st.name, st.active+1)
		}
	}
	return p, nil
}

// connected appends the connected devices of a conversation's members to dst, in member order.
func (p *Population) connected(dst []int32, conv int32) []int32 {
	for _, u := range p.Convs[conv].Members {
		for _, d := range p.Users[u].Devices {
			if p.Devices[d].Connected {
				dst = append(dst, d)
			}
		}
	}
	return dst
}

// Arrivals starts the plan from its beginning. Its memory is the active sets.
func (p *Plan) Arrivals() Arrivals {
	a := &arrivals{plan: p, end: p.s.Phases.LoadTime(), cmids: newSource(p.seed, "cmids")}
	for i := range p.streams {
		a.streams[i].start(p, &p.streams[i])
	}
	return a
}

// Digest is a SHA-256 over every arrival, in hex.
func (p *Plan) Digest() string { return digestArrivals(p.Arrivals) }

// digestArrivals is a SHA-256, in hex, over every arrival that a fresh stream yields.
func digestArrivals(fresh func() Arrivals) string {
	h := sha256.New()
	var b [24]byte
	for arrivals := fresh(); ; {
		a, ok := arrivals.Next()
		if !ok {
			return hex.EncodeToString(h.Sum(nil))
		}
		binary.BigEndian.PutUint64(b[:], uint64(a.Index))
		binary.BigEndian.PutUint64(b[8:], uint64(a.At))
		binary.BigEndian.PutUint32(b[16:], uint32(a.Conv))
		binary.BigEndian.PutUint32(b[20:], uint32(a.Device))
		h.Write(b[:])
		h.Write([]byte(a.CMID))
	}
}

// arrivals merges the two streams in time order.
type arrivals struct {
	plan    *Plan
	end     time.Duration
	index   int64
	cmids   source
	streams [2]stream
}

// Next implements Arrivals.
func (a *arrivals) Next() (Arrival, bool) {
	st := &a.streams[0]
	if a.streams[1].at < st.at {
		st = &a.streams[1]
	}
	if st.at >= a.end.Seconds() {
		return Arrival{}, false
	}
	arrival := Arrival{Index: a.index, At: time.Duration(st.at * float64(time.Second)), CMID: a.cmids.uuid()}
	arrival.Conv, arrival.Device = st.speak(a.plan)
	a.index++
	return arrival, true
}

// stream is one stream with its active set.
type stream struct {
	even bool // at equal distances, else Poisson
	plan *streamPlan
	src  source
	at   float64 // seconds: when its next message is due
	set  []slot
	in   map[int32]bool // the conversations of set
}

// slot is one active conversation.
type slot struct {
	conv    int32
	left    int     // messages until it leaves
	devices []int32 // who may send
}

// silent lies behind the end of every plan, in seconds.
const silent = 1e18

func (st *stream) start(p *Plan, plan *streamPlan) {
	st.plan, st.src, st.at = plan, newSource(p.seed, plan.name), silent
	if plan.rate <= 0 {
		return
	}
	st.set, st.in = make([]slot, plan.active), make(map[int32]bool, plan.active+1)
	for i := range st.set {
		st.enter(p, &st.set[i])
		st.set[i].left -= st.src.below(p.s.Load.Burst)
	}
	work := st.src.exponential()
	if st.even = p.s.Load.Arrivals == scenario.Even; st.even {
		work = 0.5
	}
	st.at = p.ramp.after(0, work/plan.rate)
}

// speak gives the stream's due message its conversation and sender, and draws the time of the next.
func (st *stream) speak(p *Plan) (conv, device int32) {
	sl := &st.set[st.src.below(len(st.set))]
	conv, device = sl.conv, sl.devices[st.src.below(len(sl.devices))]
	if sl.left--; sl.left == 0 {
		st.enter(p, sl)
		delete(st.in, conv)
	}
	work := 1.0
	if !st.even {
		work = st.src.exponential()
	}
	st.at = p.ramp.after(st.at, work/st.plan.rate)
	return conv, device
}

// enter puts a conversation that is not active into the slot. Drawing again until one is found keeps the probabilities
// proportional; NewPlan made sure that there is one.
func (st *stream) enter(p *Plan, sl *slot) {
	for {
		draw := st.src.below(st.plan.upTo[len(st.plan.upTo)-1])
		conv := st.plan.convs[sort.SearchInts(st.plan.upTo, draw+1)]
		if !st.in[conv] {
			st.in[conv] = true
			*sl = slot{conv: conv, left: p.s.Load.Burst, devices: p.pop.connected(sl.devices[:0], conv)}
			return
		}
	}
}

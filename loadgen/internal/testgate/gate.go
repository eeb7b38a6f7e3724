// Package testgate is a small gateway in memory, for tests of what speaks to one: logs, cursors, pushes and hints as the
// contract has them, with knobs for what can go wrong. It is no reference: it keeps everything and has no limits.
//
// Devices reach it through Wire (in memory, for virtual time) or Handler (real WebSockets). All methods are safe for
// concurrent use; knobs are set before the first session.
package testgate

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"imbench/loadgen/internal/population"
	"imbench/server/wire"
)

// Gate is the gateway.
type Gate struct {
	// DropPush says whether the push of seq to a device is lost before it leaves.
	DropPush func(device, conv string, seq int64) bool
	// DropReply says whether the n-th reply of a type (from 1) is lost.
	DropReply func(t wire.Type, n int) bool
	// Refuse says whether a request is answered with an error, given how many of its type came before.
	Refuse func(r *wire.Request, before int) (wire.Code, int)
	// Admit says whether the n-th hello is admitted, and when to come back if not.
	Admit     func(attempt int) (ok bool, retryMS int) // nil = always
	Heartbeat time.Duration
	// Environment is the label that welcomes tell.
	Environment string
	// SyncDelay is how long a page is held back after it was read: what is pushed meanwhile overtakes it.
	SyncDelay time.Duration
	// Large makes all groups so large that they are hinted at, though lists call them pushed.
	Large  bool
	Silent atomic.Bool // answers nothing from now on
	// Before is called ahead of each request that comes over a WebSocket, and may hold it back; nil = nothing is.
	Before    func(t wire.Type)
	Tamper    Tamper
	Page      int  // conversations and events a page; 0 = so few that clients must page
	Forgetful bool // Requests has none, so that a long run does not fill the memory

	mu       sync.Mutex
	pop      *population.Population
	convs    map[string]*log
	users    map[string]string   // device → user
	lists    map[string][]string // user → conversations
	sessions map[string]*Session
	attempts int
	seen     map[wire.Type]int
	replied  map[wire.Type]int
	requests []Seen
}

// Seen is a request as the gate saw it.
type Seen struct {
	Device string
	At     time.Time
	wire.Request
}

type log struct {
	mode    string
	devices []string // of the members
	events  []wire.Event
	acked   map[string]int64 // by device
	keys    map[string]int64 // sender/cmid → seq
}

// Session is one connection.
type Session struct {
	gate   *Gate
	device string
	subbed bool
	open   map[string]bool
	out    func(*wire.Frame)
	end    func(code int, reason string)
}

// New makes a gate for a population, with one join event a member, and all cursors at head.
func New(pop *population.Population) *Gate {
	g := &Gate{Environment: "test", pop: pop, convs: map[string]*log{}, users: map[string]string{}, lists: map[string][]string{}, sessions: map[string]*Session{},
		seen: map[wire.Type]int{}, replied: map[wire.Type]int{}}
	for _, c := range pop.Convs {
		l := &log{mode: c.Mode, acked: map[string]int64{}, keys: map[string]int64{}}
		for _, u := range c.Members {
			user := pop.Users[u]
			g.lists[user.ID] = append(g.lists[user.ID], c.ID)
			l.events = append(l.events, wire.Event{Conv: c.ID, Seq: int64(len(l.events) + 1), Epoch: 1, Kind: "join", User: user.ID})
			for _, d := range user.Devices {
				l.acked[pop.Devices[d].ID] = int64(len(c.Members))
				l.devices = append(l.devices, pop.Devices[d].ID)
			}
		}
		g.convs[c.ID] = l
	}
	for _, d := range pop.Devices {
		g.users[d.ID] = pop.Users[d.User].ID
	}
	return g
}

// Requests returns a copy of all requests of a type so far.
func (g *Gate) Requests(t wire.Type) []Seen {
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []Seen
	for _, r := range g.requests {
		if r.T == t {
			out = append(out, r)
		}
	}
	return out
}

// Log returns a copy of a conversation's events; one without a kind is a seq that was given and is empty.
func (g *Gate) Log(conv string) []wire.Event {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.convs[conv].events)
}

// Acked is a device's cursor as the gate has it.
func (g *Gate) Acked(conv, device string) int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.convs[conv].acked[device]
}

// Post commits a message of a user who is on no connection, and announces it.
func (g *Gate) Post(conv, user, cmid, body string) int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	seq, _ := g.commit(conv, user, cmid, body)
	g.announce(conv, seq, "")
	return seq
}

// Leave takes a user out of a conversation, which stays in his list; his devices are told, and nothing more after it.
func (g *Gate) Leave(conv, user string) int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.convs[conv]
	seq := int64(len(l.events) + 1)
	l.events = append(l.events, wire.Event{Conv: conv, Seq: seq, Epoch: 1, Kind: "leave", Sender: user, User: user})
	g.announce(conv, seq, "")
	l.devices = slices.DeleteFunc(l.devices, func(device string) bool { return g.users[device] == user })
	return seq
}

// Hint sends a hint of the conversation's head to a device, as the sweep does.
func (g *Gate) Hint(device, conv, why string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s := g.sessions[device]; s != nil {
		s.send(&wire.Frame{T: wire.THint, Conv: conv, Head: int64(len(g.convs[conv].events)), Why: why})
	}
}

// Push pushes an event that was committed before, once more.
func (g *Gate) Push(device, conv string, seq int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s := g.sessions[device]; s != nil {
		s.send(&wire.Frame{T: wire.TEvent, Ev: g.convs[conv].events[seq-1]})
	}
}

// Kick closes a device's session, all of them for "".
func (g *Gate) Kick(device string, code int, reason string) {
	g.mu.Lock()
	var list []*Session
	for d, s := range g.sessions {
		if device == "" || d == device {
			list = append(list, s)
		}
	}
	g.mu.Unlock()
	for _, s := range list {
		s.end(code, reason)
	}
}

// Connected lists the devices with a session.
func (g *Gate) Connected() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Sorted(maps.Keys(g.sessions))
}

// commit appends a message, once for each key; g.mu must be held.
func (g *Gate) commit(conv, user, cmid, body string) (seq int64, dup bool) {
	l := g.convs[conv]
	if seq, dup := l.keys[user+"/"+cmid]; dup {
		return seq, true
	}
	l.keys[user+"/"+cmid] = int64(len(l.events) + 1)
	return l.add(conv, user, cmid, body), false
}

// add appends a message; the gate's mu must be held.
func (l *log) add(conv, user, cmid, body string) int64 {
	seq := int64(len(l.events) + 1)
	l.events = append(l.events, wire.Event{Conv: conv, Seq: seq, Epoch: 1, Kind: "msg", Sender: user, CMID: cmid, Body: body,
		MID: fmt.Sprintf("00000000-0000-4000-8000-%012d", seq), At: time.Now().UnixMilli()})
	return seq
}

// announce pushes or hints to every subscribed device of a member but the sending one; g.mu must be held.
func (g *Gate) announce(conv string, seq int64, from string) {
	l := g.convs[conv]
	for _, device := range l.devices {
		s := g.sessions[device]
		switch {
		case s == nil || device == from || !s.subbed:
		case g.DropPush != nil && g.DropPush(device, conv, seq):
		case l.mode == "pull" || g.Large:
			s.send(&wire.Frame{T: wire.THint, Conv: conv, Head: seq})
		default:
			g.push(s, &l.events[seq-1])
		}
	}
}

// send hands a frame to the transport, unless it is a reply that a knob drops; g.mu must be held.
func (s *Session) send(f *wire.Frame) {
	g := s.gate
	g.replied[f.T]++
	if g.DropReply != nil && g.DropReply(f.T, g.replied[f.T]) {
		return
	}
	s.out(f)
}

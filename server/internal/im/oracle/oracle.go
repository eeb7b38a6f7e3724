// Package oracle is the reference model of the store: im.Store in memory, written to be read and not to be fast. Random
// histories run against it and against the real store, and what both answer is compared; the conformance suite of
// package storetest runs against it too, so that the model is checked by what it checks.
//
// A Store is safe for concurrent use: one mutex makes every call a single step. It starts no goroutines. Its memory grows
// with the log; it is for tests.
package oracle

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"imbench/server/internal/im"
)

// Store is the model. The exported fields are set before its first use.
type Store struct {
	GroupLimit int           // members of a group
	NewConv    func() string // the id of a new direct conversation

	now func() time.Time

	mu       sync.Mutex
	users    map[string]bool
	devices  map[string]*device
	convs    map[string]*conv
	pairs    map[[2]string]string // the two users in order → their direct conversation
	gateways map[string]lease
	leases   int // begun so far
}

type device struct {
	user       string
	install    int32
	generation int64
	route      *route
}

type route struct {
	gateway    string
	prev       string // the gateway of the route that it replaced
	conn       int64
	generation int64
	install    int32
}

// conv is a conversation. Event number seq is events[seq-1], also below minSeq, from where nothing is read any more.
type conv struct {
	id        string
	kind      string
	mode      im.Mode
	epoch     int32
	minSeq    int64
	window    time.Duration // in which a message may be recalled
	retention time.Duration // 0 = for ever
	locked    bool          // by another session
	events    []im.Event
	periods   []im.Period
	requests  map[key]request
	tombs     map[key]time.Time // keys that retention removed, and until when they are kept
	cursors   map[string]cursor // by device
	reads     map[string]position
}

// key is an idempotency key; it belongs to its sender.
type key struct{ user, cmid string }

// request is what a key was used for: the event, and the content that tells a repetition from another request.
type request struct {
	seq     int64
	content string
}

type cursor struct {
	install int32
	epoch   int32
	seq     int64
}

type position struct {
	epoch int32
	seq   int64
}

// New makes an empty Store whose time is now's; that must not go back.
func New(now func() time.Time) *Store {
	return &Store{
		GroupLimit: 1000, NewConv: func() string { return "d-" + uuid.NewString() }, now: now,
		users: map[string]bool{}, devices: map[string]*device{}, convs: map[string]*conv{},
		pairs: map[[2]string]string{}, gateways: map[string]lease{},
	}
}

// DefaultWindow is the time in which a message may be recalled if a conversation does not state it.
const DefaultWindow = 120 * time.Second

// AddUser adds a user with devices of the first installation.
func (s *Store) AddUser(id string, devices ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users[id] = true
	for _, d := range devices {
		s.devices[d] = &device{user: id, install: 1}
	}
}

// AddConv adds a conversation whose members have joined in order, and whose devices have all of that.
func (s *Store) AddConv(id, kind string, mode im.Mode, members ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.addConv(id, kind, mode, members)
	for name, d := range s.devices {
		if slices.Contains(members, d.user) {
			c.cursors[name] = cursor{install: 1, epoch: 1, seq: c.head()}
		}
	}
}

func (s *Store) addConv(id, kind string, mode im.Mode, members []string) *conv {
	c := &conv{
		id: id, kind: kind, mode: mode, epoch: 1, minSeq: 1, window: DefaultWindow,
		requests: map[key]request{}, tombs: map[key]time.Time{}, cursors: map[string]cursor{}, reads: map[string]position{},
	}
	for _, m := range members {
		c.periods = append(c.periods, im.Period{User: m, From: c.head() + 1})
		c.append(im.Event{Kind: im.KindJoin, Sender: members[0], User: m, At: s.now()})
	}
	if kind == "direct" {
		s.pairs[pair(members[0], members[1])] = id
	}
	s.convs[id] = c
	return c
}

// SetTimes states a conversation's recall window and retention (0 = for ever).
func (s *Store) SetTimes(id string, window, retention time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.convs[id].window, s.convs[id].retention = window, retention
}

// Lock makes the conversation busy, as another session does that holds its row, until release is called. Nobody waits
// for it here: the lock timeout is zero.
func (s *Store) Lock(_ context.Context, id string) (release func(), err error) {
	set := func(v bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.convs[id].locked = v
	}
	set(true)
	return func() { set(false) }, nil
}

func (c *conv) head() int64 { return int64(len(c.events)) }

// append gives an event its place at the end of the log.
func (c *conv) append(ev im.Event) im.Event {
	ev.Conv, ev.Seq = c.id, c.head()+1
	if n := len(c.events); n > 0 {
		ev.MsgNo = c.events[n-1].MsgNo
	}
	if ev.Kind == im.KindMsg {
		ev.MsgNo++
	}
	c.events = append(c.events, ev)
	return ev
}

// event gives an event as it is now read.
func (c *conv) event(seq int64) im.Event {
	ev := c.events[seq-1]
	ev.Epoch = c.epoch
	return ev
}

// at is the user's membership interval that seq lies in.
func (c *conv) at(user string, seq int64) bool {
	return slices.ContainsFunc(c.periods, func(p im.Period) bool {
		return p.User == user && p.From <= seq && (p.To == 0 || seq <= p.To)
	})
}

// open says whether the user is a member now.
func (c *conv) open(user string) bool {
	return slices.ContainsFunc(c.periods, func(p im.Period) bool { return p.User == user && p.To == 0 })
}

// visible says whether the user may see the event, and it is still there.
func (c *conv) visible(user string, seq int64) bool {
	return seq >= c.minSeq && seq <= c.head() && c.at(user, seq)
}

// headOf is the last seq that the user may know of: one's own leave, if one has left. False: never a member.
func (c *conv) headOf(user string) (head int64, ever bool) {
	for _, p := range c.periods {
		if p.User == user {
			ever = true
			if p.To == 0 {
				return c.head(), true
			}
			head = max(head, p.To)
		}
	}
	return head, ever
}

// member finds a conversation in which the user is or was a member. To everyone else it does not exist.
func (s *Store) member(user, id string) (*conv, error) {
	if c := s.convs[id]; c != nil {
		if _, ever := c.headOf(user); ever {
			return c, nil
		}
	}
	return nil, im.ErrNotMember
}

// storable says whether PostgreSQL could store these strings; a request with another one is refused before all else.
func storable(fields ...string) bool {
	return !slices.ContainsFunc(fields, func(f string) bool { return !utf8.ValidString(f) || strings.Contains(f, "\x00") })
}

// begin locks the store for one step, unless the caller has gone.
func (s *Store) begin(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", im.ErrUnavailable, err)
	}
	s.mu.Lock()
	return nil
}

func pair(a, b string) [2]string { return [2]string{min(a, b), max(a, b)} }

// Clone is a copy on which steps can be tried.
func (s *Store) Clone() *Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := New(s.now)
	n.GroupLimit, n.NewConv, n.leases = s.GroupLimit, s.NewConv, s.leases
	n.users, n.pairs, n.gateways = maps.Clone(s.users), maps.Clone(s.pairs), maps.Clone(s.gateways)
	for id, d := range s.devices {
		copied := *d
		n.devices[id] = &copied // a route is replaced, never changed
	}
	for id, c := range s.convs {
		copied := *c
		copied.events, copied.periods = slices.Clone(c.events), slices.Clone(c.periods)
		copied.requests, copied.tombs = maps.Clone(c.requests), maps.Clone(c.tombs)
		copied.cursors, copied.reads = maps.Clone(c.cursors), maps.Clone(c.reads)
		n.convs[id] = &copied
	}
	return n
}

// sorted gives the keys of a map in order, where the order of an answer is stated.
func sorted[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

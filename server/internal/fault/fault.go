// Package fault has named points at which a gateway fails on purpose, for the checks of what a crash, a lost frame or an
// unlucky order of events must not do. They are off unless the environment asks for them (Parse), and production
// configurations refuse to be asked: package app takes them in the environments "embedded" and "test" only.
//
// A *Set is what is switched on; nil is nothing, and costs the point a comparison. The methods are safe for concurrent
// use. A Set starts no goroutines; a Barrier has its own, which Close ends.
package fault

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
)

// The environment variables of a gateway.
const (
	Var       = "IMBENCH_FAULT"        // what Parse reads
	SocketVar = "IMBENCH_FAULT_SOCKET" // the path of the Barrier that pauses ask
)

// Point is a place in the gateway's code.
type Point string

// The points. The first three, and the two that lose frames, have the names that the source documents give them.
//
// A batch of sends is one statement, which commits by itself. With a point before the insert or before the commit the
// store runs it in an explicit transaction: BEGIN, the first point, the statement (checks, insert, counter), the second
// point, COMMIT. So the process can end between the two as it could in the middle of the statement.
const (
	SendBeforeInsert Point = "send.before_insert"    // in the transaction, before anything is written
	SendBeforeCommit Point = "send.before_commit"    // everything is written, nothing is committed
	AfterSendCommit  Point = "api.after_send_commit" // committed; neither replied nor announced
	ReplyFirst       Point = "send.reply_first"      // `sent` is replied before anything is done: the design that loses messages

	AckRequest     Point = "gw.request.ack"   // an acknowledgement has arrived
	AckBeforeWrite Point = "ack.before_write" // a batch of acknowledgements is about to be written

	BeforeClaim Point = "route.before_claim" // claims of routes are about to be written, under the lease that was in force
	AfterClaim  Point = "route.after_claim"  // they are written; the gateway does not know it yet

	// What other gateways announce: "drop" loses each announcement, and with "on" of four that come one is lost, one
	// comes twice, one comes after the next and only one is as it should be.
	BusReceive Point = "bus.receive"
	BusResync  Point = "bus.resync" // the listener listens again after it was cut, and nobody catches up

	BeforeReadMembers Point = "fanout.before_read_members"
	BeforeReadEvents  Point = "fanout.before_read_events"

	// Frames on their way to the socket of a device: whatever the gateway believes of them, this decides whether they
	// are written. A pause holds the connection, for less than the ten seconds after which it counts as stuck; Push is
	// therefore also the point between a fan-out that is decided and its write.
	Push      Point = "gw.push" // an event that the device did not ask for
	Hint      Point = "gw.hint"
	ReplySend Point = "gw.reply.send"
	ReplyAck  Point = "gw.reply.ack"
	ReplySync Point = "gw.reply.sync"
)

// Action is what happens at a point.
type Action string

// The actions. Not every point can do all of them.
const (
	Exit  Action = "exit"  // the process ends at once with status 137, as a killed one
	Pause Action = "pause" // waits for the Barrier's word, and goes on as it says; without a Barrier it goes on
	Fail  Action = "error" // the operation fails as it does when the database is away
	Drop  Action = "drop"  // the frame or request is lost, and nobody is told
	On    Action = "on"    // the point's own way of going wrong
)

var actions = map[Point][]Action{
	SendBeforeInsert: {Exit, Pause, Fail}, SendBeforeCommit: {Exit, Pause, Fail}, AfterSendCommit: {Exit, Pause, Fail},
	ReplyFirst: {On}, AckRequest: {Exit, Drop}, AckBeforeWrite: {Exit, Pause, Fail},
	BeforeClaim: {Exit, Pause, Fail}, AfterClaim: {Exit, Pause, Fail}, BusReceive: {Drop, On}, BusResync: {Drop},
	BeforeReadMembers: {Exit, Pause, Fail}, BeforeReadEvents: {Exit, Pause, Fail},
	Push: {Exit, Pause, Drop}, Hint: {Exit, Pause, Drop}, ReplySend: {Exit, Pause, Drop}, ReplyAck: {Exit, Pause, Drop},
	ReplySync: {Exit, Pause, Drop},
}

// The errors of At.
var (
	ErrInjected = errors.New("a fault that was asked for")
	ErrDropped  = errors.New("lost on purpose")
)

// exitStatus is that of a process ended by SIGKILL, as a shell tells it.
const exitStatus = 137

// Set is the points that are switched on.
type Set struct {
	rules  map[Point]*rule
	socket string
	exit   func(code int)
}

type rule struct {
	action      Action
	skip, count int64 // hits that pass first; hits that act after them, 0 = all
	hits        atomic.Int64
}

// Parse reads a list of "point=action", "point=action:skip" or "point=action:skip:count", separated by commas: the
// first skip hits pass, then count hits act (without a count, all). "" is no Set. The error says all that is wrong.
func Parse(text, socket string) (*Set, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	s := &Set{rules: map[Point]*rule{}, socket: socket, exit: os.Exit}
	var wrong []error
	for item := range strings.SplitSeq(text, ",") {
		if err := s.add(strings.TrimSpace(item)); err != nil {
			wrong = append(wrong, err)
		}
	}
	if wrong != nil {
		return nil, errors.Join(wrong...)
	}
	return s, nil
}

func (s *Set) add(item string) error {
	name, what, _ := strings.Cut(item, "=")
	point := Point(name)
	can, ok := actions[point]
	if !ok {
		return fmt.Errorf("%q: there is no such point; there are %v", item, slices.Sorted(maps.Keys(actions)))
	}
	parts := strings.Split(what, ":")
	r := &rule{action: Action(parts[0])}
	if !slices.Contains(can, r.action) {
		return fmt.Errorf("%q: the point can %v", item, can)
	}
	numbers := []*int64{&r.skip, &r.count}
	if len(parts)-1 > len(numbers) {
		return fmt.Errorf("%q: must be point=action:skip:count", item)
	}
	for i, text := range parts[1:] {
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil || n < 0 {
			return fmt.Errorf("%q: %q is no number of hits", item, text)
		}
		*numbers[i] = n
	}
	if s.rules[point] != nil {
		return fmt.Errorf("%q: the point is named twice", item)
	}
	s.rules[point] = r
	return nil
}

// Has says whether one of the points is switched on.
func (s *Set) Has(points ...Point) bool {
	return s != nil && slices.ContainsFunc(points, func(p Point) bool { return s.rules[p] != nil })
}

// At is the point: it returns nil where nothing is to go wrong. Otherwise the process ends here, or it waits (until ctx
// ends, whose error it then returns), or the error says how the caller is to fail: ErrInjected or ErrDropped.
func (s *Set) At(ctx context.Context, p Point) error {
	if s == nil {
		return nil
	}
	return s.at(ctx, p)
}

func (s *Set) at(ctx context.Context, p Point) error {
	r := s.rules[p]
	if r == nil {
		return nil
	}
	n := r.hits.Add(1)
	if n <= r.skip || r.count > 0 && n > r.skip+r.count {
		return nil
	}
	if r.action == Pause {
		return s.pause(ctx, p)
	}
	return s.act(p, r.action)
}

func (s *Set) act(p Point, a Action) error {
	switch a {
	case Exit:
		s.exit(exitStatus)
	case Fail:
		return fmt.Errorf("%s: %w", p, ErrInjected)
	case Drop:
		return fmt.Errorf("%s: %w", p, ErrDropped)
	}
	return nil
}

// pause tells the barrier that it is here, and waits for its word: an action, or "" to go on. A barrier that has gone
// holds nobody.
func (s *Set) pause(ctx context.Context, p Point) error {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", s.socket)
	if err != nil {
		return ctx.Err()
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if _, err := fmt.Fprintln(conn, p); err != nil {
		return ctx.Err()
	}
	word, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return ctx.Err()
	}
	return s.act(p, Action(strings.TrimSpace(word)))
}

// Package preflight tries a target with a few devices before any load is made: whether they get in, hear each other, and are
// left connected while they are silent.
//
// Talk may be called by several goroutines, each with a Party of its own; all that it starts has ended when it returns.
package preflight

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"imbench/loadgen/protocol"
)

// stepLimit bounds each step: getting in, hearing all messages, acknowledging.
const stepLimit = 15 * time.Second

// Party is who talks: each device sends one message to the conversation that all of them are in.
type Party struct {
	Wire    protocol.Wire
	Targets []string // the i-th device goes to target i mod n
	Devices []string
	Install map[string]int32  // installations of these devices; the first, if absent
	Key     string            // with which the idempotency keys begin; no other talk may have had it
	Body    string            // of the messages
	Tokens  map[string]string // by device
	Conv    string
	After   int64         // where the conversation stands: what a hint tells of is asked for from there
	Idle    time.Duration // how long all are silent afterwards; 0 = a heartbeat and five seconds, below 0 = not at all
	Say     func(what string)
	// Welcome is told of each welcome, before anything but hello is asked of any gateway; an error ends the talk.
	Welcome func(gateway, environment string) error
}

// Sent is one message.
type Sent struct {
	Key      string
	From, To time.Time // of the request and its reply; the wall clock
	Took     time.Duration
}

// Report is what came of it.
type Report struct {
	Gateways  map[string]int // connections by the gateway's id
	Heartbeat time.Duration
	Sent      []Sent
	Expected  int             // deliveries
	Delivered []time.Duration // from the request to the arrival
	Repeated  int             // deliveries that came more than once
	Hinted    int             // devices that were told of messages by a hint, and asked for them
	Acked     int             // devices whose acknowledgement was confirmed
	Idled     time.Duration   // how long they were silent
	Cut       []string        // how connections ended in that time
	Pings     int             // connections that heard a ping meanwhile
}

// peer is one connection. mu guards what frames change.
type peer struct {
	device, target string
	key, party     string // its message's, and how those of all begin
	conv           string
	conn           protocol.Conn

	mu      sync.Mutex
	welcome *protocol.Frame
	subbed  bool
	acked   bool
	head    int64
	cursor  int64 // up to here syncs have brought all
	hints   int   // but for those of the sweep, which repair what was lost
	hinted  int64 // the furthest that a hint has told
	syncing bool
	sentAt  time.Time
	sent    *Sent
	heard   map[string][]time.Time // by key
	refused error
	pinged  bool
	idle    bool
	ended   error
	endedAt time.Time
}

func (p *peer) on(f *protocol.Frame) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	switch f.Kind {
	case protocol.KindWelcome:
		p.welcome = &protocol.Frame{Gateway: f.Gateway, Environment: f.Environment, Heartbeat: f.Heartbeat}
	case protocol.KindSent:
		p.head = max(p.head, f.Seq)
		p.sent = &Sent{Key: p.key, From: p.sentAt, To: now, Took: now.Sub(p.sentAt)}
	case protocol.KindEvent:
		if f.Event.Conv != p.conv { // users that were there are in others, too
			break
		}
		p.head = max(p.head, f.Event.Seq)
		if strings.HasPrefix(f.Event.Key, p.party) { // others may write there, too
			p.heard[f.Event.Key] = append(p.heard[f.Event.Key], now)
		}
	case protocol.KindHint:
		if f.Conv == p.conv {
			if !f.Sweep {
				p.hints++
			}
			p.hinted = max(p.hinted, f.Head)
			p.follow()
		}
	case protocol.KindSynced:
		p.synced(f, now)
	case protocol.KindAcked:
		p.acked = true
	case protocol.KindPing:
		p.pinged = p.pinged || p.idle
	case protocol.KindRefused:
		p.refused = fmt.Errorf("%s refuses %s: %s %s", p.target, f.Re, f.Code, f.Message)
	}
	p.subbed = p.subbed || f.Re == protocol.OpSubscribe
}

// follow asks for what a hint has told of: a large group is hinted at, not pushed, and so is what did not fit into a queue. mu
// must be held.
func (p *peer) follow() {
	if p.hinted > p.cursor && !p.syncing {
		p.syncing = true
		p.write(&protocol.Request{Op: protocol.OpSync, ID: 3, Conv: p.conv, Seq: p.cursor})
	}
}

// synced takes a page of what hints told of. What was pushed before is no repetition there, and the own message none of the
// others'. mu must be held.
func (p *peer) synced(f *protocol.Frame, now time.Time) {
	for i := range f.Events {
		e := &f.Events[i]
		p.head = max(p.head, e.Seq)
		if strings.HasPrefix(e.Key, p.party) && e.Key != p.key && len(p.heard[e.Key]) == 0 {
			p.heard[e.Key] = []time.Time{now}
		}
	}
	p.syncing, p.cursor = false, max(p.cursor, f.NextAfter)
	if !f.More { // a hint may have promised what was taken back since
		p.hinted = min(p.hinted, f.Head)
	}
	p.follow()
}

// Talk has the devices connect, send a message each, hear those of the others, acknowledge, and then be silent. Errors: what
// Dial returns, what the gateway refuses, or what did not happen in time; a message that does not arrive is no error, but
// missing in the report.
func Talk(ctx context.Context, party Party) (Report, error) {
	r := Report{Gateways: map[string]int{}, Expected: len(party.Devices) * (len(party.Devices) - 1)}
	var serving sync.WaitGroup
	var peers []*peer
	defer func() {
		for _, p := range peers {
			p.conn.Close(1000)
		}
		serving.Wait()
	}()
	for i, device := range party.Devices {
		p := &peer{device: device, key: fmt.Sprintf("%s%d", party.Key, i), party: party.Key, conv: party.Conv, cursor: party.After, target: party.Targets[i%len(party.Targets)], heard: map[string][]time.Time{}}
		dial, cancel := context.WithTimeout(ctx, stepLimit)
		conn, err := party.Wire.Dial(dial, p.target, party.Tokens[device])
		cancel()
		if err != nil {
			return r, fmt.Errorf("cannot use %s: %w", p.target, err)
		}
		p.conn = conn
		peers = append(peers, p)
		serving.Go(func() {
			err := conn.Serve(p.on)
			p.mu.Lock()
			defer p.mu.Unlock()
			p.ended, p.endedAt = err, time.Now()
		})
		p.write(&protocol.Request{Op: protocol.OpHello, Device: device, Install: party.Install[device]})
	}
	if err := r.greet(ctx, peers, party); err != nil {
		return r, err
	}
	if err := r.converse(ctx, peers, party); err != nil {
		return r, err
	}
	return r, r.keepSilent(ctx, peers, party)
}

func (p *peer) write(r *protocol.Request) {
	_, _ = p.conn.Write(r) // Serve tells why it could not
}

// greet waits until all are welcome, asks whether they may go on with the gateways that they have met, and subscribes them.
func (r *Report) greet(ctx context.Context, peers []*peer, party Party) error {
	if !await(ctx, peers, func(p *peer) bool { return p.welcome != nil }) {
		return why(ctx, peers, "did not answer hello")
	}
	for _, p := range peers {
		p.mu.Lock()
		w := p.welcome
		p.mu.Unlock()
		if err := party.Welcome(w.Gateway, w.Environment); err != nil {
			return err
		}
		r.Gateways[w.Gateway]++
		r.Heartbeat = w.Heartbeat
	}
	for _, p := range peers {
		p.write(&protocol.Request{Op: protocol.OpSubscribe})
	}
	if !await(ctx, peers, func(p *peer) bool { return p.subbed }) {
		return why(ctx, peers, "did not answer sub")
	}
	return nil
}

// converse has each send a message, waits until all have all, and acknowledges.
func (r *Report) converse(ctx context.Context, peers []*peer, party Party) error {
	for _, p := range peers {
		p.mu.Lock()
		p.sentAt = time.Now()
		p.mu.Unlock()
		p.write(&protocol.Request{Op: protocol.OpSend, ID: 1, Conv: party.Conv, Key: p.key, Body: party.Body})
	}
	if !await(ctx, peers, func(p *peer) bool { return p.sent != nil }) {
		return why(ctx, peers, "did not confirm a message")
	}
	await(ctx, peers, func(p *peer) bool { return len(p.heard) >= len(peers)-1 })
	at := map[string]time.Time{}
	for _, p := range peers {
		p.mu.Lock()
		r.Sent = append(r.Sent, *p.sent)
		at[p.key] = p.sentAt
		p.mu.Unlock()
	}
	for _, p := range peers {
		p.mu.Lock()
		for k, times := range p.heard {
			r.Delivered = append(r.Delivered, times[0].Sub(at[k]))
			r.Repeated += len(times) - 1
		}
		if p.hints > 0 {
			r.Hinted++
		}
		seq := p.head
		p.mu.Unlock()
		p.write(&protocol.Request{Op: protocol.OpAck, ID: 2, Conv: party.Conv, Seq: seq})
	}
	await(ctx, peers, func(p *peer) bool { return p.acked })
	for _, p := range peers {
		p.mu.Lock()
		if p.acked {
			r.Acked++
		}
		p.mu.Unlock()
	}
	return ctx.Err()
}

// keepSilent looks whether something on the way cuts a connection that is idle for as long as a heartbeat allows.
func (r *Report) keepSilent(ctx context.Context, peers []*peer, party Party) error {
	idle := party.Idle
	if idle == 0 {
		idle = r.Heartbeat + 5*time.Second
	}
	if idle <= 0 {
		return nil
	}
	party.Say(fmt.Sprintf("%d connections are silent for %v: does anything on the way cut them?", len(peers), idle))
	begun := time.Now()
	for _, p := range peers {
		p.mu.Lock()
		p.idle = true
		p.mu.Unlock()
	}
	t := time.NewTimer(idle)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
	}
	r.Idled = idle
	for _, p := range peers {
		p.mu.Lock()
		if p.ended != nil {
			r.Cut = append(r.Cut, fmt.Sprintf("after %.1f s: %v", p.endedAt.Sub(begun).Seconds(), p.ended))
		}
		if p.pinged {
			r.Pings++
		}
		p.mu.Unlock()
	}
	return nil
}

// await waits until all peers are so, one has ended or been refused, the step's time is over, or ctx ends.
func await(ctx context.Context, peers []*peer, so func(p *peer) bool) bool {
	ctx, cancel := context.WithTimeout(ctx, stepLimit)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		all := true
		for _, p := range peers {
			p.mu.Lock()
			over := p.ended != nil || p.refused != nil
			all = all && so(p)
			p.mu.Unlock()
			if over {
				return false
			}
		}
		if all {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
}

// why says what kept a step from being done.
func why(ctx context.Context, peers []*peer, otherwise string) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	for _, p := range peers {
		p.mu.Lock()
		ended, refused := p.ended, p.refused
		p.mu.Unlock()
		switch {
		case refused != nil:
			return refused
		case ended != nil:
			return fmt.Errorf("%s: %w", p.target, ended)
		}
	}
	return errors.New(peers[0].target + " " + otherwise)
}

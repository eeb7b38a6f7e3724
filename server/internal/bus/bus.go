// Package bus carries announcements between gateways: that a conversation has new events, that a device's route moved,
// that a conversation's members or mode changed, that a user's read position moved. Losing, repeating or reordering
// announcements never loses a message: cursors and the repair sweep mend it. So the bus may drop, and never makes a
// sender wait.
//
// It runs on PostgreSQL LISTEN/NOTIFY with two connections of its own: one listens, outside any transaction, the other
// sends what is waiting. NOTIFY inside the transactions of sends would serialise their commits (it holds a database-wide
// lock through the flush); here it comes after the commit, merged.
//
// The announcing methods are safe for concurrent use and never block. Receiver's methods are called from one goroutine,
// in the order of arrival; of what waits together, changes of members go before new events, so that whoever announces
// them in that order (or merged with others' events) never has events fanned out by what the members were before.
package bus

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"imbench/server/internal/im"
	"imbench/server/wire/rawsock"
)

// Receiver gets the announcements of other gateways; a gateway tells its own hub itself. The methods must not block.
type Receiver interface {
	// Announced says that these ranges are committed.
	Announced(heads []im.Head)
	// RouteTaken says that the device has a connection of this generation elsewhere.
	RouteTaken(device string, generation int64)
	// MembersChanged says that a conversation's members or mode are no longer what they were.
	MembersChanged(conv string)
	// ReadMoved says that users' read positions moved.
	ReadMoved(notes []im.ReadNote)
	// Resync says that announcements may have been missed. Listening has begun again before it is called.
	Resync()
}

// Config of a Bus. Zero values take the defaults.
type Config struct {
	URL        string        // connection string of the database; must not lead through a transaction pooler
	Gateway    string        // name of this gateway, for application_name
	MaxWaiting int           // distinct announcements that wait at most, half of them read positions; default 65 536
	Linger     time.Duration // how long a sender waits for company; default 1 ms
	Backoff    time.Duration // pause before a second try to connect or to send, doubled up to 16 times that; default 250 ms
	Log        *slog.Logger  // default: slog.Default

	pause func(ctx context.Context, d time.Duration) bool // default: pause; tests watch it
}

// Stats are counters since the start.
type Stats struct {
	Announced  int64 // announcements asked for
	Merged     int64 // of these, merged into one that was waiting
	Dropped    int64 // of these, dropped because MaxWaiting distinct ones waited
	Notifies   int64 // NOTIFY payloads sent
	Received   int64 // payloads from other gateways
	Malformed  int64 // payloads that could not be read, and were ignored
	Reconnects int64 // times that a connection had to be made anew
	Waiting    int   // announcements waiting now
	Listening  bool  // the listener is connected

	Lag time.Duration // of the last payload timed, from before its NOTIFY to its arrival at this process's own listener
}

// Bus is one gateway's end. Create it with Start.
type Bus struct {
	cfg    Config
	origin string // tells this process's payloads from those of others, also of one with the same gateway name
	recv   Receiver
	wake   chan struct{}
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex // guards what waits
	heads   map[string]im.Head
	routes  map[string]int64
	members map[string]struct{}
	reads   map[reader]im.ReadNote

	announced, merged, dropped, notifies, received, malformed, reconnects atomic.Int64
	listening                                                             atomic.Bool
	lag                                                                   lag
}

// reader is whose read position an announcement is about.
type reader struct{ conv, user string }

// Start connects, begins to listen and returns; an error means that the database could not be reached. Close ends it.
func Start(ctx context.Context, cfg Config, recv Receiver) (*Bus, error) {
	if cfg.MaxWaiting <= 0 {
		cfg.MaxWaiting = 65536
	}
	if cfg.Linger == 0 {
		cfg.Linger = time.Millisecond
	}
	if cfg.Backoff <= 0 {
		cfg.Backoff = 250 * time.Millisecond
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.pause == nil {
		cfg.pause = pause
	}
	var nonce [8]byte
	rand.Read(nonce[:])
	b := &Bus{cfg: cfg, origin: hex.EncodeToString(nonce[:]), recv: recv, wake: make(chan struct{}, 1),
		heads: map[string]im.Head{}, routes: map[string]int64{}, members: map[string]struct{}{}, reads: map[reader]im.ReadNote{}}
	conn, err := b.listen(ctx)
	if err != nil {
		return nil, err
	}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	b.cancel = cancel
	b.listening.Store(true)
	b.wg.Go(func() { b.receiveLoop(run, conn) })
	b.wg.Go(func() { b.sendLoop(run) })
	return b, nil
}

// Close tries once to send what waits, ends both connections and waits. It may be called twice.
func (b *Bus) Close() {
	b.cancel()
	b.wg.Wait()
}

// AnnounceHeads says that these ranges are committed. Ranges of a conversation that wait together become one.
func (b *Bus) AnnounceHeads(heads []im.Head) {
	b.announce(len(heads), func() {
		for _, h := range heads {
			b.addHead(h)
		}
	})
}

// AnnounceRoute says that the device's connection of this generation is the valid one.
func (b *Bus) AnnounceRoute(device string, generation int64) {
	b.announce(1, func() { b.addRoute(Route{Device: device, Generation: generation}) })
}

// AnnounceMembers says that the conversation's members or mode changed.
func (b *Bus) AnnounceMembers(conv string) {
	b.announce(1, func() { b.addMembers(conv) })
}

// AnnounceReads says that these read positions moved. Of a user's in a conversation that wait together the furthest
// stays.
func (b *Bus) AnnounceReads(notes []im.ReadNote) {
	b.announce(len(notes), func() {
		for _, n := range notes {
			b.addRead(n)
		}
	})
}

// announce lets n announcements wait, which add puts in its place with b.mu held, and wakes the sender.
func (b *Bus) announce(n int, add func()) {
	b.mu.Lock()
	add()
	b.mu.Unlock()
	b.announced.Add(int64(n))
	b.wakeSender()
}

func (b *Bus) wakeSender() {
	select {
	case b.wake <- struct{}{}:
	default: // it is awake already
	}
}

// Stats is a snapshot.
func (b *Bus) Stats() Stats {
	return Stats{Announced: b.announced.Load(), Merged: b.merged.Load(), Dropped: b.dropped.Load(),
		Notifies: b.notifies.Load(), Received: b.received.Load(), Malformed: b.malformed.Load(),
		Reconnects: b.reconnects.Load(), Waiting: b.waiting(), Listening: b.listening.Load(),
		Lag: b.lag.last(time.Now())}
}

func (b *Bus) waiting() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.waitingLocked()
}

// waitingLocked counts what waits; mu must be held.
func (b *Bus) waitingLocked() int {
	return len(b.heads) + len(b.routes) + len(b.members) + len(b.reads)
}

// full drops the announcement at hand if too many wait; mu must be held.
func (b *Bus) full() bool {
	if b.waitingLocked() < b.cfg.MaxWaiting {
		return false
	}
	b.dropped.Add(1)
	return true
}

// addHead merges h with what waits for its conversation; mu must be held.
func (b *Bus) addHead(h im.Head) {
	old, waits := b.heads[h.Conv]
	switch {
	case waits:
		b.merged.Add(1)
		h = im.Head{Conv: old.Conv, From: min(h.From, old.From), To: max(h.To, old.To)}
	case b.full():
		return
	default:
		h.Conv = strings.Clone(h.Conv) // the caller's may be part of a whole request
	}
	b.heads[h.Conv] = h
}

// addRoute keeps the highest generation of a device; mu must be held.
func (b *Bus) addRoute(r Route) {
	old, waits := b.routes[r.Device]
	switch {
	case waits:
		b.merged.Add(1)
	case b.full():
		return
	}
	b.routes[r.Device] = max(old, r.Generation)
}

// addMembers notes the conversation once; mu must be held.
func (b *Bus) addMembers(conv string) {
	_, waits := b.members[conv]
	switch {
	case waits:
		b.merged.Add(1)
	case !b.full():
		b.members[strings.Clone(conv)] = struct{}{}
	}
}

// addRead keeps the furthest position of a user in a conversation; mu must be held.
func (b *Bus) addRead(n im.ReadNote) {
	k := reader{n.Conv, n.User}
	old, waits := b.reads[k]
	switch {
	case waits:
		b.merged.Add(1)
		if old.Seq >= n.Seq {
			return
		}
		n.Conv, n.User = old.Conv, old.User
	case len(b.reads) >= max(1, b.cfg.MaxWaiting/2): // they must not keep out what matters more
		b.dropped.Add(1)
		return
	case b.full():
		return
	default:
		n.Conv, n.User = strings.Clone(n.Conv), strings.Clone(n.User)
	}
	b.reads[reader{n.Conv, n.User}] = n
}

// take removes and returns all that waits.
func (b *Bus) take() *batch {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := &batch{origin: b.origin}
	for _, h := range b.heads {
		out.heads = append(out.heads, h)
	}
	for device, gen := range b.routes {
		out.routes = append(out.routes, Route{Device: device, Generation: gen})
	}
	for conv := range b.members {
		out.members = append(out.members, conv)
	}
	for _, n := range b.reads {
		out.reads = append(out.reads, n)
	}
	clear(b.heads)
	clear(b.routes)
	clear(b.members)
	clear(b.reads)
	return out
}

// putBack returns what could not be sent, under the same limit.
func (b *Bus) putBack(out *batch) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, h := range out.heads {
		b.addHead(h)
	}
	for _, r := range out.routes {
		b.addRoute(r)
	}
	for _, conv := range out.members {
		b.addMembers(conv)
	}
	for _, n := range out.reads {
		b.addRead(n)
	}
}

// maxName is what PostgreSQL keeps of an application_name, in bytes.
const maxName = 63

// Conns is how many connections a Bus has at most.
const Conns = 2

// applicationName ends with the gateway's id, which is ASCII; one that does not fit is cut, and has a digest of the whole of
// it at the end, so that no two share a name.
func applicationName(role, gateway string) string {
	name := "imbench bus " + role + " " + gateway
	if len(name) <= maxName {
		return name
	}
	sum := sha256.Sum256([]byte(gateway))
	digest := "~" + hex.EncodeToString(sum[:8])
	return name[:maxName-len(digest)] + digest
}

// ListenerName is the application_name of the listener's connection of a gateway, as the database shows it. It is there
// as long as the process is, but for moments in which it connects again. No other id has it.
func ListenerName(gateway string) string { return applicationName("listener", gateway) }

// connect opens one of the two connections.
func (b *Bus) connect(ctx context.Context, role string, settings map[string]string) (*pgx.Conn, error) {
	pool, err := pgxpool.ParseConfig(b.cfg.URL) // as the store reads it: pool_… parameters may stand in the URL
	if err != nil {
		return nil, fmt.Errorf("bus: %w", err)
	}
	cfg := pool.ConnConfig
	cfg.RuntimeParams["application_name"] = applicationName(role, b.cfg.Gateway)
	for k, v := range settings {
		cfg.RuntimeParams[k] = v
	}
	cfg.ConnectTimeout = ioTimeout
	cfg.DialFunc = rawsock.Dial
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("bus: %w: %w", im.ErrUnavailable, err)
	}
	return conn, nil
}

package ledger

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/cespare/xxhash/v2"

	"imbench/loadgen/internal/population"
	"imbench/loadgen/internal/sample"
	"imbench/reports/rundir"
)

// Config holds the ledger's options; the zero value is good.
type Config struct {
	// MaxEntries bounds the log entries that are kept to name a culprit by its seq. Default 2 Mi (64 MB).
	MaxEntries int64
	// Member says whether a user may see seq of conv. Default: the population's members, always. It must not change its
	// answer for a seq.
	Member func(conv, user int32, seq int64) bool
	// Reads says whether a device follows a conversation. One that does not lags by choice: what lies behind the last
	// message that it applied is not expected of it. Default: all do. It must not change its answer.
	Reads func(device, conv int32) bool
	// Shared says that others write in these conversations, too. What is not a message of this run then holds a seq and is
	// background: it is counted, must come in order and once as all else, and is expected of nobody; and a seq of which
	// neither a reply nor a device tells that it is this run's is taken for one of theirs. Such a run has no export.
	Shared bool
	// Key is that of the digests. Ledgers whose parts are to be merged have the same. Default: a random one.
	Key uint64
}

// numShards is how many locks the conversations are spread over; of a shard, mu guards everything.
const numShards = 64

// Ledger implements sample.Sink.
type Ledger struct {
	cfg    Config
	pop    *population.Population
	key    uint64
	convs  []conv
	shards [numShards]shard

	entries  atomic.Int64 // kept now, over all conversations
	gaps     atomic.Int64 // kept now, over all pairs
	repeats  atomic.Int64
	backfill atomic.Int64
	folded   atomic.Int64 // deliveries below a fold

	background atomic.Int64 // events of others that devices applied
	others     atomic.Int64 // seqs that hold messages of others
	fetched    atomic.Int64 // events that devices asked for by seq, and that were held against what had been told of them
	moves      atomic.Int64 // pairs whose user joined or left in mid-run

	unknown unknowns
	report  report
	settle  settlement
}

// shard guards the conversations whose index is its own modulo numShards.
type shard struct {
	mu     sync.Mutex
	faulty map[pairKey]*fault // only pairs with which something is, or was, wrong
	moved  map[pairKey]bool   // pairs, and such as have come to be, whose user joined or left in mid-run: nothing is expected of them
	_      [40]byte
}

type pairKey struct{ conv, device int32 }

// New makes a ledger for a population whose conversations stand at their Start.
func New(pop *population.Population, cfg Config) *Ledger {
	if cfg.MaxEntries <= 0 {
		cfg.MaxEntries = 2 << 20
	}
	for cfg.Key == 0 {
		cfg.Key = rand.Uint64()
	}
	l := &Ledger{cfg: cfg, pop: pop, key: cfg.Key, convs: make([]conv, len(pop.Convs))}
	l.report.pop, l.unknown.room = pop, maxUnknown
	total := 0
	for i := range pop.Convs {
		for _, u := range pop.Convs[i].Members {
			total += connected(pop, u)
		}
	}
	pairs := make([]pair, 0, total)
	for i := range pop.Convs {
		base := pop.Start(int32(i))
		from := len(pairs)
		for _, u := range pop.Convs[i].Members {
			for _, d := range pop.Users[u].Devices {
				if pop.Devices[d].Connected {
					pairs = append(pairs, pair{device: d, last: base})
				}
			}
		}
		own := pairs[from:len(pairs):len(pairs)]
		slices.SortFunc(own, func(a, b pair) int { return int(a.device) - int(b.device) })
		l.convs[i] = conv{base: base, first: base + 1, pairs: own}
	}
	return l
}

func connected(pop *population.Population, user int32) (n int) {
	for _, d := range pop.Users[user].Devices {
		if pop.Devices[d].Connected {
			n++
		}
	}
	return n
}

// lock gives a conversation with its shard locked; ok=false for an index outside the population.
func (l *Ledger) lock(i int32) (c *conv, s *shard, ok bool) {
	if i < 0 || int(i) >= len(l.convs) {
		return nil, nil, false
	}
	s = &l.shards[i%numShards]
	s.mu.Lock()
	return &l.convs[i], s, true
}

// Frame implements sample.Sink; the ledger does not look at frames.
func (l *Ledger) Frame(sample.Frame) {}

// Op implements sample.Sink: of operations the ledger only hears that the gateway took back what it had confirmed.
func (l *Ledger) Op(o sample.Op) {
	if o.Kind == sample.OpWentBack {
		l.blame(regressed, o.Device, o.Conv, o.Seq, fmt.Sprintf("delivered had been confirmed up to %d, and then was told as less", o.Seq+int64(o.Events)))
	}
}

// Reconnect implements sample.Sink; the ledger does not look at connections.
func (l *Ledger) Reconnect(int32, int) {}

// Send implements sample.Sink: an answered send is an entry of the log.
func (l *Ledger) Send(s sample.Send) {
	if s.Censored || unknownOutcome(s.Code) {
		if s.Start != 0 { // what never left the device cannot have been committed
			l.unknown.add(s.Plan)
		}
		return
	}
	if s.Code != "" {
		return
	}
	c, sh, ok := l.lock(s.Conv)
	if !ok {
		l.blame(foreign, s.Device, s.Conv, s.Seq, "a sent reply for a conversation outside the population")
		return
	}
	defer sh.mu.Unlock()
	e := entry{mid: l.hash(s.MID), body: s.BodyHash, plan: s.Plan, device: s.Device, state: sent}
	l.claim(c, sh, s.Conv, s.Seq, e)
}

// unknownOutcome says whether a code leaves open if the message was committed.
func unknownOutcome(code string) bool {
	return code == "timeout" || code == "disconnected" || code == "UNAVAILABLE"
}

// Deliver implements sample.Sink: a device applied an event, saw one again, or has one that it asked for.
func (l *Ledger) Deliver(d sample.Delivery) {
	if d.WireRepeat {
		l.repeats.Add(1)
		return
	}
	c, sh, ok := l.lock(d.Conv)
	if !ok {
		l.blame(foreign, d.Device, d.Conv, d.Seq, "an event of a conversation outside the population")
		return
	}
	defer sh.mu.Unlock()
	if l.cfg.Shared && l.comesOrGoes(c, sh, d) {
		return
	}
	p := c.pair(d.Device)
	if p == nil || l.cfg.Member != nil && !l.cfg.Member(d.Conv, l.pop.Devices[d.Device].User, d.Seq) {
		l.stranger(d)
		return
	}
	if d.Seq <= c.base {
		if d.Applied() {
			l.backfill.Add(1)
		}
		return
	}
	if d.Path == sample.Fetched {
		l.fetch(c, sh, d)
		return
	}
	if !l.step(c, sh, p, d.Conv, d.Seq) {
		return
	}
	e := entry{mid: l.hash(d.MID), body: d.BodyHash, plan: d.Plan, device: d.Device, state: told}
	switch {
	case d.Kind != "msg" && d.Kind != "":
		e.state = other // holds a seq, and is no message
		l.background.Add(1)
	case l.cfg.Shared && d.Plan < 0:
		e.state = other
		l.background.Add(1)
		if known := c.at(d.Seq); d.Seq >= c.first && (known == nil || known.state == hole) {
			l.others.Add(1)
		}
	default:
		p.count++
		p.sum += l.digest(d.Seq, e.mid, e.body)
	}
	l.claim(c, sh, d.Conv, d.Seq, e)
}

// fetch holds an event that a device asked for by its seq against what is known of that seq. It proves nothing if that is
// nothing yet, or not any more. sh.mu must be held.
func (l *Ledger) fetch(c *conv, sh *shard, d sample.Delivery) {
	known := c.at(d.Seq)
	if known == nil || known.state == hole || l.cfg.Shared && (known.state == other || d.Plan < 0) {
		return
	}
	l.fetched.Add(1)
	message := d.Kind == "msg" || d.Kind == ""
	e := entry{mid: l.hash(d.MID), body: d.BodyHash, plan: d.Plan, device: d.Device, state: told}
	said, disputed := sh.faulty[pairKey{d.Conv, d.Device}].said(d.Seq)
	switch {
	case message == (known.state == other):
		l.blame(mismatched, d.Device, d.Conv, d.Seq, "fetched as an event of another kind than was told before")
	case !message || known.same(e) || disputed && said.same(e):
	case known.state == sent || disputed:
		l.blame(mismatched, d.Device, d.Conv, d.Seq, "fetched with another content than was told before")
	default: // who is right, the reply or the log will tell
		l.dispute(sh, d.Conv, d.Seq, e)
	}
}

// comesOrGoes notes that the user of a device joined or left while the run went on, which others may have him do: from there
// on nothing is expected of the device in this conversation, and nothing that it gets there is judged. It says whether a
// delivery is one of that kind. sh.mu must be held.
func (l *Ledger) comesOrGoes(c *conv, sh *shard, d sample.Delivery) bool {
	k := pairKey{d.Conv, d.Device}
	if d.Moved && d.Seq > c.base && !sh.moved[k] {
		if sh.moved == nil {
			sh.moved = map[pairKey]bool{}
		}
		sh.moved[k] = true
		l.moves.Add(1)
		c.pairs = slices.DeleteFunc(c.pairs, func(p pair) bool { return p.device == d.Device })
		if f := sh.faulty[k]; f != nil {
			l.gaps.Add(-int64(len(f.missing)))
			delete(sh.faulty, k)
		}
	}
	if sh.moved[k] && d.Applied() {
		l.background.Add(1)
	}
	return sh.moved[k]
}

// stranger names a delivery to a device that has no business with the conversation.
func (l *Ledger) stranger(d sample.Delivery) {
	did := "applied"
	if d.Path == sample.Fetched {
		did = "fetched"
	}
	switch {
	case d.Device < 0 || int(d.Device) >= len(l.pop.Devices):
		l.blame(foreign, d.Device, d.Conv, d.Seq, did+" by a device outside the population")
	case slices.Contains(l.pop.Convs[d.Conv].Members, l.pop.Devices[d.Device].User) && l.cfg.Member == nil:
		l.blame(foreign, d.Device, d.Conv, d.Seq, did+" by a device that the run did not bring online")
	default:
		l.blame(leaked, d.Device, d.Conv, d.Seq, did+" by a device whose user may not see it")
	}
}

// hash is the keyed hash of a mid.
func (l *Ledger) hash(mid string) uint64 { return mix(xxhash.Sum64String(mid) ^ l.key) }

// digest is the keyed hash of one message at its seq; mid is hashed with the ledger's key already.
func (l *Ledger) digest(seq int64, mid, body uint64) uint64 {
	return mix(mid ^ mix(body^mix(uint64(seq)^l.key)))
}

// mix is the finaliser of SplitMix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Summary is what is known so far, for a status line or an abort rule. Lost, and all else that needs the log, is known
// only after Settle.
func (l *Ledger) Summary() rundir.LedgerSummary {
	var s rundir.LedgerSummary
	l.report.fill(&s)
	s.WireRepeats, s.Unverified, s.Unknown = l.repeats.Load(), l.folded.Load(), l.unknown.count()
	s.Background = l.background.Load()
	s.BytesUsed = int64(len(l.convs)) * int64(unsafe.Sizeof(conv{}))
	for i := range l.convs {
		c, sh, _ := l.lock(int32(i))
		for j := range c.pairs {
			s.Delivered += int64(c.pairs[j].count)
		}
		s.Pairs += int64(len(c.pairs))
		s.BytesUsed += int64(len(c.pairs))*int64(unsafe.Sizeof(pair{})) + int64(cap(c.entries))*int64(unsafe.Sizeof(entry{}))
		sh.mu.Unlock()
	}
	return s
}

package ledger

import (
	"fmt"
	"slices"
	"sync"

	"imbench/loadgen/internal/population"
	"imbench/loadgen/internal/sample"
	"imbench/reports/rundir"
)

// Marked proves what was delivered over a wire whose events have no seqs, by the marker in the bodies: which message of the
// plan it was. Loss, repeats, content and who saw it are proven; order, and what a log would show, are not.
//
// All Sink methods are safe for any number of goroutines; Settle comes when the devices have stopped. Memory: 100 bytes a
// message, up to Config.MaxEntries of them, and a bit for each of its receivers; of messages beyond nothing is proven, and
// their deliveries are counted as unverified. Of Config, Member is not looked at.
type Marked struct {
	cfg     Config
	pop     *population.Population
	mu      sync.Mutex
	convs   []markedConv
	marks   int64
	away    map[int32]bool // devices that lost their connection: what was sent meanwhile is owed to nobody
	over    int64
	unknown unknowns
	report  report
}

// markedConv is one conversation. Marked.mu guards it.
type markedConv struct {
	marks []mark
	index map[int64]int32 // plan → marks
	pairs []markedPair
}

type mark struct {
	plan   int64
	body   uint64
	device int32 // who sent it, or was the first to have it
	sent   bool
}

type markedPair struct {
	device int32
	count  int64
	has    bitset // of marks
}

// NewMarked makes a ledger for a wire without seqs.
func NewMarked(pop *population.Population, cfg Config) *Marked {
	if cfg.MaxEntries <= 0 {
		cfg.MaxEntries = 2 << 20
	}
	m := &Marked{cfg: cfg, pop: pop, convs: make([]markedConv, len(pop.Convs)), away: map[int32]bool{}}
	m.report.pop, m.unknown.room = pop, maxUnknown
	for i := range pop.Convs {
		c := &m.convs[i]
		c.index = map[int64]int32{}
		for _, u := range pop.Convs[i].Members {
			for _, d := range pop.Users[u].Devices {
				if pop.Devices[d].Connected {
					c.pairs = append(c.pairs, markedPair{device: d})
				}
			}
		}
	}
	return m
}

// Frame and Op implement sample.Sink; the ledger does not look at them.
func (m *Marked) Frame(sample.Frame) {}
func (m *Marked) Op(sample.Op)       {}

// Reconnect implements sample.Sink.
func (m *Marked) Reconnect(device int32, _ int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.away[device] = true
}

// Send implements sample.Sink.
func (m *Marked) Send(s sample.Send) {
	if s.Censored || unknownOutcome(s.Code) {
		if s.Start != 0 {
			m.unknown.add(s.Plan)
		}
		return
	}
	if s.Code != "" || s.Conv < 0 || int(s.Conv) >= len(m.convs) {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if i, ok := m.at(s.Conv, mark{plan: s.Plan, body: s.BodyHash, device: s.Device}); ok {
		m.convs[s.Conv].marks[i].sent = true
	}
}

// at finds a message, or keeps it; ok=false if there is no room. mu must be held.
func (m *Marked) at(conv int32, x mark) (i int32, ok bool) {
	c := &m.convs[conv]
	i, ok = c.index[x.plan]
	switch {
	case ok:
		return i, true
	case m.marks >= m.cfg.MaxEntries:
		m.over++
		return 0, false
	}
	m.marks++
	i = int32(len(c.marks))
	c.marks, c.index[x.plan] = append(c.marks, x), i
	return i, true
}

// Deliver implements sample.Sink.
func (m *Marked) Deliver(d sample.Delivery) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if d.Conv < 0 || int(d.Conv) >= len(m.convs) {
		m.blame(foreign, &d, "an event of a conversation outside the population")
		return
	}
	c := &m.convs[d.Conv]
	p := slices.IndexFunc(c.pairs, func(p markedPair) bool { return p.device == d.Device })
	switch {
	case p < 0:
		m.blame(leaked, &d, "applied by a device whose user may not see it")
		return
	case d.Plan < 0:
		m.blame(foreign, &d, "a body without the marker of this run")
		return
	}
	i, ok := m.at(d.Conv, mark{plan: d.Plan, body: d.BodyHash, device: d.Device})
	switch {
	case !ok:
	case c.pairs[p].has.set(int64(i)):
		m.blame(duplicated, &d, "delivered twice")
	default:
		c.pairs[p].count++
		if c.marks[i].body != d.BodyHash {
			m.blame(mismatched, &d, "the content differs from what was sent or another device got")
		}
	}
}

func (m *Marked) blame(k kind, d *sample.Delivery, detail string) {
	c := rundir.Culprit{Detail: detail}
	if d.Plan >= 0 {
		c.Plan = &d.Plan
	}
	m.report.blame(k, d.Device, d.Conv, c)
}

// Settle closes the books. full: the settle phase ran in full, so that what has not arrived is lost.
func (m *Marked) Settle(full bool) rundir.Ledger {
	m.mu.Lock()
	defer m.mu.Unlock()
	var r rundir.Ledger
	unowed := int64(0)
	for i := range m.convs {
		c := &m.convs[i]
		r.Pairs += int64(len(c.pairs))
		r.Messages += int64(len(c.marks))
		for n, x := range c.marks {
			m.unknown.resolve(x.plan)
			for j := range c.pairs {
				p := &c.pairs[j]
				if r.Expected++; p.has.at(int64(n)) || m.cfg.Reads != nil && !m.cfg.Reads(p.device, int32(i)) {
					continue
				}
				if m.away[p.device] {
					r.Expected--
					unowed++
					continue
				}
				m.blame(lost, &sample.Delivery{Device: p.device, Conv: int32(i), Plan: x.plan}, "sent, or had by others, and never delivered")
			}
		}
		for j := range c.pairs {
			r.Delivered += c.pairs[j].count
			r.BytesUsed += int64(cap(c.pairs[j].has)) * 8
		}
		r.BytesUsed += int64(len(c.marks)) * 100
	}
	m.report.fill(&r.LedgerSummary)
	r.Unknown, r.Unverified, r.Settled = m.unknown.count(), m.over, full
	r.Committed, r.Unresolved = m.unknown.found, int64(len(m.unknown.plans))+m.unknown.over
	m.report.into(&r, full)
	r.Notes = append(r.Notes, "the wire has no seqs: messages are told apart by the marker in their bodies, and their order is not checked")
	if unowed > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("%d deliveries were not expected: their devices had been away, and this wire tells nobody what he missed", unowed))
	}
	return r
}

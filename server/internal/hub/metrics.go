package hub

import (
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"imbench/server/wire"
)

// Kind is the type of a frame as a small number, so that counters are arrays.
type Kind uint8

// Kinds of frames: requests, replies, what the gateway sends on its own, and WebSocket control frames.
const (
	KOther Kind = iota
	KHello
	KSend
	KAck
	KSync
	KSub
	KOpen
	KClose
	KConvs
	KPing
	KWelcome
	KSent
	KAcked
	KSynced
	KSubbed
	KOpened
	KClosed
	KConvlist
	KPong
	KEvent
	KHint
	KDrain
	KError
	KFetch
	KFetched // an event that was asked for: never merged, nor counted as pushed
	KRead    // a request, and what the gateway tells of others' positions
	KReaded
	KRecall
	KJoin
	KLeave
	KControl
	numKinds
)

var kindNames = [numKinds]wire.Type{"other", wire.THello, wire.TSend, wire.TAck, wire.TSync, wire.TSub, wire.TOpen, wire.TClose,
	wire.TConvs, wire.TPing, wire.TWelcome, wire.TSent, wire.TAcked, wire.TSynced, wire.TSubbed, wire.TOpened, wire.TClosed,
	wire.TConvlist, wire.TPong, wire.TEvent, wire.THint, wire.TDrain, wire.TError,
	wire.TFetch, "fetched", wire.TRead, wire.TReaded, wire.TRecall, wire.TJoin, wire.TLeave, "control"}

// KindOf is the kind of a wire type.
func KindOf(t wire.Type) Kind {
	for k := KHello; k < KControl; k++ {
		if kindNames[k] == t {
			return k
		}
	}
	return KOther
}

// fromDevice are the kinds that a device sends.
var fromDevice = map[Kind]bool{KHello: true, KSend: true, KAck: true, KSync: true, KSub: true, KOpen: true, KClose: true, KConvs: true,
	KPing: true, KFetch: true, KRead: true, KRecall: true, KJoin: true, KLeave: true, KControl: true}

// expected says whether frames of this kind belong to the direction: their series exist before the first one.
func expected(dir string, k Kind) bool {
	return k != KOther && (fromDevice[k] == (dir == "in") || k == KRead || k == KControl)
}

// ownCodes are the close codes that this gateway gives; 0 is a peer that went without one.
var ownCodes = [...]int{0, 1000, wire.CloseUnauthorised.Code, wire.CloseReplaced.Code, wire.CloseSlow.Code, wire.CloseNotAdmitted.Code,
	wire.CloseDraining.Code, wire.CloseProtocol.Code}

// fanoutBounds are the upper bounds of the fan-out latency's buckets, in seconds.
var fanoutBounds = [...]float64{0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5}

type flow struct{ frames, bytes atomic.Int64 }

// metrics are the hub's counters; the zero value is ready. All fields are safe for concurrent use.
type metrics struct {
	in, out     [numKinds]flow
	collapses   atomic.Int64
	sweepHints  atomic.Int64
	untold      atomic.Int64
	sweepDrops  atomic.Int64
	inboxDrops  atomic.Int64
	readDrops   atomic.Int64
	rereads     atomic.Int64 // committed events whose bytes were not kept
	gapHints    atomic.Int64
	skips       atomic.Int64 // announcements without a connected member
	readErrors  atomic.Int64
	eventReads  atomic.Int64 // calls
	eventRows   atomic.Int64
	memberReads atomic.Int64 // calls
	flushers    atomic.Int64 // full sockets that needed a goroutine

	sweepWaiting atomic.Int64 // not a count: what waits now

	fanoutCount   atomic.Int64
	fanoutSum     atomic.Int64 // nanoseconds
	fanoutBuckets [len(fanoutBounds)]atomic.Int64

	mu     sync.Mutex
	closes map[int]int64 // by close code; 0 = the peer went without one
}

func (m *metrics) fanout(d time.Duration) {
	m.fanoutCount.Add(1)
	m.fanoutSum.Add(int64(d))
	s := d.Seconds()
	for i, b := range fanoutBounds {
		if s <= b {
			m.fanoutBuckets[i].Add(1)
			return
		}
	}
}

func (m *metrics) closed(code int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closes == nil {
		m.closes = make(map[int]int64)
	}
	// A peer chooses its own code: only those that have a meaning get a label, or it could make any number of series.
	if code != 0 && (code < 1000 || code > 1015) && (code < 4001 || code > 4010) && code != 4400 {
		code = 4999
	}
	m.closes[code]++
}

// depth is what waits in the queues of all connections at one moment.
type depth struct{ queues, frames, bytes, deepest int }

// queueDepth looks at each connection for a moment, one after the other: the sum is not a snapshot, and nobody waits for it.
func (h *Hub) queueDepth() (d depth) {
	for _, c := range h.All() {
		c.mu.Lock()
		frames, bytes := len(c.queue), c.pending
		c.mu.Unlock()
		d.frames += frames
		d.bytes += bytes
		d.deepest = max(d.deepest, frames)
		if bytes > 0 {
			d.queues++
		}
	}
	return d
}

// devices counts the devices with a registered connection.
func (h *Hub) devices() int {
	h.registry.mu.RLock()
	defer h.registry.mu.RUnlock()
	return len(h.registry.devices)
}

// Collectors are the hub's metrics.
func (h *Hub) Collectors() []prometheus.Collector { return []prometheus.Collector{collector{h}} }

type collector struct{ h *Hub }

var (
	descFrames = prometheus.NewDesc("im_frames_total", "Frames by direction, seen from the gateway, and type.", []string{"dir", "type"}, nil)
	descBytes  = prometheus.NewDesc("im_frame_bytes_total", "Payload bytes of frames.", []string{"dir", "type"}, nil)
	descCloses = prometheus.NewDesc("im_closes_total", "Connections ended, by close code; 0 is a connection lost without one.", []string{"code"}, nil)
	descDevs   = prometheus.NewDesc("im_devices", "Devices that are connected: welcomed, and not replaced.", nil, nil)
	descQueues = prometheus.NewDesc("im_queues_waiting", "Connections that have something queued or under way to their socket.", nil, nil)
	descFrameQ = prometheus.NewDesc("im_queue_frames", "Frames queued for all connections.", nil, nil)
	descByteQ  = prometheus.NewDesc("im_queue_bytes", "Bytes queued for all connections, or under way to their sockets.", nil, nil)
	descDeep   = prometheus.NewDesc("im_queue_frames_max", "Frames in the longest queue of a connection.", nil, nil)
	descConns  = prometheus.NewDesc("im_connections", "Connections, handshakes under way included.", nil, nil)
	descMost   = prometheus.NewDesc("im_sweep_limit", "What one turn of the repair sweep does at most: hints sent (and rows read), and conversations asked about.", []string{"of"}, nil)
	descWaits  = prometheus.NewDesc("im_sweep_waiting", "Conversations that the repair sweep has yet to ask about; as long as there are any, repairs take longer.", nil, nil)
	descFanout = prometheus.NewDesc("im_fanout_seconds", "From the commit or its announcement to the socket, each pushed frame.", nil, nil)
)

type counter struct {
	desc *prometheus.Desc
	get  func(*metrics) *atomic.Int64
}

func newCounter(name, help string, get func(*metrics) *atomic.Int64) counter {
	return counter{prometheus.NewDesc(name, help, nil, nil), get}
}

var counters = []counter{
	newCounter("im_queue_collapses_total", "Queues whose events became hints.", func(m *metrics) *atomic.Int64 { return &m.collapses }),
	newCounter("im_sweep_untold_total", "Conversations whose latest messages the repair sweep found that this gateway was not told of.", func(m *metrics) *atomic.Int64 { return &m.untold }),
	newCounter("im_sweep_drops_total", "Conversations that the repair sweep had no room to ask about.", func(m *metrics) *atomic.Int64 { return &m.sweepDrops }),
	newCounter("im_sweep_hints_total", "Hints sent by the repair sweep.", func(m *metrics) *atomic.Int64 { return &m.sweepHints }),
	newCounter("im_inbox_drops_total", "Announcements dropped because too many conversations waited.", func(m *metrics) *atomic.Int64 { return &m.inboxDrops }),
	newCounter("im_read_drops_total", "Read positions that were not told: too many waited, a queue was half full, or the members could not be read.", func(m *metrics) *atomic.Int64 { return &m.readDrops }),
	newCounter("im_inbox_rereads_total", "Committed events whose bytes did not fit the inbox.", func(m *metrics) *atomic.Int64 { return &m.rereads }),
	newCounter("im_gap_hints_total", "Announcements so far ahead that they became hints.", func(m *metrics) *atomic.Int64 { return &m.gapHints }),
	newCounter("im_fanout_skips_total", "Announcements without a member connected here.", func(m *metrics) *atomic.Int64 { return &m.skips }),
	newCounter("im_fanout_read_errors_total", "Reads for fan-out that failed and are tried again.", func(m *metrics) *atomic.Int64 { return &m.readErrors }),
	newCounter("im_fanout_event_reads_total", "Reads of events for fan-out.", func(m *metrics) *atomic.Int64 { return &m.eventReads }),
	newCounter("im_fanout_event_rows_total", "Events read for fan-out.", func(m *metrics) *atomic.Int64 { return &m.eventRows }),
	newCounter("im_fanout_member_reads_total", "Reads of members for fan-out.", func(m *metrics) *atomic.Int64 { return &m.memberReads }),
	newCounter("im_full_sockets_total", "Writes that a full socket did not take at once.", func(m *metrics) *atomic.Int64 { return &m.flushers }),
}

// Describe implements prometheus.Collector.
func (c collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descFrames, descBytes, descCloses, descConns, descDevs, descQueues, descFrameQ, descByteQ, descDeep, descWaits, descMost, descFanout} {
		ch <- d
	}
	for _, n := range counters {
		ch <- n.desc
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	m := &c.h.metrics
	for k := range numKinds {
		name := string(kindNames[k])
		for dir, f := range map[string]*flow{"in": &m.in[k], "out": &m.out[k]} {
			if n := f.frames.Load(); n > 0 || expected(dir, k) {
				ch <- prometheus.MustNewConstMetric(descFrames, prometheus.CounterValue, float64(n), dir, name)
				ch <- prometheus.MustNewConstMetric(descBytes, prometheus.CounterValue, float64(f.bytes.Load()), dir, name)
			}
		}
	}
	m.mu.Lock()
	for _, code := range ownCodes { // from zero on, so that the first close is an increase
		if m.closes[code] == 0 {
			ch <- prometheus.MustNewConstMetric(descCloses, prometheus.CounterValue, 0, strconv.Itoa(code))
		}
	}
	for code, n := range m.closes {
		ch <- prometheus.MustNewConstMetric(descCloses, prometheus.CounterValue, float64(n), strconv.Itoa(code))
	}
	m.mu.Unlock()
	queued := c.h.queueDepth()
	for _, g := range []struct {
		desc *prometheus.Desc
		v    int
	}{{descConns, c.h.Connections()}, {descDevs, c.h.devices()}, {descQueues, queued.queues}, {descFrameQ, queued.frames},
		{descByteQ, queued.bytes}, {descDeep, queued.deepest}, {descWaits, int(m.sweepWaiting.Load())}} {
		ch <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, float64(g.v))
	}
	ch <- prometheus.MustNewConstMetric(descMost, prometheus.GaugeValue, float64(c.h.cfg.SweepHints), "hints")
	ch <- prometheus.MustNewConstMetric(descMost, prometheus.GaugeValue, float64(c.h.cfg.SweepConvs), "conversations")
	for _, n := range counters {
		ch <- prometheus.MustNewConstMetric(n.desc, prometheus.CounterValue, float64(n.get(m).Load()))
	}
	// The count is read first: a push counted in between is in a bucket at the next scrape's count.
	count := m.fanoutCount.Load()
	buckets := make(map[float64]uint64, len(fanoutBounds))
	var sum uint64
	for i, b := range fanoutBounds {
		sum += uint64(m.fanoutBuckets[i].Load())
		buckets[b] = min(sum, uint64(count))
	}
	ch <- prometheus.MustNewConstHistogram(descFanout, uint64(count), float64(m.fanoutSum.Load())/1e9, buckets)
}

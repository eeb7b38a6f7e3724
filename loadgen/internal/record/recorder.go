package record

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"imbench/loadgen/internal/clock"
	"imbench/loadgen/internal/sample"
	"imbench/reports/rundir"
)

// metric is a tag of latency.hlog as an index.
type metric int

const (
	mIntended metric = iota
	mService
	mDeliver
	mRepaired
	mSync
	mAck
	mConnect
	mReconnect
	mRead
	mFetch
	mConvs
	mLate
	numMetrics
)

var tags = [numMetrics]string{rundir.SendIntended, rundir.SendService, rundir.Deliver, rundir.DeliverRepaired,
	rundir.Sync, rundir.Ack, rundir.Connect, rundir.Reconnect, rundir.Read, rundir.Fetch, rundir.Convs, rundir.Late}

// Recorder implements sample.Sink.
type Recorder struct {
	cfg    Config
	shards []shard
	from   atomic.Int64 // the window, clock.Time; to 0 = not known yet
	to     atomic.Int64
	closed atomic.Bool

	all, win              [2][sample.NumFrameTypes]traffic
	applied, appliedInWin atomic.Int64
	ownInWin              atomic.Int64 // of appliedInWin, from the device's own sent reply
	repeats, dropped      atomic.Int64

	sends   sendCounts
	now     tick
	self    self
	backlog backlog
	procs   procs
	peers   peers
	scrape  scraper
	started time.Time
}

// traffic counts frames of one type and direction.
type traffic struct{ frames, bytes atomic.Int64 }

func (t *traffic) add(bytes int) {
	t.frames.Add(1)
	t.bytes.Add(int64(bytes))
}

// shard is one stripe of histograms: devices are spread over the shards, so that few goroutines meet at a lock.
type shard struct {
	mu   sync.Mutex
	h    [numMetrics]*hdrhistogram.Histogram
	side [numMetrics]aside
	_    [64]byte // no two locks on one cache line
}

// aside counts the values of a metric that its histogram does not hold, or holds in a special way.
type aside struct{ negative, overRange, censored int64 }

func (a *aside) add(b aside) {
	a.negative += b.negative
	a.overRange += b.overRange
	a.censored += b.censored
}

// New makes a recorder; it starts nothing.
func New(cfg Config) *Recorder {
	if cfg.LateLimit <= 0 {
		cfg.LateLimit = 10 * time.Millisecond
	}
	if cfg.Shards <= 0 {
		cfg.Shards = 8
	}
	if cfg.ScrapeEvery <= 0 {
		cfg.ScrapeEvery = 5 * time.Second
	}
	r := &Recorder{cfg: cfg, shards: make([]shard, cfg.Shards), started: time.Now()}
	for i := range r.shards {
		r.shards[i].h = newSet()
	}
	r.sends.init()
	r.now.init(r.started)
	r.procs.init(cfg.Processes)
	r.scrape = scraper{cfg: cfg, traffic: r.rowTraffic}
	r.self.init()
	r.backlog.init(cfg.Unread)
	return r
}

func newSet() (set [numMetrics]*hdrhistogram.Histogram) {
	for m := range set {
		set[m] = rundir.NewHistogram()
	}
	return set
}

// SetWindow says which intended times are measured: [from, to). Call it before the first sample of the window, and once
// more with an earlier end if the run is cut short in it.
func (r *Recorder) SetWindow(from, to clock.Time) {
	r.from.Store(int64(from))
	r.to.Store(int64(to))
}

func (r *Recorder) inWindow(t clock.Time) bool {
	return int64(t) < r.to.Load() && int64(t) >= r.from.Load()
}

// record puts one value into a device's shard.
func (r *Recorder) record(device int32, m metric, d time.Duration, censored bool) {
	s := &r.shards[uint32(device)%uint32(len(r.shards))]
	s.mu.Lock()
	defer s.mu.Unlock()
	if censored {
		s.side[m].censored++
	}
	if d < 0 {
		s.side[m].negative++
		return
	}
	v := int64(d)
	if v > rundir.HighestNS {
		v = rundir.HighestNS
		s.side[m].overRange++
	}
	if s.h[m].RecordValue(v) != nil {
		r.dropped.Add(1)
	}
}

// open says whether samples are still taken; one that comes after Finish is counted as dropped.
func (r *Recorder) open() bool {
	if r.closed.Load() {
		r.dropped.Add(1)
		return false
	}
	return true
}

// Frame implements sample.Sink.
func (r *Recorder) Frame(f sample.Frame) {
	if !r.open() {
		return
	}
	if f.Type >= sample.NumFrameTypes {
		f.Type = sample.FOther
	}
	r.all[f.Dir&1][f.Type].add(f.Bytes)
	if f.Msg != 0 && r.inWindow(f.Msg) {
		r.win[f.Dir&1][f.Type].add(f.Bytes)
	}
}

// Send implements sample.Sink.
func (r *Recorder) Send(s sample.Send) {
	if !r.open() {
		return
	}
	in := r.inWindow(s.Intended)
	late := s.Start.Sub(s.Intended)
	if s.Start == 0 { // it never started: it is at least as late as the moment of giving up
		late = s.Done.Sub(s.Intended)
	}
	r.sends.add(s, in, late, r.cfg.LateLimit)
	if !in {
		return
	}
	r.record(s.Device, mLate, late, s.Start == 0)
	switch {
	case s.Censored, s.Code == "timeout", s.Code == "disconnected":
		r.record(s.Device, mIntended, s.Done.Sub(s.Intended), true)
	case s.Code == "": // a refusal is no latency: it is counted by its code
		r.record(s.Device, mIntended, s.Done.Sub(s.Intended), false)
		r.record(s.Device, mService, s.Done.Sub(max(s.Start, s.Written)), false)
	}
}

// Deliver implements sample.Sink.
func (r *Recorder) Deliver(d sample.Delivery) {
	if !r.open() {
		return
	}
	if !d.Applied() {
		if d.WireRepeat {
			r.repeats.Add(1)
		}
		return
	}
	r.applied.Add(1)
	if d.Intended == 0 || !r.inWindow(d.Intended) {
		return
	}
	r.appliedInWin.Add(1)
	if d.Own {
		r.ownInWin.Add(1)
		return
	}
	switch d.Path {
	case sample.FirstPush, sample.PulledHint:
		r.record(d.Device, mDeliver, d.At.Sub(d.Intended), false)
	case sample.Repaired:
		r.record(d.Device, mRepaired, d.At.Sub(d.Intended), false)
	}
}

// Op implements sample.Sink.
func (r *Recorder) Op(o sample.Op) {
	if !r.open() {
		return
	}
	if o.Code != "" {
		r.sends.opFailed(o)
	}
	if o.Code != "" && !o.Censored {
		return
	}
	belongs := o.Msg
	if belongs == 0 {
		belongs = o.Start
	}
	switch {
	case o.Kind == sample.OpConnect:
		r.record(o.Device, mConnect, o.Done.Sub(o.Start), false)
	case o.Kind == sample.OpReconnect:
		r.record(o.Device, mReconnect, o.Done.Sub(o.Start), false)
	case !r.inWindow(belongs):
	case o.Kind == sample.OpRead:
		r.record(o.Device, mRead, o.Done.Sub(o.Start), false)
	case o.Kind == sample.OpFetch:
		r.record(o.Device, mFetch, o.Done.Sub(o.Start), o.Censored)
	case o.Kind == sample.OpList:
		r.record(o.Device, mConvs, o.Done.Sub(o.Start), o.Censored)
	case o.Kind == sample.OpSync:
		r.record(o.Device, mSync, o.Done.Sub(o.Start), false)
	case o.Kind == sample.OpAck:
		r.record(o.Device, mAck, o.Done.Sub(o.Start), false)
	}
}

// Reconnect implements sample.Sink.
func (r *Recorder) Reconnect(_ int32, code int) {
	if r.open() {
		r.sends.reconnected(code)
	}
}

package record

import (
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"imbench/loadgen/internal/sample"
	"imbench/reports/rundir"
)

// maxCodes bounds the maps that are kept by codes which a server chooses.
const maxCodes = 64

// sendCounts counts sends, failures and reconnections. There are few of them a second, so one lock is enough.
type sendCounts struct {
	mu         sync.Mutex
	all        tally
	win        tally
	lateSends  int64 // in the window
	late       *hdrhistogram.Histogram
	opsFailed  map[string]int64
	reconnects map[string]int64
}

// tally is what became of sends.
type tally struct {
	offered, started, done, censored, held int64
	failed                                 map[string]int64
}

func (c *sendCounts) init() {
	c.all.failed, c.win.failed = map[string]int64{}, map[string]int64{}
	c.opsFailed, c.reconnects = map[string]int64{}, map[string]int64{}
	c.late = rundir.NewHistogram()
}

func (c *sendCounts) add(s sample.Send, inWindow bool, late, limit time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all.add(s)
	if inWindow {
		c.win.add(s)
		if s.Start == 0 || late > limit {
			c.lateSends++
		}
	}
	if late >= 0 {
		// A value above the range has no place in a second's p99; the window's histogram holds it.
		_ = c.late.RecordValue(min(int64(late), rundir.HighestNS))
	}
}

func (t *tally) add(s sample.Send) {
	t.offered++
	if s.Start != 0 {
		t.started++
	}
	if s.Written == 0 || s.Written > s.Start {
		t.held++
	}
	switch {
	case s.Censored:
		t.censored++
	case s.Code != "":
		bump(t.failed, s.Code)
	default:
		t.done++
	}
}

func (t *tally) clone() tally {
	c := *t
	c.failed = maps.Clone(t.failed)
	return c
}

func (c *sendCounts) opFailed(o sample.Op) {
	name := [...]string{sample.OpSync: "sync ", sample.OpConnect: "connect ", sample.OpAck: "ack ", sample.OpReconnect: "reconnect ", sample.OpRead: "read ",
		sample.OpFetch: "fetch ", sample.OpList: "convs "}
	c.mu.Lock()
	defer c.mu.Unlock()
	if int(o.Kind) < len(name) {
		bump(c.opsFailed, name[o.Kind]+o.Code)
	}
}

func (c *sendCounts) reconnected(code int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	bump(c.reconnects, strconv.Itoa(code))
}

func bump(m map[string]int64, key string) {
	if _, known := m[key]; !known && len(m) >= maxCodes {
		key = "other"
	}
	m[key]++
}

func sum(m map[string]int64) (n int64) {
	for _, v := range m {
		n += v
	}
	return n
}

// since gives the growth of each counter.
func since(now, before map[string]int64) map[string]int64 {
	var d map[string]int64
	for k, v := range now {
		if n := v - before[k]; n != 0 {
			if d == nil {
				d = map[string]int64{}
			}
			d[k] = n
		}
	}
	return d
}

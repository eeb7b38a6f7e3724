// Package record turns what devices report into histograms and counters, and writes them into the run directory second
// by second. It also watches the generator itself, the processes of the system under test, and scrapes its figures.
//
// A Recorder is a sample.Sink: its Sink methods are safe for any number of goroutines, do not allocate while all is well
// and never wait for a file or a socket; nothing is queued, so nothing is dropped for want of room. Run, Tick and Finish
// belong to one owner: Finish after Run has returned.
//
// Memory is bounded by the number of shards: a shard holds one histogram a metric (12 of 180 kB), so 8 shards with the
// interval, the total and a spare take 22 MB, however long the run and however many the devices. Codes that counters
// are kept by (errors, close codes) are at most 64 distinct ones; further ones are counted as "other".
//
// What counts for the measured window is decided by the intended time of the message that a sample belongs to
// (sample.Frame.Msg and the like), not by when it was seen.
package record

import (
	"context"
	"net/http"
	"time"

	"imbench/reports/rundir"
)

// A run that several processes drive has a recorder in each: a worker's has no run directory, it is asked to Cut instead
// of to Tick, and the recorder of the coordinator takes these parts as if it had seen the samples itself (Absorb).
// Histograms are merged, counters added, never percentiles averaged.

// Config is what a Recorder needs. Out is required, but for a recorder that is only ever asked to Cut.
type Config struct {
	Out *rundir.Writer
	// Ticks, if given, says when an interval has ended and when Tick is to be called, instead of a timer.
	Ticks <-chan time.Time
	// LateLimit is how late a send may start before it counts into late_share: a tenth of the send criterion.
	LateLimit time.Duration // default 10 ms
	// Live gives how many sends were due and how many had been started so far; nil: both are counted when a send ends.
	Live func() (offered, started int64)
	// Unread looks at what lies unread in the receive sockets of at most so many devices; nil: not known.
	Unread      func(most int) (sockets int, bytes, largest int64)
	Sockets     int // that receive: one a connected device
	Processes   []Process
	Scrapes     []Scrape
	ScrapeEvery time.Duration     // default 5 s
	Via         http.RoundTripper // for the scrapes; nil = the default way
	Shards      int               // default 8
}

// Process is a process to watch in /proc. With Tree, all its descendants count, too (PostgreSQL's postmaster).
type Process struct {
	Role string
	PID  int
	Tree bool
}

// Scrape is a URL to read every few seconds: a Prometheus text page, or a JSON document that is kept as it is.
type Scrape struct {
	URL   string
	Token string // bearer token; "" = none
	JSON  bool
}

// Snapshot is what a status shows. Its maps and lists do not change any more.
type Snapshot struct {
	FailedBy                       map[string]int64         // by code, since the start
	SendP50, DeliverP50            time.Duration            // as SendP99
	Latencies                      map[string]rundir.Metric // of the measured window so far, by the tags of latency.hlog
	Processes                      []ProcessRate            // in the last second
	Offered, Started, Done, Failed int64                    // since the start
	DoneRate                       float64                  // 1/s, over the last five seconds
	SendP99, DeliverP99            time.Duration            // of the last full second with samples; 0 = none
	Applied                        int64
	Reconnects                     int64
	LateP99                        time.Duration
	Dropped                        int64
}

// Result is what a run measured in its window.
type Result struct {
	WindowS                           float64
	Offered, Started, Done, Censored  int64
	Held                              int64 // sends that waited in their device for a connection or a place in flight
	Failed                            map[string]int64
	Metrics                           map[string]rundir.Metric // by the tags of latency.hlog
	Measured                          map[string]float64       // by the names of model/capacity; what is not known is not in it
	EffectiveAck                      float64
	AppliedPerMessage                 float64 // events that devices applied, by push or sync, their own sends apart, a message; 0 = no message
	Generator                         rundir.Generator
	Processes                         []rundir.ProcessUse
	Reconnects, WireRepeats, Negative int64
	AdmittedRate                      *float64       // handshakes/s; nil = not known
	Counted                           rundir.Counted // Ours: sends done in all phases
	Notes                             []string
}

// Fill copies the result into a summary.
func (r Result) Fill(s *rundir.Summary) {
	s.WindowS, s.Offered, s.Started, s.Done, s.Censored = r.WindowS, r.Offered, r.Started, r.Done, r.Censored
	s.Held = r.Held
	s.Failed, s.Metrics, s.EffectiveAck, s.Generator, s.Processes = r.Failed, r.Metrics, r.EffectiveAck, r.Generator, r.Processes
	if r.WindowS > 0 {
		s.OfferedRate, s.AchievedRate = float64(r.Offered)/r.WindowS, float64(r.Done)/r.WindowS
	}
	if r.Offered > 0 {
		s.AchievedShare = float64(r.Done) / float64(r.Offered)
	}
	s.Reconnects, s.Counted, s.AdmittedRate = r.Reconnects, &r.Counted, r.AdmittedRate
	s.Notes = append(s.Notes, r.Notes...)
}

// Run writes a line a second until ctx ends, and scrapes beside it. It returns the first error of the run directory.
func (r *Recorder) Run(ctx context.Context) error {
	scraped := make(chan struct{})
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer close(scraped)
		r.scrape.run(ctx)
	}()
	defer func() { cancel(); <-scraped }()
	ticks := r.cfg.Ticks
	if ticks == nil {
		t := time.NewTicker(time.Second)
		defer t.Stop()
		ticks = t.C
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-ticks:
			if err := r.Tick(now); err != nil {
				return err
			}
		}
	}
}

package record

import (
	"context"
	"fmt"
	"time"

	"imbench/loadgen/internal/sample"
	"imbench/model/capacity"
	"imbench/reports/rundir"
)

// Finish closes the last interval, reads the sources once more, and says what was measured. Samples that come later are
// dropped. The result is good even when an error of the run directory comes with it.
func (r *Recorder) Finish() (Result, error) {
	r.closed.Store(true)
	if len(r.cfg.Scrapes) > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), 2*scrapeTimeout)
		r.scrape.all(ctx, r.scrape.client())
		cancel()
	}
	err := r.Tick(time.Now())
	return r.result(), err
}

func (r *Recorder) result() Result {
	r.sends.mu.Lock()
	win, lateSends := r.sends.win.clone(), r.sends.lateSends
	reconnects, done := sum(r.sends.reconnects), r.sends.all.done
	r.sends.mu.Unlock()
	res := Result{WindowS: time.Duration(r.to.Load() - r.from.Load()).Seconds(), Offered: win.offered, Started: win.started,
		Done: win.done, Censored: win.censored, Held: win.held, Failed: win.failed, Metrics: map[string]rundir.Metric{},
		Processes: append(r.procs.use(), r.peers.use()...), Reconnects: reconnects, WireRepeats: r.repeats.Load()}
	for m := range numMetrics {
		x := rundir.MetricOf(r.now.total[m])
		side := r.now.side[m]
		x.Negative, x.OverRange, x.Censored = side.negative, side.overRange, side.censored
		if rundir.Occasional(tags[m]) && x.Count == 0 {
			continue
		}
		res.Metrics[tags[m]] = x
		if m != mLate {
			res.Negative += side.negative
		}
	}
	late := r.now.total[mLate]
	res.Generator = r.self.use()
	res.Generator.CPUCores += r.peers.cores()
	r.backlog.use(&res.Generator, r.downRate())
	if len(r.peers.use()) > 0 {
		res.Generator.CPULimit = 0 // they may be on other machines
	}
	res.Generator.LateLimitMS = float64(r.cfg.LateLimit) / float64(time.Millisecond)
	res.Generator.LateP50MS = float64(late.ValueAtPercentile(50)) / float64(time.Millisecond)
	res.Generator.LateP99MS, res.Generator.LateMaxMS = res.Metrics[rundir.Late].P99, res.Metrics[rundir.Late].Max
	res.Generator.Dropped = r.dropped.Load()
	if win.offered > 0 {
		res.Generator.LateShare = float64(lateSends) / float64(win.offered)
	}
	if res.Negative > 0 {
		res.Notes = append(res.Notes, fmt.Sprintf("%d latencies were negative: the clocks of generator and receiver differ; "+
			"they are counted and in no histogram", res.Negative))
	}
	res.Counted = rundir.Counted{Ours: done}
	if n, why := r.scrape.committed(); why == "" {
		res.Counted.Server = &n
	} else {
		res.Counted.Note = why
	}
	r.scrape.mu.Lock()
	if a := r.scrape.admitted; a.ok {
		res.AdmittedRate = &a.most
	}
	r.scrape.mu.Unlock()
	res.Measured, res.EffectiveAck = r.measured(res)
	if res.Done > 0 {
		res.AppliedPerMessage = float64(r.appliedInWin.Load()-r.ownInWin.Load()) / float64(res.Done)
	}
	return res
}

// measured gives the figures of the table "predicted, measured, error", by the names of package capacity.
func (r *Recorder) measured(res Result) (m map[string]float64, effectiveAck float64) {
	m = map[string]float64{}
	if res.WindowS <= 0 {
		return m, 0
	}
	up, down := &r.win[sample.Up], &r.win[sample.Down]
	rate := func(n int64) float64 { return float64(n) / res.WindowS }
	m[capacity.Messages] = rate(res.Done)
	m[capacity.PushFrames] = rate(down[sample.FEvent].frames.Load())
	m[capacity.DiscardedFrames] = rate(down[sample.FEventDiscarded].frames.Load())
	m[capacity.HintFrames] = rate(down[sample.FHint].frames.Load())
	m[capacity.SyncFrames] = rate(up[sample.FSync].frames.Load())
	m[capacity.AckFrames] = rate(up[sample.FAck].frames.Load())
	var frames, bytes int64
	for _, t := range []sample.FrameType{sample.FEvent, sample.FHint, sample.FSynced, sample.FAcked, sample.FSent} {
		frames += down[t].frames.Load()
		bytes += down[t].bytes.Load()
	}
	m[capacity.DownFrames], m[capacity.DownBytes] = rate(frames), rate(bytes)
	m[capacity.PushBytes] = rate(down[sample.FEvent].bytes.Load())
	for figure, tag := range map[string]string{rundir.FetchRate: rundir.Fetch, rundir.ConvsRate: rundir.Convs} {
		if x, asked := res.Metrics[tag]; asked {
			m[figure] = rate(x.Count - x.Censored)
		}
	}
	if res.Done > 0 {
		m[capacity.Deliveries] = float64(down[sample.FEvent].frames.Load()) / float64(res.Done)
	}
	if acks := up[sample.FAck].frames.Load(); acks > 0 {
		effectiveAck = float64(r.appliedInWin.Load()) / float64(acks)
		m[capacity.EffectiveAck] = effectiveAck
	}
	if perSent, perAcked, ok := r.scrape.ratios(); ok {
		m[capacity.EventRows] = perSent * m[capacity.Messages]
		m[capacity.CursorRows] = perAcked * m[capacity.AckFrames]
	}
	return m, effectiveAck
}

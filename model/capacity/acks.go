package capacity

import "math"

// ackPolicy is how a device acknowledges and loses events, and when the sweep tells it of one.
type ackPolicy struct {
	every int
	delay float64 // s
	loss  float64 // of an event on its way to this device; its own events are never lost
	grace float64 // s
	sweep float64 // s
	trip  float64 // s, from an ack's leaving until the sweep knows of it
	gap   float64 // s, from an event that reveals a loss until the sync, on average
}

// ackCounts are the long-run figures of one device in one conversation, for each event of that conversation.
type ackCounts struct {
	acks   float64
	noise  float64 // variance of the number of acks, for each event
	syncs  float64
	hints  float64
	healed float64 // runs of losses that end with the sweep's hint, not with the next event
	perAck float64 // events an ack covers
}

// hole is a batch's beginning: pending events applied, in a phase; or, as an end, lost ones outstanding.
type hole struct{ phase, n int }

// step is one possible end of a batch.
type step struct {
	size int  // events that the ack covers
	next hole // with n events lost, or with n applied already, which begin the next batch
	left bool // the latter
	p    float64
}

// link leads from one beginning to another with probability p; sized is p times the mean size of the batch between.
type link struct {
	to       int
	p, sized float64
}

// opening is a beginning: the moments of its batch's size, and what follows.
type opening struct {
	mean, square float64
	links        []link
}

// countAcks solves the acknowledgements exactly, up to the age of a loss when a batch ends (see idle).
//
// A batch begins when an event is applied and none is pending. It ends with an ack: when `every` events are pending, or
// `delay` after its beginning. Lost events are applied with the next event that arrives, or after the sweep's hint if
// nothing arrives in time; several may so be applied at once, and what is beyond the ack begins the next batch.
// Beginnings of batches are a Markov chain over (phase, events applied at once); its stationary distribution gives the
// mean size of a batch, which is events an ack.
//
// What the end of a burst changes is shared by all of its messages: the figures of a long burst are those of an endless
// one and a part that goes with 1/size, taken from a burst of longBurst.
func countAcks(b burst, p ackPolicy) ackCounts {
	const longBurst = 64
	if b.size <= longBurst {
		return solveAcks(b, p)
	}
	share := longBurst / float64(b.size)
	out := between(solveAcks(b.endless(), p), solveAcks(burst{longBurst, b.lambda, b.nu}, p), share)
	out.perAck = 1 / out.acks
	return out
}

func solveAcks(b burst, p ackPolicy) ackCounts {
	runs := 1 // losses in a row that are told apart
	for q := p.loss; q > 1e-4 && runs < 16; q *= p.loss {
		runs++
	}
	mean := b.lambda * p.delay
	most := min(float64(p.every+runs), mean+10*math.Sqrt(mean)+40) // more do not happen within the delay
	s := ackSolver{b: b, p: p, runs: runs, most: int(most), idles: map[hole][]link{}}
	s.prepare()
	start := s.stationary()
	var size, square float64
	for i, w := range start {
		size += w * s.open[i].mean
		square += w * s.open[i].square
	}
	out := ackCounts{acks: 1 / size, perAck: size}
	out.noise = s.noise(start, size, square) / (size * size * size)
	silent, late := s.hints(size)
	// Each run of losses ends in one sync, whatever reveals it. A lost event begins a run unless its predecessor was lost
	// too and is still missing, so that runs = loss·(1 − loss + healed) with healed = runs·silent.
	out.syncs = p.loss * (1 - p.loss) / (1 - p.loss*silent)
	out.healed = out.syncs * silent
	out.hints = out.syncs * (silent + late)
	return out
}

type ackSolver struct {
	b     burst
	p     ackPolicy
	runs  int
	most  int             // messages within a batch
	open  []opening       // by index
	idles map[hole][]link // idle, remembered
}

// index of a beginning with n events applied, 1 to runs+1. Within a burst, a batch only leads to a higher index: to a
// later phase, or to fewer events in the same one.
func (s *ackSolver) index(h hole) int { return h.phase*(s.runs+1) + s.runs + 1 - h.n }

func (s *ackSolver) prepare() {
	starts := s.b.phases() * (s.runs + 1)
	s.open = make([]opening, starts)
	p, sized := make([]float64, starts), make([]float64, starts)
	for phase := range s.b.phases() {
		counts := s.b.counts(phase, s.p.delay, s.most)
		for n := 1; n <= s.runs+1; n++ {
			o := &s.open[s.index(hole{phase, n})]
			clear(p)
			clear(sized)
			for _, st := range s.batch(phase, n, counts) {
				size := float64(st.size)
				o.mean += st.p * size
				o.square += st.p * size * size
				for _, l := range s.follow(st) {
					p[l.to] += st.p * l.p
					sized[l.to] += st.p * l.p * size
				}
			}
			for to := range p {
				if p[to] > 0 {
					o.links = append(o.links, link{to, p[to], sized[to]})
				}
			}
		}
	}
}

// batch is how a batch that begins in phase with n events applied may end. counts is the number of further messages
// within the delay.
func (s *ackSolver) batch(phase, n int, counts []count) []step {
	if n >= s.p.every {
		return []step{s.full(phase, n, 1)}
	}
	var out []step
	// open[q]: the batch is still open after m messages, and the last q of them were lost.
	open := make([]float64, s.runs+1)
	open[0] = 1
	more := 1.0 // P(at least m messages)
	for m := 0; m <= s.most; m++ {
		for q, w := range open {
			if w < 1e-12 {
				continue
			}
			size := n + m - q
			here := s.b.after(phase, max(m, 1))
			if m == 0 {
				here = phase
			}
			if p := w * counts[m].waiting; p > 0 {
				out = append(out, step{size, hole{here, q}, false, p})
			}
			if p := w * counts[m].started; p > 0 {
				out = append(out, step{size, hole{0, q}, false, p})
			}
		}
		more -= counts[m].p()
		next := make([]float64, s.runs+1)
		for q, w := range open {
			lost := s.lossAfter(q)
			if q < s.runs {
				next[q+1] += w * lost
			}
			arrives := w * (1 - lost)
			if size := n + m + 1; size >= s.p.every {
				if arrives > 0 && more > 0 {
					out = append(out, s.full(s.b.after(phase, m+1), size, arrives*more))
				}
			} else {
				next[0] += arrives
			}
		}
		open = next
	}
	return out
}

// full is the end of a batch that has all the events it may have, of n that are applied.
func (s *ackSolver) full(phase, n int, p float64) step {
	return step{s.p.every, hole{phase, n - s.p.every}, n > s.p.every, p}
}

// lossAfter is the probability of a loss after q in a row: none once the runs that are told apart are full.
func (s *ackSolver) lossAfter(q int) float64 {
	if q >= s.runs {
		return 0
	}
	return s.p.loss
}

// follow is the distribution of the next batch's beginning.
func (s *ackSolver) follow(st step) []link {
	if st.left {
		return []link{{to: s.index(st.next), p: 1}}
	}
	return s.idle(st.next)
}

// idle is the distribution of the next batch's beginning, from a phase with n lost events outstanding and nothing
// pending. When a batch ended with losses outstanding their age is not known; half the delay is taken, which matters
// only for whether the hint or the next burst comes first.
func (s *ackSolver) idle(from hole) []link {
	if known, ok := s.idles[from]; ok {
		return known
	}
	var out []link
	to := func(h hole, p float64) {
		if p > 0 {
			out = append(out, link{to: s.index(h), p: p})
		}
	}
	h, p, wait := from, 1.0, s.p.grace+s.p.sweep/2-s.p.delay/2
	for {
		if h.n > 0 {
			silent := s.b.counts(h.phase, max(wait, 0), 0)[0]
			to(h, p*silent.waiting)
			to(hole{0, h.n}, p*silent.started)
			p *= 1 - silent.p()
		}
		next := s.b.after(h.phase, 1)
		lost := s.lossAfter(h.n)
		to(hole{next, h.n + 1}, p*(1-lost))
		if lost == 0 || p == 0 {
			break
		}
		h, p, wait = hole{next, h.n + 1}, p*lost, s.p.grace+s.p.sweep/2
	}
	s.idles[from] = out
	return out
}

// stationary is the distribution over beginnings. One pass follows the batches through a burst, in the order of their
// indices, and collects what leads into the next burst; few passes are needed, since the silence lets most devices begin
// alike. Half of the old entry is kept, so that nothing can oscillate.
func (s *ackSolver) stationary() []float64 {
	entry := make([]float64, len(s.open))
	entry[s.index(hole{s.b.after(0, 1), 1})] = 1
	visits := make([]float64, len(s.open))
	for range 500 {
		copy(visits, entry)
		wrapped := make([]float64, len(s.open))
		for i := range s.open {
			if visits[i] < 1e-14 {
				continue
			}
			for _, l := range s.open[i].links {
				if l.to > i {
					visits[l.to] += visits[i] * l.p
				} else {
					wrapped[l.to] += visits[i] * l.p
				}
			}
		}
		var change float64
		for i := range entry {
			change += math.Abs(wrapped[i] - entry[i])
			entry[i] = (entry[i] + wrapped[i]) / 2
		}
		if change < 1e-9 {
			break
		}
	}
	var total float64
	for _, v := range visits {
		total += v
	}
	for i := range visits {
		visits[i] /= total
	}
	return visits
}

// noise is the asymptotic variance of Σ(size − mean)/√batches: the variance of a size plus twice its covariances with
// those that follow.
func (s *ackSolver) noise(start []float64, mean, square float64) float64 {
	variance := square - mean*mean
	carried := make([]float64, len(start)) // E[(size − mean); next beginning]
	for i, w := range start {
		for _, l := range s.open[i].links {
			carried[l.to] += w * (l.sized - mean*l.p)
		}
	}
	next := make([]float64, len(start))
	for range 200 {
		clear(next)
		var cov, left float64
		for i, w := range carried {
			if math.Abs(w) < 1e-12 {
				continue
			}
			left += math.Abs(w)
			cov += w * (s.open[i].mean - mean)
			for _, l := range s.open[i].links {
				next[l.to] += w * l.p
			}
		}
		variance += 2 * cov
		if left < 1e-6 {
			break
		}
		carried, next = next, carried
	}
	return max(variance, 0)
}

// hints is the share of runs of losses that nothing reveals within the grace and the wait for the sweep, and of those
// that are repaired so late that the device still waits to acknowledge when the sweep comes.
func (s *ackSolver) hints(perAck float64) (silent, late float64) {
	if s.p.loss == 0 {
		return 0, 0
	}
	// The sweep comes evenly within its period: Simpson's rule.
	for _, e := range s.b.ends(s.most + 1) {
		for i, weight := range [3]float64{1. / 6, 4. / 6, 1. / 6} {
			wait := s.p.grace + s.p.sweep*float64(i)/2
			silent += weight * e.share * s.silent(e.phase, wait)
			late += weight * e.share * s.late(e.phase, wait, perAck)
		}
	}
	return silent, late
}

// silent is the probability that no event arrives within t of a loss.
func (s *ackSolver) silent(phase int, t float64) (sum float64) {
	all := 1.0
	for _, c := range s.b.counts(phase, t, s.runs) {
		sum += all * c.p()
		all *= s.p.loss
	}
	return sum
}

// late is the probability that an event arrives within t of a loss, and that the sweep knows of the ack of both only after
// t: the event begins, a gap later, a batch of two, which is open until a trip before t. It begins none if a batch is
// open that began before the loss; batches begin about once in perAck events, and one that began more than the delay
// before the arrival is over.
func (s *ackSolver) late(phase int, t, perAck float64) (sum float64) {
	const slices = 16
	width := min(s.p.gap+s.p.delay+s.p.trip, t) / slices
	before := s.silent(phase, t-slices*width)
	for i := range slices {
		left := (slices - 1 - float64(i)) * width // after the slice
		after := s.silent(phase, t-left)
		arrival := t - left - width/2
		begins := math.Exp(-s.b.lambda / perAck * max(0, s.p.delay-arrival))
		for m, c := range s.b.counts(s.b.after(phase, 1), max(left+width/2-s.p.trip, 0), max(min(s.p.every-3, s.most), 0)) {
			if m+2 < s.p.every {
				sum += (before - after) * begins * c.p()
			}
		}
		before = after
	}
	return sum
}

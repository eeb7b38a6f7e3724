package capacity

import "math"

// ackPolicy is how a device acknowledges and loses events, and when the sweep tells it of one.
type ackPolicy struct {
	every int
	delay float64 // s
	loss  float64 // of an event on its way to this device; its own events are never lost
	grace float64 // s
	sweep float64 // s
}

// ackCounts are the long-run figures of one device in one conversation, for each event of that conversation.
type ackCounts struct {
	acks   float64
	noise  float64 // variance of the number of acks, for each event
	syncs  float64
	hints  float64
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

// countAcks solves the acknowledgements exactly, up to the age of a loss when a batch ends (see idle).
//
// A batch begins when an event is applied and none is pending. It ends with an ack: when `every` events are pending, or
// `delay` after its beginning. Lost events are applied with the next event that arrives, or after the sweep's hint if
// nothing arrives in time; several may so be applied at once, and what is beyond the ack begins the next batch. Beginnings of batches are a Markov chain over (phase,
// events applied at once); its stationary distribution gives the mean size of a batch, which is events an ack.
func countAcks(b burst, p ackPolicy) ackCounts {
	runs := 1 // losses in a row that are told apart
	for q := p.loss; q > 1e-6 && runs < 32; q *= p.loss {
		runs++
	}
	s := ackSolver{b: b, p: p, runs: runs, most: p.every + runs}
	s.prepare()
	start := s.stationary()
	var size, square float64
	for i, w := range start {
		for _, st := range s.steps[i] {
			size += w * st.p * float64(st.size)
			square += w * st.p * float64(st.size*st.size)
		}
	}
	out := ackCounts{acks: 1 / size, perAck: size}
	out.noise = s.noise(start, size) / (size * size * size)
	out.syncs = p.loss * (1 - p.loss) // each run of losses ends in one sync, whatever reveals it
	out.hints = s.hints(size)
	return out
}

type ackSolver struct {
	b     burst
	p     ackPolicy
	runs  int
	most  int
	steps [][]step           // by beginning
	begin [][]float64        // transition probabilities between beginnings
	idles map[hole][]float64 // idle, remembered
}

// index of a beginning: n is 1 to runs+1.
func (s *ackSolver) index(h hole) int { return h.phase*(s.runs+1) + h.n - 1 }

func (s *ackSolver) prepare() {
	starts := s.b.phases() * (s.runs + 1)
	s.steps, s.begin = make([][]step, starts), make([][]float64, starts)
	s.idles = map[hole][]float64{}
	for phase := range s.b.phases() {
		counts := s.b.counts(phase, s.p.delay, s.most)
		for n := 1; n <= s.runs+1; n++ {
			i := s.index(hole{phase, n})
			s.steps[i] = s.batch(phase, n, counts)
			s.begin[i] = make([]float64, starts)
			for _, st := range s.steps[i] {
				for j, q := range s.follow(st) {
					s.begin[i][j] += st.p * q
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
			if w == 0 {
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
func (s *ackSolver) follow(st step) []float64 {
	if !st.left {
		return s.idle(st.next)
	}
	out := make([]float64, s.b.phases()*(s.runs+1))
	out[s.index(st.next)] = 1
	return out
}

// idle is the distribution of the next batch's beginning, from a phase with n lost events outstanding and nothing
// pending. When a batch ended with losses outstanding their age is not known; half the delay is taken, which matters
// only for whether the hint or the next burst comes first.
func (s *ackSolver) idle(from hole) []float64 {
	if known, ok := s.idles[from]; ok {
		return known
	}
	out := make([]float64, s.b.phases()*(s.runs+1))
	type at struct {
		hole
		p    float64
		wait float64 // until the hint
	}
	todo := []at{{from, 1, s.p.grace + s.p.sweep/2 - s.p.delay/2}}
	for len(todo) > 0 {
		a := todo[0]
		todo = todo[1:]
		if a.n > 0 {
			silent := s.b.counts(a.phase, max(a.wait, 0), 0)[0]
			out[s.index(hole{a.phase, a.n})] += a.p * silent.waiting
			out[s.index(hole{0, a.n})] += a.p * silent.started
			a.p *= 1 - silent.p()
		}
		next := s.b.after(a.phase, 1)
		lost := s.lossAfter(a.n)
		out[s.index(hole{next, a.n + 1})] += a.p * (1 - lost)
		if lost > 0 && a.p > 0 {
			todo = append(todo, at{hole{next, a.n + 1}, a.p * lost, s.p.grace + s.p.sweep/2})
		}
	}
	s.idles[from] = out
	return out
}

// stationary is the distribution over beginnings, by power iteration on the lazy chain (which cannot be periodic).
func (s *ackSolver) stationary() []float64 {
	w := make([]float64, len(s.begin))
	w[0] = 1
	for range 2000 {
		next := make([]float64, len(w))
		for i, p := range w {
			if p == 0 {
				continue
			}
			next[i] += p / 2
			for j, q := range s.begin[i] {
				next[j] += p * q / 2
			}
		}
		var change float64
		for i := range w {
			change += math.Abs(next[i] - w[i])
		}
		w = next
		if change < 1e-10 {
			break
		}
	}
	return w
}

// noise is the asymptotic variance of Σ(size − mean)/√batches: the variance of a size plus twice its covariances with
// those that follow.
func (s *ackSolver) noise(start []float64, mean float64) float64 {
	excess := make([]float64, len(start)) // E[size − mean] by beginning
	for i := range start {
		for _, st := range s.steps[i] {
			excess[i] += st.p * (float64(st.size) - mean)
		}
	}
	var variance float64
	carried := make([]float64, len(start)) // E[(size − mean); next beginning]
	for i, w := range start {
		for _, st := range s.steps[i] {
			d := float64(st.size) - mean
			variance += w * st.p * d * d
			if w*st.p == 0 {
				continue
			}
			for j, q := range s.follow(st) {
				carried[j] += w * st.p * d * q
			}
		}
	}
	for range 200 {
		var cov float64
		next := make([]float64, len(carried))
		for i, w := range carried {
			cov += w * excess[i]
			for j, q := range s.begin[i] {
				next[j] += w * q
			}
		}
		variance += 2 * cov
		carried = next
	}
	return max(variance, 0)
}

// hints is the sweep's hints for each event: runs of losses that nothing reveals within the grace and the wait for the
// sweep, and events that were repaired so late that the device still waits to acknowledge when the sweep comes.
func (s *ackSolver) hints(perAck float64) float64 {
	if s.p.loss == 0 {
		return 0
	}
	var sum float64
	ends := s.b.ends()
	// The sweep comes evenly within its period: Simpson's rule.
	for i, weight := range [3]float64{1. / 6, 4. / 6, 1. / 6} {
		wait := s.p.grace + s.p.sweep*float64(i)/2
		for _, phase := range ends {
			sum += weight * (s.silent(phase, wait) + s.late(phase, wait, perAck))
		}
	}
	return s.p.loss * (1 - s.p.loss) * sum / float64(len(ends))
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

// late is the probability that an event arrives within t of a loss, and that the ack of both is sent only after t: the
// event begins a batch of two, which stays open until then. It begins none if a batch is open that began before the
// loss; batches begin about once in perAck events, and one that began more than the delay before the arrival is over.
func (s *ackSolver) late(phase int, t, perAck float64) (sum float64) {
	const slices = 16
	width := min(s.p.delay, t) / slices
	before := s.silent(phase, t-slices*width)
	for i := range slices {
		left := (slices - 1 - float64(i)) * width // after the slice
		after := s.silent(phase, t-left)
		arrival := t - left - width/2
		begins := math.Exp(-s.b.lambda / perAck * max(0, s.p.delay-arrival))
		for m, c := range s.b.counts(s.b.after(phase, 1), left+width/2, max(s.p.every-3, 0)) {
			if m+2 < s.p.every {
				sum += (before - after) * begins * c.p()
			}
		}
		before = after
	}
	return sum
}

package capacity

import "math"

// burst is how the messages of one conversation follow each other: size messages as a Poisson process of rate λ, then a
// silence whose length is exponential with rate ν, and so on. A phase is a place in that cycle: phase i < size means that
// i messages of the burst are over, phase size is the silence. size 0 is a burst without end, which has phase 0 only.
type burst struct {
	size   int
	lambda float64
	nu     float64
}

// endless is the burst that has no end.
func (b burst) endless() burst { return burst{lambda: b.lambda} }

// phases is the number of different phases.
func (b burst) phases() int { return b.size + 1 }

// after is the phase right after m ≥ 1 more messages.
func (b burst) after(phase, m int) int {
	if b.size == 0 {
		return 0
	}
	return (phase%b.size+m-1)%b.size + 1
}

// end is a phase that follows a message, with the share of the messages that it stands for.
type end struct {
	phase int
	share float64
}

// ends are the phases that follow a message, each equally often. Those from which the next reach messages all belong to
// the same burst are alike, and one stands for them.
func (b burst) ends(reach int) []end {
	if b.size == 0 {
		return []end{{0, 1}}
	}
	var list []end
	each := 1 / float64(b.size)
	for phase := 1; phase <= b.size; phase++ {
		if phase > 1 && phase+reach < b.size {
			list[0].share += each
			continue
		}
		list = append(list, end{phase, each})
	}
	return list
}

// count[m] says how likely m messages are in a time: waiting, with the phase still what it was after the last of them;
// started, with the silence over and the next burst not begun.
type count struct{ waiting, started float64 }

func (c count) p() float64 { return c.waiting + c.started }

// counts is the distribution of the number of messages within t seconds from a phase, up to most of them; what is missing
// to 1 is more. It is a pure birth process, solved by uniformization.
func (b burst) counts(phase int, t float64, most int) []count {
	rates, first := b.stages(phase, most)
	probs := birth(rates, t)
	out := make([]count, most+1)
	for m := range out {
		s := first[m]
		out[m].waiting = probs[s]
		if first[m+1]-s == 2 {
			out[m].started = probs[s+1]
		}
	}
	return out
}

// stages are the exponential waits on the way to most+1 messages: first[m] is the stage right after message m.
func (b burst) stages(phase, most int) (rates []float64, first []int) {
	for range most + 1 {
		first = append(first, len(rates))
		if b.size > 0 && phase == b.size {
			rates = append(rates, b.nu)
		}
		rates = append(rates, b.lambda)
		phase = b.after(phase, 1)
	}
	return rates, append(first, len(rates))
}

// birth is the distribution over the stages of a chain of exponential waits, t seconds after it entered the first. It
// sums Poisson(Λt) weights over the powers of the jump chain, Λ the largest rate (Jensen 1953); the terms that it leaves
// out weigh less than 1e-12. A wait that is shorter than t/fastest counts as that long, which bounds the terms.
func birth(rates []float64, t float64) []float64 {
	const fastest = 1e4
	var top float64
	for _, r := range rates {
		top = max(top, r)
	}
	top = min(top, fastest/t)
	state, sum := make([]float64, len(rates)), make([]float64, len(rates))
	state[0] = 1
	mean := top * t
	if mean == 0 {
		return state
	}
	steps := int(mean + 8*math.Sqrt(mean) + 20)
	logMean, logWeight := math.Log(mean), -mean // the weights' logarithm, since exp(−Λt) may vanish
	for n := range steps + 1 {
		if n > 0 {
			logWeight += logMean - math.Log(float64(n))
		}
		w := 0.0
		if logWeight > -40 {
			w = math.Exp(logWeight)
		} else if float64(n) > mean {
			break
		}
		left := 0.0 // probability that has not gone through all stages
		for i := len(state) - 1; i >= 0; i-- {
			sum[i] += w * state[i]
			left += state[i]
			move := min(rates[i]/top, 1) * state[i]
			state[i] -= move
			if i+1 < len(state) {
				state[i+1] += move
			}
		}
		if left < 1e-15 {
			break
		}
	}
	return sum
}

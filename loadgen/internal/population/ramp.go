package population

import (
	"math"

	"imbench/loadgen/internal/payload"
	"imbench/loadgen/internal/scenario"
)

// ramp is how the rates change over the load: straight lines, one after the other. Behind the last the factor stays.
// Without lines it is 1.
type ramp []scenario.Line

func newRamp(t scenario.Traffic) ramp { return t.Lines() }

// after is the moment at which a stream that has a message at at has its next one, if with a factor of 1 the two lay gap
// seconds apart: the t for which the integral of the factor f from at to t is gap. This makes a Poisson stream of rate r
// one of rate r·f(t) (Lewis and Shedler's inversion of the cumulative rate). It is silent if that never happens.
func (r ramp) after(at, gap float64) float64 {
	factor := 1.0
	for _, l := range r {
		factor = l.End
		if at >= l.To {
			continue
		}
		slope := (l.End - l.Begin) / (l.To - l.From)
		here := l.Begin + slope*(at-l.From)
		area := (here + l.End) / 2 * (l.To - at)
		if gap <= area && gap > 0 {
			// here·d + slope·d²/2 = gap, in the form that loses no digits when the slope is small.
			return at + 2*gap/(here+math.Sqrt(max(0, here*here+2*slope*gap)))
		}
		gap -= area
		at = l.To
	}
	if factor <= 0 {
		return silent
	}
	return at + gap/factor
}

// bodies draws the sizes of bodies. Each follows from seed and index alone, so that any may be asked for.
type bodies struct {
	seed  uint64
	kinds []scenario.Body
	upTo  []float64 // upTo[i]: weights of kinds[:i+1]
}

func newBodies(t scenario.Traffic, seed uint64) bodies {
	b := bodies{seed: seed, kinds: t.Bodies}
	if len(b.kinds) == 0 {
		b.kinds = []scenario.Body{{Bytes: t.BodyBytes, Weight: 1, Max: t.BodyBytes}}
	}
	total := 0.0
	for _, k := range b.kinds {
		total += k.Weight
		b.upTo = append(b.upTo, total)
	}
	return b
}

// most is what no body exceeds.
func (b *bodies) most() (n int) {
	for _, k := range b.kinds {
		n = max(n, k.Bytes)
		if k.Sigma > 0 {
			n = max(n, k.Max)
		}
	}
	return n
}

// BodySize is the size of a message's body in bytes.
func (p *Plan) BodySize(index int64) int {
	b := &p.bodies
	if len(b.kinds) == 1 && b.kinds[0].Sigma == 0 {
		return b.kinds[0].Bytes
	}
	src := newSource(b.seed+uint64(index)*0x9e3779b97f4a7c15, "bodies")
	draw, i := src.unit()*b.upTo[len(b.upTo)-1], 0
	for i < len(b.upTo)-1 && draw >= b.upTo[i] {
		i++
	}
	k := &b.kinds[i]
	if k.Sigma == 0 {
		return k.Bytes
	}
	normal := math.Sqrt(2*src.exponential()) * math.Cos(2*math.Pi*src.unit()) // Box and Muller
	size := float64(k.Bytes) * math.Exp(k.Sigma*normal)
	return int(min(max(size, float64(payload.MinSize)), float64(k.Max)))
}

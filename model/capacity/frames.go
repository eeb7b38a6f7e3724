package capacity

import (
	"math"
	"strconv"
)

// frameBytes are the lengths of the frames that a gateway sends, as JSON text of server/PROTOCOL.md.
type frameBytes struct {
	event     float64 // the frame of a pushed event
	hint      float64 // an ordinary hint
	sweepHint float64 // a hint of the repair sweep
	syncReply float64 // a synced frame without events
	syncEvent float64 // an event inside one, its comma included
	acked     float64
	sent      float64
}

const (
	uuidText   = 36
	millisText = 13 // Unix milliseconds until the year 2286
)

// frames measures the frames of a conversation of n members. Ids have fixed lengths; only seq and head grow, so their mean
// number of digits enters.
func (in RunInputs) frames(p presence) frameBytes {
	size := func(template string, fields ...Bytes) (sum float64) {
		sum = float64(len(template))
		for _, f := range fields {
			sum += float64(f)
		}
		return sum
	}
	seq := seqDigits(p, float64(in.Warmup)+float64(in.Measure)/2)
	var rid Bytes
	if in.RIDBytes > 0 {
		rid = Bytes(len(`,"rid":""`)) + in.RIDBytes
	}
	object := seq + size(`{"conv":"","seq":,"kind":"msg","mid":"","sender":"","cmid":"","body":"","at":}`,
		in.ConvBytes, uuidText, in.UserBytes, uuidText, in.BodyBytes, millisText)
	hint := seq + size(`{"t":"hint","conv":"","head":}`, in.ConvBytes)
	return frameBytes{
		event:     object + size(`{"t":"event","ev":}`),
		hint:      hint,
		sweepHint: hint + size(`,"why":"sweep"`),
		// A reply of several events has one comma less than events.
		syncReply: 2*seq + size(`{"t":"synced","conv":"","events":[],"head":,"min_seq":1,"next_after":,"has_more":false,"epoch":1}`, rid, in.ConvBytes) - 1,
		syncEvent: object + 1,
		acked:     seq + size(`{"t":"acked","conv":"","delivered":}`, rid, in.ConvBytes),
		sent:      seq + size(`{"t":"sent","conv":"","seq":,"mid":"","dup":false,"epoch":1}`, rid, in.ConvBytes, uuidText),
	}
}

// seqDigits is the mean number of digits of a message's seq about t seconds after the load began. A conversation begins
// with a join event for each member; the bursts that it has had before are Poisson.
func seqDigits(p presence, t float64) (sum float64) {
	odds := p.mean(p.odds)
	earlier := t / p.tau * odds / (1 + odds)
	longest := min(int(p.burst), int(2*p.lambda*t)+1)
	weight := math.Exp(-earlier)
	for bursts := 0; bursts < 200; bursts++ {
		first := float64(p.members) + float64(bursts)*p.burst
		// Eight places of the burst stand for all.
		for i := range 8 {
			seq := first + 1 + float64(longest-1)*(float64(i)+0.5)/8
			sum += weight * float64(len(strconv.FormatInt(int64(seq), 10))) / 8
		}
		weight *= earlier / float64(bursts+1)
	}
	return sum
}

package population

import "time"

// Fetches yields who asks for one event when: a Poisson stream of load.fetch_rate a second over the load, which follows its
// stages, each time another connected device that is in a conversation, evenly drawn, and one of its conversations. Which of
// the events there that the device has by then is left to Draw. nil if there is none.
func (p *Plan) Fetches() Arrivals { return p.asks("fetches", float64(p.s.Load.FetchRate), true) }

// Lists yields likewise who asks for the list of conversations, load.convs_rate a second.
func (p *Plan) Lists() Arrivals { return p.asks("lists", float64(p.s.Load.ConvsRate), false) }

func (p *Plan) asks(label string, rate float64, inConv bool) Arrivals {
	a := &asks{plan: p, src: newSource(p.seed, label), rate: rate, inConv: inConv}
	if rate > 0 {
		for d := range p.pop.Devices {
			if p.pop.Devices[d].Connected && (!inConv || len(p.pop.Users[p.pop.Devices[d].User].Convs) > 0) {
				a.devices = append(a.devices, int32(d))
			}
		}
	}
	if len(a.devices) == 0 {
		return nil
	}
	return a
}

type asks struct {
	plan    *Plan
	src     source
	rate    float64
	inConv  bool
	at      float64 // seconds
	index   int64
	devices []int32
}

// Next implements Arrivals.
func (s *asks) Next() (Arrival, bool) {
	s.at = s.plan.ramp.after(s.at, s.src.exponential()/s.rate)
	if s.at >= s.plan.s.Phases.LoadTime().Seconds() {
		return Arrival{}, false
	}
	a := Arrival{Index: s.index, At: time.Duration(s.at * float64(time.Second)), Device: s.devices[s.src.below(len(s.devices))]}
	s.index++
	if s.inConv {
		convs := s.plan.pop.Users[s.plan.pop.Devices[a.Device].User].Convs
		a.Conv, a.Draw = convs[s.src.below(len(convs))], s.src.unit()
	}
	return a, true
}

// Asked counts what a stream has in the measured window, and in all; a nil stream has nothing.
func (p *Plan) Asked(stream Arrivals) (window, total int64) {
	from, to := p.s.Phases.Warmup, p.s.Phases.Warmup+p.s.Phases.Measure
	for stream != nil {
		a, ok := stream.Next()
		if !ok {
			break
		}
		total++
		if a.At >= from && a.At < to {
			window++
		}
	}
	return window, total
}
